//! Times measured on a machine, which replace data-sheet rates.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::error::{Bounds, ClusterError};
use super::precision::Precision;
use crate::units::{Bytes, BytesPerSecond, Seconds};

/// Time of one collective on a level, as measured there.
///
/// ```text
/// t = start + steps latency + v S / W
/// ```
///
/// Steps and `v` are those of the collective's algorithm. Groups of a size that was measured use the measured times
/// instead.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredCollective {
    /// Time to start the collective and synchronize with the other ranks.
    #[serde(rename = "start_seconds")]
    pub start: Seconds,
    /// Time of one step of the collective.
    #[serde(rename = "latency_seconds")]
    pub latency: Seconds,
    /// Bandwidth of one rank; absent where time does not grow with bytes, as between threads that share memory.
    #[serde(
        default,
        rename = "bandwidth_bytes_per_second",
        skip_serializing_if = "Option::is_none"
    )]
    pub bandwidth: Option<BytesPerSecond>,
    /// Mean absolute relative error of these numbers against the measurements.
    pub mean_error: f64,
    /// Measured times by number of ranks, for sizes of the whole buffer in ascending order. Between two sizes, the
    /// logarithm of the time is linear in the logarithm of the size; beyond the largest size, the bandwidth is used.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub times: BTreeMap<u32, Vec<MeasuredTime>>,
}

/// Measured time of one buffer size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredTime {
    /// Size of the whole buffer.
    pub bytes: Bytes,
    /// Time of the collective, not below that of a smaller size.
    pub seconds: Seconds,
}

impl MeasuredCollective {
    /// Time of a collective of `bytes` in a group of `num_ranks`; `None` where no group of this size was measured.
    ///
    /// ```text
    /// t = t0 (t1 / t0)^(log(S / S0) / log(S1 / S0))     between two sizes
    /// t = t1 + v (S - S1) / W                           beyond the largest; t1 S / S1 without a bandwidth
    /// ```
    pub fn of_its_size(&self, volume_factor: f64, num_ranks: u32, bytes: f64) -> Option<Seconds> {
        let times = self.times.get(&num_ranks)?;
        let above = times.partition_point(|it| it.bytes.as_f64() < bytes);
        let Some(upper) = times.get(above) else {
            let last = times.last()?;
            let further = bytes - last.bytes.as_f64();
            let Some(bandwidth) = self.bandwidth else {
                return Some(last.seconds * (bytes / last.bytes.as_f64()));
            };
            return Some(last.seconds + Seconds::new(volume_factor * further / bandwidth.get()));
        };
        let Some(lower) = above.checked_sub(1).and_then(|it| times.get(it)) else {
            return Some(upper.seconds);
        };
        let share = (bytes / lower.bytes.as_f64()).ln()
            / (upper.bytes.as_f64() / lower.bytes.as_f64()).ln();
        let ratio = upper.seconds.get() / lower.seconds.get();
        Some(lower.seconds * ratio.powf(share))
    }

    pub(super) fn check(&self, field: &str) -> Result<(), ClusterError> {
        Bounds::SECONDS.check(&format!("{field}.start_seconds"), self.start.get())?;
        Bounds::SECONDS.check(&format!("{field}.latency_seconds"), self.latency.get())?;
        if let Some(bandwidth) = self.bandwidth {
            Bounds::POSITIVE
                .check(&format!("{field}.bandwidth_bytes_per_second"), bandwidth.get())?;
        }
        Bounds::NOT_NEGATIVE.check(&format!("{field}.mean_error"), self.mean_error)?;
        for (ranks, times) in &self.times {
            check_times(&format!("{field}.times.{ranks}"), *ranks, times)?;
        }
        Ok(())
    }
}

