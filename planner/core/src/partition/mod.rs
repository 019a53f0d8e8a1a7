//! Partition of the chain of blocks into stages so that the slowest stage is as fast as possible.

mod even;
mod filled;
mod mirrored;
mod unlike;

use std::cell::Cell;
use std::ops::AddAssign;

use ir::units::Nanos;

pub use even::evened;
pub use filled::filled;
pub use mirrored::mirrored;
pub use unlike::partition_of;

/// Ends of `num_stages` stages that minimise the time of the slowest, where `fits(s, start, end)` says that stage `s`
/// can hold blocks `start` to `end`.
///
/// The limit on the slowest stage is found by bisection, in whole nanoseconds: if any stages within a limit cover the
/// chain, so do stages that each take as many blocks as they can. Among equally fast partitions, the earlier stages are
/// as long as possible; but where the last stages take long because of a large block, the stages before them are
/// balanced among themselves. Every stage has at least one block. `None` if no partition fits.
///
/// `prefix[i]` is the time of the first `i` blocks. `fits` must hold for every part of a range for which it holds.
///
/// # Source
///
/// The linear partition problem by parametric search; for pipeline stages Narayanan et al. 2019,
/// *PipeDream*, section 3.1.
pub fn partition(
    prefix: &[Nanos],
    num_stages: usize,
    fits: impl Fn(usize, usize, usize) -> bool,
) -> Option<Vec<usize>> {
    let mut ends = fastest(prefix, num_stages, &fits)?;
    let mut limit = slowest(prefix, &ends);
    let mut stages = num_stages - 1;
    while stages > 0 {
        let reach = furthest(prefix, stages, Nanos::new(limit.get().saturating_sub(1)), &fits);
        // Earlier stages are rebalanced only where they hold their blocks within a shorter limit, and where their mean
        // is far enough below the slowest that there is something to gain.
        let may_gain = |stages: &usize| {
            let end = ends[stages - 1];
            let is_far_below = prefix[end].get() * 16 < limit.get() * 15 * *stages as u64;
            reach[stages - 1] >= end && is_far_below
        };
        let Some(fewer) = (1..=stages).rev().find(may_gain) else { break };
        let before = fastest(&prefix[..=ends[fewer - 1]], fewer, &fits)?;
        limit = slowest(prefix, &before);
        ends[..fewer].copy_from_slice(&before);
        stages = fewer - 1;
    }
    Some(ends)
}

/// Partition that minimises the time of the slowest stage.
fn fastest(
    prefix: &[Nanos],
    num_stages: usize,
    fits: impl Fn(usize, usize, usize) -> bool,
) -> Option<Vec<usize>> {
    let num_blocks = prefix.len() - 1;
    if !(1..=num_blocks).contains(&num_stages) {
        return None;
    }
    let largest = prefix.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default();
    let share = Nanos::new(prefix[num_blocks].get().div_ceil(num_stages as u64));
    let time = |_, start: usize, end: usize| prefix[end] - prefix[start];
    let find = |limit| within([num_blocks, num_stages], limit, time, &fits);
    let any = match find(share + largest) {
        Ok(ends) => ends,
        Err(_) => find(Nanos::new(u64::MAX)).ok()?,
    };
    Some(bisected(any, share.max(largest), |ends| slowest(prefix, ends), find))
}

/// The best choice, by bisection on the limit of its slowest part, of which `least` is a lower bound. `find` makes a
/// choice whose slowest part is within a limit or, where there is none, returns the least limit that may be enough.
pub(crate) fn bisected<T>(
    mut best: T,
    mut least: Nanos,
    slowest: impl Fn(&T) -> Nanos,
    find: impl Fn(Nanos) -> Result<T, Nanos>,
) -> T {
    let mut enough = slowest(&best);
    while least < enough {
        match find(Nanos::new(least.get().midpoint(enough.get()))) {
            Ok(better) => (enough, best) = (slowest(&better), better),
            Err(next) => least = next,
        }
    }
    best
}

