//! Blocks to stages: a dynamic program over the chain.

mod folded;

pub use folded::folded;

/// Sums of equal times differ in their last bits; partitions that differ by less are equally good.
const ROUNDING: f64 = 1e-9;

/// Where each of `num_stages` stages ends, so that the slowest is as fast as can be.
///
/// ```text
/// f(k, j) = min over i < j of max(f(k - 1, i), t(i..j)),   f(0, 0) = 0
/// ```
///
/// where `t(i..j)` is the time of blocks `i` to `j`, and `fits(k, i, j)` says whether stage `k` can
/// hold them. Every stage has at least one block. Among equals the earlier stages are as long as can
/// be. `None` if no partition fits.
///
/// `prefix[i]` is the time of the first `i` blocks. `fits` must hold for every part of a range for
/// which it holds.
///
/// # Source
///
/// The linear partition problem; for pipeline stages Narayanan et al. 2019, *PipeDream*, section 3.1.
pub fn partition(
    prefix: &[f64],
    num_stages: usize,
    fits: impl Fn(usize, usize, usize) -> bool,
) -> Option<Vec<usize>> {
    let num_blocks = prefix.len() - 1;
    let possible =
        (1..=num_blocks).contains(&num_stages) && reaches_end(num_blocks, num_stages, &fits);
    possible.then(|| within(prefix, num_stages, f64::INFINITY, fits)).flatten()
}

/// As [`partition`] where every stage can hold everything. A time that the slowest stage
/// need not exceed is found by bisection first, so that the program looks only at ends that can be part
/// of an answer.
pub fn balanced(prefix: &[f64], num_stages: usize) -> Option<Vec<usize>> {
    if !(1..prefix.len()).contains(&num_stages) {
        return None;
    }
    within(prefix, num_stages, slowest_stage(prefix, num_stages), |_, _, _| true)
}

/// A time that the slowest stage need not exceed, near the least.
///
/// It is at least that of the largest block and of an equal share, and need not exceed their sum: stages
/// that each end with the block that reaches an equal share cover the chain.
fn slowest_stage(prefix: &[f64], num_stages: usize) -> f64 {
    /// Each halves what the program looks at beside its answer.
    const HALVINGS: u32 = 6;
    let share = prefix[prefix.len() - 1] / num_stages as f64;
    let largest = prefix.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
    let enough = |time: f64| {
        let mut start = 0;
        for _ in 0..num_stages {
            start = prefix.partition_point(|sum| *sum <= prefix[start] + time) - 1;
        }
        start + 1 == prefix.len()
    };
    let (mut too_little, mut slowest) = (share.max(largest), share + largest);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(too_little, slowest);
        if enough(middle) {
            slowest = middle;
        } else {
            too_little = middle;
        }
    }
    slowest * (1.0 + ROUNDING)
}

/// The dynamic program over stages that take at most `limit`.
fn within(
    prefix: &[f64],
    num_stages: usize,
    limit: f64,
    fits: impl Fn(usize, usize, usize) -> bool,
) -> Option<Vec<usize>> {
    let num_blocks = prefix.len() - 1;
    let total = prefix[num_blocks];
    let mut best = vec![f64::INFINITY; num_blocks + 1];
    best[0] = 0.0;
    let mut next = vec![f64::INFINITY; num_blocks + 1];
    let mut previous = 0..=0;
    let mut starts: Vec<(usize, Vec<usize>)> = Vec::with_capacity(num_stages);
    for stage in 0..num_stages {
        // Later stages need a block each, and so did earlier ones; the last ends at the end. What is
        // before an end, and what is after it, must be within what the stages may take.
        let later = num_stages - 1 - stage;
        let (mut first, mut last) = (stage + 1, num_blocks - later);
        if later == 0 {
            first = num_blocks;
        } else if limit.is_finite() {
            let before = (stage + 1) as f64 * limit;
            let after = total - later as f64 * limit;
            first = first.max(prefix.partition_point(|sum| *sum < after));
            last = last.min(prefix.partition_point(|sum| *sum <= before).saturating_sub(1));
        }
        if first > last {
            return None;
        }
        let mut chosen = vec![0; last - first + 1];
        // What fits ever less far back, as ends move on: each is asked for once.
        let mut earliest = *previous.start();
        for end in first..=last {
            while earliest < end && !fits(stage, earliest, end) {
                earliest += 1;
            }
            for start in (earliest..end.min(*previous.end() + 1)).rev() {
                let time = prefix[end] - prefix[start];
                if time >= next[end] || time > limit {
                    break;
                }
                let slowest = best[start].max(time);
                if slowest < next[end] * (1.0 - ROUNDING) {
                    next[end] = slowest;
                    chosen[end - first] = start;
                }
            }
        }
        std::mem::swap(&mut best, &mut next);
        next[previous].fill(f64::INFINITY);
        previous = first..=last;
        starts.push((first, chosen));
    }
    if best[num_blocks].is_infinite() {
        return None;
    }
    let mut ends = vec![num_blocks; num_stages];
    for stage in (1..num_stages).rev() {
        let (first, chosen) = &starts[stage];
        ends[stage - 1] = chosen[ends[stage] - first];
    }
    Some(ends)
}

/// Whether stages that each take as many blocks as fit take them all. If these do not, none do: a stage
/// that takes fewer leaves more to those after it.
fn reaches_end(
    num_blocks: usize,
    num_stages: usize,
    fits: impl Fn(usize, usize, usize) -> bool,
) -> bool {
    let mut start = 0;
    for stage in 0..num_stages {
        let most = num_blocks - (num_stages - 1 - stage);
        let mut end = start;
        while end < most && fits(stage, start, end + 1) {
            end += 1;
        }
        if end == start {
            return false;
        }
        start = end;
    }
    start == num_blocks
}

#[cfg(test)]
mod tests;
