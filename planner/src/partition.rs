//! Blocks to stages: a dynamic program over the chain.

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
    if num_stages == 0 || num_stages > num_blocks {
        return None;
    }
    if !reaches_end(num_blocks, num_stages, &fits) {
        return None;
    }
    let mut best = vec![f64::INFINITY; num_blocks + 1];
    best[0] = 0.0;
    let mut starts = vec![vec![0usize; num_blocks + 1]; num_stages];
    for (stage, starts) in starts.iter_mut().enumerate() {
        let mut next = vec![f64::INFINITY; num_blocks + 1];
        // Later stages need a block each, and so did earlier ones; the last ends at the end.
        let last = num_blocks - (num_stages - 1 - stage);
        let first = if stage + 1 == num_stages { last } else { stage + 1 };
        // What fits ever less far back, as ends move on: each is asked for once.
        let mut earliest = stage;
        for end in first..=last {
            while earliest < end && !fits(stage, earliest, end) {
                earliest += 1;
            }
            for start in (earliest..end).rev() {
                let time = prefix[end] - prefix[start];
                if time >= next[end] {
                    break;
                }
                let slowest = best[start].max(time);
                if slowest < next[end] * (1.0 - ROUNDING) {
                    next[end] = slowest;
                    starts[end] = start;
                }
            }
        }
        best = next;
    }
    if best[num_blocks].is_infinite() {
        return None;
    }
    let mut ends = vec![num_blocks; num_stages];
    for stage in (1..num_stages).rev() {
        ends[stage - 1] = starts[stage][ends[stage]];
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
