//! Profiles of Nsight Systems, from the rows of its export: kernels by name and GPU, and ranges that programs mark.
//!
//! Shapes, and the operators that launched the kernels, are not recorded, so kernels are compared by class. A range
//! is a step if its name, without a number at its end, is `step`, `iter`, `iteration`, `train_step` or `ProfilerStep`.
//!
//! # Source
//!
//! NVIDIA, *Nsight Systems, SQLite Export Schema Reference*: times in nanoseconds.

use std::collections::BTreeMap;

use ir::units::Nanos;

use super::UnusableFile;
use super::profile::{Class, Phase, Profile, ProfiledKernel};

/// A row of `CUPTI_ACTIVITY_KIND_KERNEL`, with the name of its kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelRow {
    /// Start and end, in nanoseconds.
    pub span: [i64; 2],
    /// Index of its GPU on the host.
    pub device: i64,
    /// Demangled name.
    pub name: String,
}

/// A row of `NVTX_EVENTS` that is a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeRow {
    /// Start and end, in nanoseconds.
    pub span: [i64; 2],
    /// Text of the range.
    pub text: String,
}

/// Names of ranges that mark steps, without their numbers.
const STEPS: [&str; 5] = ["step", "iteration", "iter", "train_step", "profilerstep"];

/// The profile of each GPU.
///
/// # Errors
///
/// If no kernel was recorded.
pub fn profiles(kernels: &[KernelRow], ranges: &[RangeRow]) -> Result<Vec<Profile>, UnusableFile> {
    let starts = kernels.iter().map(|row| row.span[0]).chain(ranges.iter().map(|row| row.span[0]));
    let Some(zero) = starts.min().filter(|_| !kernels.is_empty()) else {
        return Err(UnusableFile(
            "the export has no kernel of a GPU\nhint: `nsys profile --trace cuda,nvtx ..`"
                .to_owned(),
        ));
    };
    let span = |[start, end]: [i64; 2]| {
        let since = |time: i64| Nanos::new(time.saturating_sub(zero).max(0).unsigned_abs());
        [since(start), since(end.max(start))]
    };
    let mut steps: Vec<[Nanos; 2]> =
        ranges.iter().filter(|row| is_step(&row.text)).map(|row| span(row.span)).collect();
    steps.sort();
    // Each rank of a host marks its own steps; steps that overlap count as one.
    steps.dedup_by(|next, before| next[0] < before[1]);
    let mut by_device: BTreeMap<i64, Vec<ProfiledKernel>> = BTreeMap::new();
    for (row, call) in kernels.iter().zip(0..) {
        let class = Class::of_kernel(&row.name);
        let phase = match class {
            Class::Update => Phase::Update,
            Class::AttentionBackward => Phase::Backward,
            _ => Phase::Forward,
        };
        let kernel = ProfiledKernel { span: span(row.span), class, phase, call, work: None };
        by_device.entry(row.device).or_default().push(kernel);
    }
    let profile = |(device, mut kernels): (i64, Vec<ProfiledKernel>)| {
        kernels.sort_by_key(|kernel| kernel.span);
        let (rank, steps) = (u32::try_from(device).ok(), steps.clone());
        Profile { rank, gpu: None, steps, kernels, has_shapes: false }
    };
    Ok(by_device.into_iter().map(profile).collect())
}

/// Returns whether a range is a step: `step 12`, `iteration_3`, `ProfilerStep#4`.
fn is_step(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let word = lower.trim_end_matches(|c: char| c.is_ascii_digit() || " _:#=-".contains(c));
    STEPS.contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_are_steps() {
        for text in ["step 12", "iteration_3", "ProfilerStep#4", "iter", "train_step:7"] {
            assert!(is_step(text), "{text}");
        }
        for text in ["optimizer step", "Optimizer.step", "step_lr", "forward", "", "12"] {
            assert!(!is_step(text), "{text}");
        }
    }

    #[test]
    fn each_gpu_has_a_profile() {
        let row = |device, start, end, name: &str| KernelRow {
            span: [start, end],
            device,
            name: name.to_owned(),
        };
        let kernels = [
            row(1, 130, 140, "nvjet_x"),
            row(0, 120, 150, "nvjet_x"),
            row(0, 105, 110, "ncclDevKernel"),
        ];
        let range = |start, end, text: &str| RangeRow { span: [start, end], text: text.to_owned() };
        let ranges = [
            range(100, 200, "step 1"),
            range(101, 199, "step 1"),
            range(210, 300, "step 2"),
            range(0, 5, "x"),
        ];
        let found = profiles(&kernels, &ranges).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].kernels.len(), 2);
        assert_eq!(found[0].kernels[0].class, Class::Exchange);
        assert_eq!(found[0].steps, [[100, 200], [210, 300]].map(|span| span.map(Nanos::new)));
        assert!(profiles(&[], &ranges).is_err());
    }
}
