//! Evens out the work of pipeline ranks that have several stages.

use ir::units::Nanos;

use super::slowest;

/// Moves blocks between neighbouring stages for as long as that evens out the work of their ranks, where stages go
/// round the ranks. No stage takes longer than the slowest did, and every stage still fits.
///
/// A rank with several stages runs each of them for every micro-batch, so the busiest rank matters as well as the
/// slowest stage: with 82 equal blocks in 32 stages on 4 ranks, the slowest stage has three blocks in any partition;
/// but with as many stages of three as possible, one rank has 22 blocks and the others 20.
pub fn evened(
    prefix: &[Nanos],
    mut ends: Vec<usize>,
    num_ranks: usize,
    fits: impl Fn(usize, usize, usize) -> bool,
) -> Vec<usize> {
    let limit = slowest(prefix, &ends);
    let num_stages = ends.len();
    let time = |blocks: [usize; 2]| prefix[blocks[1]] - prefix[blocks[0]];
    let start = |ends: &[usize], stage: usize| if stage == 0 { 0 } else { ends[stage - 1] };
    let mut ranks = vec![Nanos::ZERO; num_ranks];
    for stage in 0..num_stages {
        ranks[stage % num_ranks] += time([start(&ends, stage), ends[stage]]);
    }
    // Each move reduces the sum of squares over ranks, so the loop ends; mostly after two rounds.
    for _ in 0..num_stages {
        let mut is_even = true;
        for stage in 0..num_stages - 1 {
            let (first, second) = (stage % num_ranks, (stage + 1) % num_ranks);
            let [from, cut, to] = [start(&ends, stage), ends[stage], ends[stage + 1]];
            let (last, next) = (time([cut - 1, cut]), time([cut, cut + 1]));
            let cut = if ranks[first] > ranks[second] + last
                && cut - 1 > from
                && time([cut - 1, to]) <= limit
                && fits(stage + 1, cut - 1, to)
            {
                (ranks[first], ranks[second]) = (ranks[first] - last, ranks[second] + last);
                cut - 1
            } else if ranks[second] > ranks[first] + next
                && cut + 1 < to
                && time([from, cut + 1]) <= limit
                && fits(stage, from, cut + 1)
            {
                (ranks[first], ranks[second]) = (ranks[first] + next, ranks[second] - next);
                cut + 1
            } else {
                continue;
            };
            ends[stage] = cut;
            is_even = false;
        }
        if is_even {
            break;
        }
    }
    ends
}
