//! Partition where a block's time depends on the stage that has it.

use std::ops::Range;

use ir::units::Nanos;

use super::even::evened_by;
use super::{bisected, last, within};

/// Ends of `num_stages` stages that minimise the time of the slowest stage. Blocks `start` to `end` take
/// `time(s, start, end)` on stage `s`, and `fits(s, start, end)` says that the stage can hold them. The stages are
/// placed on `num_ranks` ranks in turn, and blocks then move between neighbouring stages as long as that evens out
/// their ranks. `None` if no partition fits.
///
/// The limit on the slowest stage is found by bisection, in whole nanoseconds, at first with stages that each take as
/// many blocks as they can. Each stage must have at least one block, so a stage that takes all it can may leave the
/// next stage a block that is slow there. Whether a shorter limit is enough is then found by dynamic programming, from
/// the last stage to the first, over the blocks from which the stages that follow can cover the rest.
///
/// For every part of a range, `time` must not be longer than for the range, and `fits` must hold if it holds for the
/// range. Every stage must be able to hold any one block. Otherwise a partition may not be found.
pub fn partition_of(
    num_blocks: usize,
    num_stages: usize,
    num_ranks: usize,
    time: impl Fn(usize, usize, usize) -> Nanos,
    fits: impl Fn(usize, usize, usize) -> bool,
) -> Option<Vec<usize>> {
    if !(1..=num_blocks).contains(&num_stages) {
        return None;
    }
    let slowest = |ends: &Vec<usize>| {
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let times = starts.zip(ends).zip(0..).map(|((start, end), stage)| time(stage, start, *end));
        times.max().unwrap_or_default()
    };
    let filled = |limit| within([num_blocks, num_stages], limit, &time, &fits);
    let covered = |limit: Nanos| {
        let holds = |stage, start, end| time(stage, start, end) <= limit && fits(stage, start, end);
        covered(num_blocks, num_stages, holds).ok_or(limit + Nanos::new(1))
    };
    let best = bisected(filled(Nanos::new(u64::MAX)).ok()?, Nanos::ZERO, slowest, filled);
    let shorter = Nanos::new(slowest(&best).get().saturating_sub(1));
    let best = match covered(shorter) {
        Ok(better) => bisected(better, Nanos::ZERO, slowest, covered),
        Err(_) => best,
    };
    let enough = slowest(&best);
    Some(evened_by(best, num_ranks, enough, time, fits))
}

/// Ends of stages that cover the chain, the earlier ones as long as possible, by dynamic programming from the last
/// stage to the first, over the blocks at which a stage can start; `None` if no stages cover it.
fn covered(
    num_blocks: usize,
    num_stages: usize,
    fits: impl Fn(usize, usize, usize) -> bool,
) -> Option<Vec<usize>> {
    let starts = starts(num_blocks, num_stages, &fits)?;
    // Ends of each stage, by its start, from which the stages that follow can cover the rest.
    let mut ends_of: Vec<Vec<Option<usize>>> = vec![Vec::new(); num_stages];
    let mut covers: Vec<bool> = (0..=num_blocks).map(|start| start == num_blocks).collect();
    for stage in (0..num_stages).rev() {
        let mut before = 0;
        let before = |(end, covers): (usize, &bool)| {
            before = if *covers { end } else { before };
            before
        };
        let nearest: Vec<usize> = covers.iter().enumerate().map(before).collect();
        let mut ends = vec![None; num_blocks];
        let mut furthest = 0;
        for start in starts[stage].clone() {
            let guess = furthest.max(start + 1);
            furthest = last(start, guess, num_blocks, |end| fits(stage, start, end));
            ends[start] = Some(nearest[furthest]).filter(|end| *end > start);
        }
        covers = ends.iter().map(Option::is_some).chain([false]).collect();
        ends_of[stage] = ends;
    }
    let mut start = 0;
    let ends = ends_of.iter().map(|ends| {
        start = (*ends.get(start)?)?;
        Some(start)
    });
    ends.collect()
}

/// Blocks at which each stage can start. The last is the furthest that the stages before it can reach, with a block
/// left for it and for each stage that follows. The first is the earliest from which it and the stages that follow can
/// reach the end of the chain. `None` if a stage has no such block.
fn starts(
    num_blocks: usize,
    num_stages: usize,
    fits: impl Fn(usize, usize, usize) -> bool,
) -> Option<Vec<Range<usize>>> {
    let mut reached = 0;
    let furthest = (0..num_stages).map(|stage| {
        let start = reached;
        reached = last(start, start + 1, num_blocks, |end| fits(stage, start, end));
        start.min(num_blocks + stage - num_stages)
    });
    let furthest: Vec<usize> = furthest.collect();
    let mut all = vec![0..0; num_stages];
    let mut end = num_blocks;
    for stage in (0..num_stages).rev() {
        let mut first = end;
        while first > stage && fits(stage, first - 1, end) {
            first -= 1;
        }
        if first > furthest[stage] {
            return None;
        }
        all[stage] = first..furthest[stage] + 1;
        end = first;
    }
    Some(all)
}
