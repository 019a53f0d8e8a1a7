//! Schedules with one stage per rank and full backwards.

use super::steps::{backward, forward};
use crate::schedule::ScheduleStep;

/// Naive model parallelism: each micro-batch runs forward and backward through all stages before the next one starts.
///
/// ```text
/// 0 | F0 B0 F1 B1
/// 1 | F0 B0 F1 B1
/// ```
pub(super) fn sequential(p: u32, m: u32) -> Vec<Vec<ScheduleStep>> {
    let steps = |stage| (0..m).flat_map(move |i| [forward(stage, i), backward(stage, i)]);
    (0..p).map(|stage| steps(stage).collect()).collect()
}

/// All forwards, then all backwards in the same order, as in PyTorch.
///
/// ```text
/// 0 | F0 F1 F2 B0 B1 B2
/// 1 | F0 F1 F2 B0 B1 B2
/// ```
///
/// # Source
///
/// Huang et al. 2019, *GPipe* (arXiv 1811.06965), section 2.3, where backwards run in the reverse
/// order; the time is the same.
pub(super) fn gpipe(p: u32, m: u32) -> Vec<Vec<ScheduleStep>> {
    let steps = |stage| {
        let forwards = (0..m).map(move |i| forward(stage, i));
        forwards.chain((0..m).map(move |i| backward(stage, i)))
    };
    (0..p).map(|stage| steps(stage).collect()).collect()
}

/// One forward per following stage, then forwards and backwards in alternation.
///
/// ```text
/// 0 | F0 F1 F2 B0 F3 B1 B2 B3
/// 1 | F0 F1 B0 F2 B1 F3 B2 B3
/// 2 | F0 B0 F1 B1 F2 B2 F3 B3
/// ```
///
/// The asynchronous schedule has the same order; only the time of updates differs.
///
/// # Source
///
/// Narayanan et al. 2021 (arXiv 2104.04473), section 2.2.1 (`PipeDream`-Flush); Harlap et al. 2018
/// (arXiv 1806.03377), section 3.2, without the flush.
pub(super) fn one_f_one_b(p: u32, m: u32) -> Vec<Vec<ScheduleStep>> {
    let steps = |stage: u32| {
        let num_warmup = (p - 1 - stage).min(m);
        let warmup = (0..num_warmup).map(move |i| forward(stage, i));
        let steady =
            (num_warmup..m).flat_map(move |i| [forward(stage, i), backward(stage, i - num_warmup)]);
        let drain = (m - num_warmup..m).map(move |i| backward(stage, i));
        warmup.chain(steady).chain(drain)
    };
    (0..p).map(|stage| steps(stage).collect()).collect()
}