/// Checks that sizes ascend, and that times do not fall.
fn check_times(field: &str, ranks: u32, times: &[MeasuredTime]) -> Result<(), ClusterError> {
    for time in times {
        Bounds::POSITIVE.check(&format!("{field}.bytes"), time.bytes.as_f64())?;
        Bounds::SECONDS.check(&format!("{field}.seconds"), time.seconds.get())?;
    }
    let rises = |pair: &[MeasuredTime]| {
        pair[0].bytes < pair[1].bytes && pair[0].seconds.get() <= pair[1].seconds.get()
    };
    let starts = times.first().is_some_and(|time| time.seconds.get() > 0.0);
    if ranks < 2 || !starts || !times.windows(2).all(rises) {
        let works = "at least one time of 2 ranks or more, by rising `bytes`, with `seconds` above 0 that do not fall";
        let value = format!("{} times of {ranks} ranks", times.len());
        return Err(ClusterError::unusable(field, value, works));
    }
    Ok(())
}

/// Kernel times of a rank, measured while several ranks were busy, by the precision of the step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredKernels {
    /// Number of ranks that computed at once.
    pub ranks: u32,
    /// Number of threads of each rank; absent on devices where a rank has the whole device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads_per_rank: Option<u32>,
    /// Kernel times in each precision.
    pub by_precision: BTreeMap<Precision, KernelTimes>,
}

/// Kernel times in one precision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelTimes {
    /// The three products of a linear layer.
    pub products: MeasuredPasses<ProductTime>,
    /// Fused attention.
    pub attention: MeasuredPasses<AttentionTime>,
    /// Other operators, by [`OpKind::family`](crate::graph::OpKind::family).
    pub operators: BTreeMap<String, MeasuredPasses<MemoryTime>>,
    /// Operators that only move data.
    pub memory: MemoryTime,
    /// Time to assemble the gradients of a rank's parameters, once per step, in seconds per parameter.
    pub seconds_per_gradient: f64,
    /// Fixed time at the end of a step for gradient norm and update, in seconds.
    pub update_start_seconds: f64,
    /// Time of the update, in seconds per parameter that a rank updates.
    pub seconds_per_update: f64,
    /// Mean absolute relative error of whole steps predicted by these numbers.
    pub mean_error: f64,
}

/// Time of an operator in each of its measured passes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredPasses<T> {
    /// Forward pass.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub forward: Option<T>,
    /// Pass for the gradient of the input.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub input_grad: Option<T>,
    /// Pass for the gradient of the parameters.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub weight_grad: Option<T>,
}

fn none<T>() -> Option<T> {
    None
}

/// Time of a kernel as a linear function of `N` quantities of its work.
pub trait Times<const N: usize> {
    /// Seconds per unit of each quantity.
    fn costs(&self) -> [f64; N];

    /// Builds the times from the seconds per unit of each quantity.
    fn from_costs(costs: [f64; N]) -> Self;
}

/// Declares the time of a kernel as seconds per unit of some quantities.
macro_rules! times {
    ($(#[$doc:meta])* $name:ident, $count:literal, $($(#[$field_doc:meta])* $field:ident),+) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: f64,)+
        }

        impl Times<$count> for $name {
            fn costs(&self) -> [f64; $count] {
                [$(self.$field),+]
            }

            fn from_costs(costs: [f64; $count]) -> Self {
                let [$($field),+] = costs;
                Self { $($field),+ }
            }
        }
    };
}

times!(
    /// Time of matrix products.
    ProductTime, 5,
    /// Fixed time: seconds.
    start_seconds,
    /// Time per operation; there are two for each element of the left matrix and column of the right one.
    seconds_per_operation,
    /// Time per element of the left matrix.
    seconds_per_left_element,
    /// Time per element of the right matrix.
    seconds_per_right_element,
    /// Time per element of the result.
    seconds_per_output_element
);

times!(
    /// Time of fused attention that is computed block by block of queries.
    AttentionTime, 5,
    /// Fixed time: seconds.
    start_seconds,
    /// Time per block of queries of a key-value head.
    seconds_per_block,
    /// Time per operation of the forward products.
    seconds_per_operation,
    /// Time per score.
    seconds_per_score,
    /// Time per element of queries and output.
    seconds_per_element
);

