//! Partition where two stages share a rank: the first with the last, the second with the last but one.

use std::cell::Cell;
use std::ops::Range;

use ir::units::Nanos;

use super::balanced;

/// Relative difference below which two limits count as equal.
const ROUNDING: f64 = 1e-9;

/// Ends of `num_stages` stages, an even number, that minimise the time of the slowest rank, where stage `c` shares its
/// rank with stage `num_stages - 1 - c`. Of the best partitions it is one whose slowest stage is fastest, with the work
/// of the other ranks evened out. `None` if there are fewer blocks than stages.
///
/// Ranks take blocks from both ends of the chain, inwards. If the ranks up to `r` have taken the first `i` blocks,
/// within the limits on ranks and stages, the blocks that are left end at
///
/// ```text
/// g(r, i) = min over h < i of the least j with t(h..i) + t(j..g(r - 1, h)) within limits
/// ```
///
/// The limits are found by bisection: where no partition is within a limit, the next to try is the shortest with which
/// a rank or stage can take one more block. `prefix[i]` is the time of the first `i` blocks.
///
/// # Assumes
///
/// Fewer remaining blocks are not harder to place. This holds where all blocks except the first and the last are alike.
/// Otherwise a stage of one block may need a block that is no longer left; the result is then close to the best, and
/// never slower than that of [`balanced`].
pub fn mirrored(prefix: &[Nanos], num_stages: usize) -> Option<Vec<usize>> {
    if num_stages < 2 {
        return None;
    }
    let any = balanced(prefix, num_stages)?;
    // Whole nanoseconds are exact as floats, for a hundred days.
    let prefix: &[f64] = &prefix.iter().map(|time| time.as_f64()).collect::<Vec<f64>>();
    let mean = prefix[prefix.len() - 1] / (num_stages / 2) as f64;
    let ends = least(
        any,
        mean,
        |ends| slowest_rank(prefix, ends),
        |rank| within(prefix, num_stages, &Limits::of_rank(rank)),
    );
    let rank = slowest_rank(prefix, &ends) * (1.0 + ROUNDING);
    let ends = least(
        ends,
        mean / 2.0,
        |ends| slowest_stage(prefix, ends),
        |stage| within(prefix, num_stages, &Limits::of_stage(rank, stage)),
    );
    Some(evened(prefix, ends))
}

/// Moves a block from one stage to another, each stage between them passing a block on, as long as that evens out the
/// work of two ranks, or of the two stages of one rank. Neither the slowest rank nor the slowest stage gets slower.
fn evened(prefix: &[f64], mut ends: Vec<usize>) -> Vec<usize> {
    let limits = [slowest_rank(prefix, &ends), slowest_stage(prefix, &ends)];
    let [rank_limit, stage_limit] = limits.map(|limit| limit * (1.0 + ROUNDING));
    let last = ends.len() - 1;
    // Each move lowers the sum of squares of ranks' times, or that of stages'.
    for _ in 0..2 * ends.len() {
        let times: Vec<f64> = stages(&ends).map(|stage| time(prefix, stage)).collect();
        let rank_of = |stage: usize| times[stage] + times[last - stage];
        let moved = |giver: usize, taker: usize| {
            let is_rank = giver == last - taker;
            let [before, to] = if is_rank {
                [times[giver], times[taker]]
            } else {
                [rank_of(giver), rank_of(taker)]
            };
            // The block that the giver loses, and the block that the taker gains.
            let [lost, gained] = if giver < taker {
                [ends[giver] - 1, ends[taker - 1] - 1]
            } else {
                [ends[giver - 1], ends[taker]]
            };
            let [lost, gained] = [lost, gained].map(|block| time(prefix, block..block + 1));
            if (before - lost).max(to + gained) >= before * (1.0 - ROUNDING) {
                return None;
            }
            let mut moved = ends.clone();
            for end in &mut moved[giver.min(taker)..giver.max(taker)] {
                *end = if giver < taker { *end - 1 } else { *end + 1 };
            }
            let is_possible = moved.is_sorted_by(|a, b| a < b)
                && moved[0] > 0
                && slowest_rank(prefix, &moved) <= rank_limit
                && slowest_stage(prefix, &moved) <= stage_limit;
            is_possible.then_some(moved)
        };
        // Stages of the ranks with least to do first, and the stages on either side of them.
        let mut takers: Vec<usize> = (0..=last).collect();
        takers.sort_by(|a, b| rank_of(*a).total_cmp(&rank_of(*b)));
        let better = takers.into_iter().find_map(|taker| {
            (1..=last).find_map(|distance| {
                let before = taker.checked_sub(distance);
                let after = Some(taker + distance).filter(|it| *it <= last);
                [before, after].into_iter().flatten().find_map(|giver| moved(giver, taker))
            })
        });
        let Some(better) = better else { break };
        ends = better;
    }
    ends
}

/// The best partition found by bisection on the time limit, above the lower bound `bound`.
fn least(
    mut best: Vec<usize>,
    mut bound: f64,
    time: impl Fn(&[usize]) -> f64,
    find: impl Fn(f64) -> Result<Vec<usize>, f64>,
) -> Vec<usize> {
    loop {
        let reached = time(&best);
        let limit = f64::midpoint(bound, reached);
        if limit >= reached * (1.0 - ROUNDING) {
            return best;
        }
        match find(limit) {
            Ok(better) => best = better,
            Err(next) => bound = next.max(limit),
        }
    }
}

fn stages(ends: &[usize]) -> impl DoubleEndedIterator<Item = Range<usize>> + ExactSizeIterator {
    ends.iter().enumerate().map(|(stage, end)| stage.checked_sub(1).map_or(0, |c| ends[c])..*end)
}