/// `fits(s, start, end)` with its answers remembered, for use where it takes long: what fits does not depend on the
/// limit of a bisection, and every part of a range that fits does so too.
pub(crate) fn remembered(
    [num_blocks, num_stages]: [usize; 2],
    fits: impl Fn(usize, usize, usize) -> bool,
) -> impl Fn(usize, usize, usize) -> bool {
    // For each stage and start, the furthest end known to fit, and the nearest known not to fit.
    let known = vec![Cell::new((0, usize::MAX)); num_stages * (num_blocks + 1)];
    move |stage, start, end| {
        let known = &known[stage * (num_blocks + 1) + start];
        let (reached, beyond) = known.get();
        if end <= reached {
            return true;
        }
        let is_held = end < beyond && fits(stage, start, end);
        known.set(if is_held { (end, beyond) } else { (reached, end.min(beyond)) });
        is_held
    }
}

/// [`partition`] where every stage can hold all blocks.
pub fn balanced(prefix: &[Nanos], num_stages: usize) -> Option<Vec<usize>> {
    partition(prefix, num_stages, |_, _, _| true)
}

/// Prefix sums: of none of these numbers, of the first, of the first two, and so on.
pub(crate) fn prefix_sums<T: AddAssign + Copy + Default>(
    numbers: impl Iterator<Item = T>,
) -> Vec<T> {
    let mut sum = T::default();
    let sums = numbers.map(|number| {
        sum += number;
        sum
    });
    std::iter::once(T::default()).chain(sums).collect()
}

/// Time of the slowest stage.
fn slowest(prefix: &[Nanos], ends: &[usize]) -> Nanos {
    let starts = std::iter::once(0).chain(ends.iter().copied());
    let times = starts.zip(ends).map(|(start, end)| prefix[*end] - prefix[start]);
    times.max().unwrap_or_default()
}

/// Partition by greedy filling: each stage takes as many blocks as fit within `limit`, and leaves one to each stage
/// that follows. If these stages do not cover the chain, returns the least limit that changes the partition: with a
/// shorter one no stage can take one more block.
fn within(
    [num_blocks, num_stages]: [usize; 2],
    limit: Nanos,
    time: impl Fn(usize, usize, usize) -> Nanos,
    fits: impl Fn(usize, usize, usize) -> bool,
) -> Result<Vec<usize>, Nanos> {
    let mut ends = Vec::with_capacity(num_stages);
    let mut start = 0;
    let mut next = Nanos::new(u64::MAX);
    // Stages are about as long as the one before, so the search for each end starts there.
    let mut length = 1;
    for stage in 0..num_stages {
        let most = num_blocks - (num_stages - 1 - stage);
        let last_in_time =
            last(start, start + length, most, |end| time(stage, start, end) <= limit);
        if last_in_time < most {
            next = next.min(time(stage, start, last_in_time + 1));
        }
        let fits = |end: usize| fits(stage, start, end);
        let end = last(start, start + length, last_in_time, fits);
        if end == start {
            return Err(next);
        }
        ends.push(end);
        length = end - start;
        start = end;
    }
    if start == num_blocks { Ok(ends) } else { Err(next) }
}

/// The furthest ends that stages of at most `limit` can reach.
fn furthest(
    prefix: &[Nanos],
    num_stages: usize,
    limit: Nanos,
    fits: impl Fn(usize, usize, usize) -> bool,
) -> Vec<usize> {
    let most = prefix.len() - 1;
    let mut start = 0;
    let mut length = 1;
    let reach = |stage| {
        let is_within =
            |end: usize| prefix[end] - prefix[start] <= limit && fits(stage, start, end);
        let end = last(start, start + length, most, is_within);
        length = end - start;
        start = end;
        end
    };
    (0..num_stages).map(reach).collect()
}

/// The last end up to `most` of a stage from `start` for which `holds` is true, searched from `guess` on; `start` if
/// there is none.
fn last(start: usize, guess: usize, most: usize, holds: impl Fn(usize) -> bool) -> usize {
    let mut end = most.min(guess);
    while end > start && !holds(end) {
        end -= 1;
    }
    while end >= guess && end < most && holds(end + 1) {
        end += 1;
    }
    end
}

#[cfg(test)]
mod tests;