times!(
    /// Time of operators that are bound by memory.
    MemoryTime, 2,
    /// Fixed time: seconds.
    start_seconds,
    /// Time per byte read or written.
    seconds_per_byte
);

impl ProductTime {
    /// The quantities of `batch` products of `[m, k]` by `[k, n]`, in the order of the fields.
    pub fn quantities([batch, m, n, k]: [u64; 4]) -> [f64; 5] {
        let [batch, m, n, k] = [batch, m, n, k].map(|size| size as f64);
        [batch, 2.0 * batch * m * n * k, batch * m * k, batch * k * n, batch * m * n]
    }
}

impl AttentionTime {
    /// Smallest number of queries of a block.
    const SMALLEST_BLOCK: u64 = 64;

    /// Largest number of queries of a block.
    const LARGEST_BLOCK: u64 = 512;

    /// Number of blocks of queries; the size of a block is clamped to its bounds.
    const BLOCKS: u64 = 8;

    /// The quantities of an attention of `batch` sequences of `s` positions, with `heads` query heads and `kv_heads`
    /// key-value heads of `d` features, in the order of the fields. Under a causal mask a block of queries is
    /// multiplied with the keys up to its last query, as in the executor's kernels.
    pub fn quantities([batch, s, heads, kv_heads, d]: [u64; 5], is_causal: bool) -> [f64; 5] {
        let block = s.div_ceil(Self::BLOCKS).clamp(Self::SMALLEST_BLOCK, Self::LARGEST_BLOCK);
        let blocks = s.div_ceil(block).max(1) as f64;
        let share = if is_causal { (blocks + 1.0) / (2.0 * blocks) } else { 1.0 };
        let [batch, s, heads, kv_heads, d] = [batch, s, heads, kv_heads, d].map(|it| it as f64);
        let scores = batch * heads * s * s * share;
        [1.0, batch * kv_heads * blocks, 4.0 * scores * d, scores, 2.0 * batch * heads * s * d]
    }
}

impl MeasuredKernels {
    pub(super) fn check(&self, field: &str) -> Result<(), ClusterError> {
        Bounds::COUNT.check(&format!("{field}.ranks"), self.ranks.into())?;
        for (precision, times) in &self.by_precision {
            times.check(&format!("{field}.by_precision.{precision}"))?;
        }
        Ok(())
    }
}

impl KernelTimes {
    fn check(&self, field: &str) -> Result<(), ClusterError> {
        self.products.check(&format!("{field}.products"))?;
        self.attention.check(&format!("{field}.attention"))?;
        for (family, times) in &self.operators {
            times.check(&format!("{field}.operators.{family}"))?;
        }
        check_costs(&format!("{field}.memory"), &self.memory)?;
        for (name, value) in [
            ("seconds_per_gradient", self.seconds_per_gradient),
            ("update_start_seconds", self.update_start_seconds),
            ("seconds_per_update", self.seconds_per_update),
            ("mean_error", self.mean_error),
        ] {
            Bounds::NOT_NEGATIVE.check(&format!("{field}.{name}"), value)?;
        }
        Ok(())
    }
}

impl<T> MeasuredPasses<T> {
    /// No measurements.
    pub const NONE: Self = Self { forward: None, input_grad: None, weight_grad: None };

    fn check<const N: usize>(&self, field: &str) -> Result<(), ClusterError>
    where
        T: Times<N>,
    {
        let passes = [
            ("forward", &self.forward),
            ("input_grad", &self.input_grad),
            ("weight_grad", &self.weight_grad),
        ];
        for (pass, times) in passes {
            let Some(times) = times else { continue };
            check_costs(&format!("{field}.{pass}"), times)?;
        }
        Ok(())
    }
}

/// Checks that all costs are between zero and an hour.
fn check_costs<const N: usize>(field: &str, times: &impl Times<N>) -> Result<(), ClusterError> {
    times.costs().iter().try_for_each(|cost| Bounds::SECONDS.check(field, *cost))
}
