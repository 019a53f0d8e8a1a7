//! Evens out the work of pipeline ranks that have several stages.

use ir::units::Nanos;

use super::slowest;

/// Moves blocks between neighbouring stages as long as that evens out the work of their ranks, where stages are placed
/// on the ranks in turn. No stage becomes slower than the slowest stage was, and every stage still fits.
///
/// A rank with several stages runs each of them for every micro-batch, so the busiest rank matters as well as the
/// slowest stage: with 82 equal blocks in 32 stages on 4 ranks, the slowest stage has three blocks in any partition;
/// but if as many stages as possible have three blocks, one rank has 22 blocks and the others 20.
pub fn evened(
    prefix: &[Nanos],
    ends: Vec<usize>,
    num_ranks: usize,
    fits: impl Fn(usize, usize, usize) -> bool,
) -> Vec<usize> {
    let limit = slowest(prefix, &ends);
    let time = |_, start: usize, end: usize| prefix[end] - prefix[start];
    evened_by(ends, num_ranks, limit, time, fits)
}

/// [`evened`], where blocks `start` to `end` take `time(s, start, end)` on stage `s`, within a limit on each stage.
pub(super) fn evened_by(
    mut ends: Vec<usize>,
    num_ranks: usize,
    limit: Nanos,
    time: impl Fn(usize, usize, usize) -> Nanos,
    fits: impl Fn(usize, usize, usize) -> bool,
) -> Vec<usize> {
    let start = |ends: &[usize], stage: usize| if stage == 0 { 0 } else { ends[stage - 1] };
    let mut ranks = vec![Nanos::ZERO; num_ranks];
    for stage in 0..ends.len() {
        ranks[stage % num_ranks] += time(stage, start(&ends, stage), ends[stage]);
    }
    // Each move makes the busier of two ranks less busy. The number of rounds has a bound, as a block may take longer
    // on another rank.
    for _ in 0..ends.last().copied().unwrap_or_default() {
        let mut is_even = true;
        for stage in 0..ends.len() - 1 {
            let pair = [stage % num_ranks, (stage + 1) % num_ranks];
            let [from, cut, to] = [start(&ends, stage), ends[stage], ends[stage + 1]];
            let moved = |cut: usize| {
                let [before, after] = [time(stage, from, cut), time(stage + 1, cut, to)];
                let is_possible = before.max(after) <= limit
                    && fits(stage, from, cut)
                    && fits(stage + 1, cut, to);
                let own = [time(stage, from, ends[stage]), time(stage + 1, ends[stage], to)];
                let first = ranks[pair[0]] - own[0] + before;
                let second = ranks[pair[1]] - own[1] + after;
                let is_less = first.max(second) < ranks[pair[0]].max(ranks[pair[1]]);
                (is_possible && is_less && pair[0] != pair[1]).then_some((cut, first, second))
            };
            let back = (cut > from + 1).then(|| moved(cut - 1)).flatten();
            let on = || (cut + 1 < to).then(|| moved(cut + 1)).flatten();
            let Some((cut, first, second)) = back.or_else(on) else { continue };
            (ranks[pair[0]], ranks[pair[1]]) = (first, second);
            ends[stage] = cut;
            is_even = false;
        }
        if is_even {
            break;
        }
    }
    ends
}