fn slowest_stage(prefix: &[f64], ends: &[usize]) -> f64 {
    stages(ends).map(|stage| time(prefix, stage)).fold(0.0, f64::max)
}

fn slowest_rank(prefix: &[f64], ends: &[usize]) -> f64 {
    let pairs = stages(ends).zip(stages(ends).rev()).take(ends.len() / 2);
    pairs.map(|(front, back)| time(prefix, front) + time(prefix, back)).fold(0.0, f64::max)
}

fn time(prefix: &[f64], blocks: Range<usize>) -> f64 {
    prefix[blocks.end] - prefix[blocks.start]
}

/// Blocks left to the inner ranks, once the ranks so far have taken the first `i` blocks.
struct Left {
    /// End of the blocks that are left, by `i`; `NOWHERE` where no partition within the limits takes `i`.
    ends: Vec<usize>,
    /// Number of blocks at the front that the ranks before the last had taken, by `i`.
    before: Vec<usize>,
}

const NOWHERE: usize = usize::MAX;

/// Limits on the time of a rank and of a stage, of which one is searched for.
struct Limits {
    rank: f64,
    stage: f64,
    /// True if the limit on a rank is searched for; that on a stage is then the same.
    is_of_rank: bool,
    /// The least limit with which one more of the ranges looked at so far is within it.
    next: Cell<f64>,
}

impl Limits {
    fn of_rank(limit: f64) -> Self {
        Self { rank: limit, stage: limit, is_of_rank: true, next: Cell::new(f64::INFINITY) }
    }

    fn of_stage(rank: f64, stage: f64) -> Self {
        Self { rank, stage, is_of_rank: false, next: Cell::new(f64::INFINITY) }
    }

    /// Notes blocks that exceed a limit, on a stage that takes `stage` and a rank that takes `rank`.
    fn exceeded_by(&self, stage: f64, rank: f64) {
        let needed = if self.is_of_rank { rank } else { stage };
        if self.is_of_rank || rank <= self.rank {
            self.next.set(self.next.get().min(needed));
        }
    }
}

/// A partition within the limits or, if there is none, the least limit that may be enough.
fn within(prefix: &[f64], num_stages: usize, limits: &Limits) -> Result<Vec<usize>, f64> {
    let num_blocks = prefix.len() - 1;
    let mut left = Left { ends: vec![NOWHERE; num_blocks + 1], before: vec![0; num_blocks + 1] };
    left.ends[0] = num_blocks;
    let mut ranks = vec![left];
    for inner in (1..num_stages / 2).rev() {
        let next = take(prefix, &ranks[ranks.len() - 1], 2 * inner, limits);
        ranks.push(next);
    }
    let innermost = &ranks[ranks.len() - 1];
    let halves = innermost.ends.iter().enumerate().filter(|(_, end)| **end != NOWHERE);
    let halves = halves.filter_map(|(start, end)| {
        let (middle, slower) = halved(prefix, start..*end)?;
        let both = time(prefix, start..*end);
        let is_within = both <= limits.rank && slower <= limits.stage;
        if !is_within {
            limits.exceeded_by(slower, both);
        }
        is_within.then_some((start, middle, slower))
    });
    let best = halves.min_by(|a, b| a.2.total_cmp(&b.2));
    let (start, middle, _) = best.ok_or_else(|| limits.next.get())?;
    let (mut fronts, mut backs) = (vec![middle], Vec::new());
    let mut taken = start;
    for left in ranks.iter().rev() {
        backs.push(left.ends[taken]);
        fronts.push(taken);
        taken = left.before[taken];
    }
    fronts.pop();
    fronts.reverse();
    fronts.append(&mut backs);
    Ok(fronts)
}

/// Blocks left after the next rank has taken its two stages, with at least `needed` left for the inner ranks.
fn take(prefix: &[f64], before: &Left, needed: usize, limits: &Limits) -> Left {
    let num_blocks = prefix.len() - 1;
    let mut left = Left { ends: vec![NOWHERE; num_blocks + 1], before: vec![0; num_blocks + 1] };
    for (start, end) in before.ends.iter().copied().enumerate() {
        if end == NOWHERE {
            continue;
        }
        // The longer the rank's first stage, the shorter its last.
        let most = limits.rank.min(limits.stage);
        let mut back = prefix.partition_point(|sum| *sum < prefix[end] - most);
        for front in start + 1..end {
            let taken = time(prefix, start..front);
            let rest = limits.stage.min(limits.rank - taken);
            while back < end && (back < front + needed || time(prefix, back..end) > rest) {
                back += 1;
            }
            // The rank would take one more block at its end.
            if back > front + needed {
                let one_more = time(prefix, back - 1..end);
                limits.exceeded_by(one_more.max(taken), taken + one_more);
            }
            if back >= end {
                break;
            }
            if taken > most {
                let last = time(prefix, back..end);
                limits.exceeded_by(last.max(taken), taken + last);
                break;
            }
            if back < left.ends[front] {
                left.ends[front] = back;
                left.before[front] = start;
            }
        }
    }
    left
}

/// The most even cut of blocks in two, and the time of the slower part.
fn halved(prefix: &[f64], blocks: Range<usize>) -> Option<(usize, f64)> {
    let middle = f64::midpoint(prefix[blocks.start], *prefix.get(blocks.end)?);
    let above = prefix.partition_point(|sum| *sum < middle);
    let cuts = [above.saturating_sub(1), above].into_iter();
    let cuts = cuts.filter(|cut| (blocks.start + 1..blocks.end).contains(cut));
    let slower = |cut| time(prefix, blocks.start..cut).max(time(prefix, cut..blocks.end));
    cuts.map(|cut| (cut, slower(cut))).min_by(|a, b| a.1.total_cmp(&b.1))
}
