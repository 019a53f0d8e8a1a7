//! GPUs, nodes and the network between them.
//!
//! A cluster in hand was checked: every rate is positive and finite, network levels widen outward
//! and the outermost reaches every rank.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};

use crate::units::{Bytes, BytesPerSecond, FlopsPerSecond, Seconds};

/// Equal GPUs in equal nodes, and the network levels from the innermost out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// The name that `--cluster` takes, or the file's own.
    pub name: String,
    /// One sentence on what it is.
    pub description: String,
    /// The GPU, or other accelerator, that every rank has.
    pub gpu: Gpu,
    /// GPUs that share a host.
    pub gpus_per_node: u32,
    /// Network levels, innermost first; the last reaches every rank.
    pub levels: Vec<NetworkLevel>,
    /// Bandwidth between a GPU and its host's memory, one direction, all GPUs of the node at once.
    #[serde(rename = "host_link_bandwidth_bytes_per_second")]
    pub host_link_bandwidth: BytesPerSecond,
    /// By what share kernels run slower while their GPU exchanges data, as collectives take some of its
    /// multiprocessors and of its memory bandwidth; absent: not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub communication_slowdown: Option<f64>,
    /// Where the numbers come from, by field.
    #[serde(default)]
    pub sources: BTreeMap<String, String>,
}

/// One accelerator, as a rank sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// The vendor's name.
    pub name: String,
    /// The family whose behaviour it shares.
    pub architecture: Architecture,
    /// Device memory that a process can use.
    #[serde(rename = "memory_bytes", deserialize_with = "memory_bytes")]
    pub memory: Bytes,
    /// Peak bandwidth of device memory.
    #[serde(rename = "memory_bandwidth_bytes_per_second")]
    pub memory_bandwidth: BytesPerSecond,
    /// Peak dense rate of matrix products by precision, without sparsity.
    #[serde(rename = "peak_flops_per_second")]
    pub peak: BTreeMap<Precision, FlopsPerSecond>,
    /// The most that large matrix products reach for as long as training lasts, where the GPU's power holds
    /// its clock below that of a short run; absent where that was not measured.
    #[serde(
        default,
        rename = "sustained_flops_per_second",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub sustained: BTreeMap<Precision, FlopsPerSecond>,
    /// Streaming multiprocessors or compute units; what a wave of tiles fills. Absent where the
    /// accelerator has no such thing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_multiprocessors: Option<u32>,
    /// Name of the fitted kernel rates that describe this GPU; absent: scaled from the nearest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_rates: Option<String>,
}

/// A domain of ranks with equal bandwidth between any two of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkLevel {
    /// What it is, such as `NVLink 4`.
    pub name: String,
    /// Ranks within one domain; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<u32>,
    /// Bandwidth of one GPU into this level, one direction, all GPUs at once.
    #[serde(rename = "bandwidth_bytes_per_second")]
    pub bandwidth: BytesPerSecond,
    /// Time of one step of a small message between two ranks.
    #[serde(rename = "latency_seconds")]
    pub latency: Seconds,
    /// Name of the fitted collective rates measured on this level; absent: latency and bandwidth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collective_rates: Option<String>,
}

/// A family of accelerators whose kernels and collectives behave alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// NVIDIA V100.
    Volta,
    /// NVIDIA A100 and A800.
    Ampere,
    /// NVIDIA L4, L40S and RTX 40.
    Ada,
    /// NVIDIA H100, H200, H800 and GH200.
    Hopper,
    /// NVIDIA B200, B300, GB200 and GB300.
    Blackwell,
    /// AMD MI200.
    Cdna2,
    /// AMD MI300X and MI325X.
    Cdna3,
    /// AMD MI355X.
    Cdna4,
    /// Google TPU.
    Tpu,
    /// AWS Trainium.
    Trainium,
    /// Intel Gaudi.
    Gaudi,
}

/// A number format that matrix products take as input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 32-bit floats, on the units for 32-bit floats.
    Fp32,
    /// IEEE half precision.
    Fp16,
    /// 16-bit floats with the range of `fp32`.
    Bf16,
    /// 8-bit floats; sums in higher precision.
    Fp8,
    /// 4-bit floats with a scale for each few elements (NVFP4, MXFP4); sums in higher precision.
    Fp4,
}

impl Precision {
    /// All, widest first.
    pub const ALL: [Self; 5] = [Self::Fp32, Self::Fp16, Self::Bf16, Self::Fp8, Self::Fp4];

    /// The bits of one input element of a matrix product.
    pub const fn input_bits(self) -> u64 {
        match self {
            Self::Fp32 => 32,
            Self::Fp16 | Self::Bf16 => 16,
            Self::Fp8 => 8,
            Self::Fp4 => 4,
        }
    }

    /// The bytes of an activation.
    pub const fn activation_bytes(self) -> u64 {
        self.activation().input_bits() / 8
    }

    /// The precision in which a step keeps its activations: itself, or bf16 for formats of 8 and 4 bits,
    /// which only linear layers use.
    #[must_use]
    pub const fn activation(self) -> Self {
        match self {
            Self::Fp8 | Self::Fp4 => Self::Bf16,
            other => other,
        }
    }

    /// Whether activations are cast to it for each product.
    pub fn is_cast(self) -> bool {
        self != self.activation()
    }

    /// The name in JSON and flags.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Fp16 => "fp16",
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
            Self::Fp4 => "fp4",
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Precision {
    type Err = ClusterError;

    fn from_str(text: &str) -> Result<Self, ClusterError> {
        Self::ALL
            .into_iter()
            .find(|precision| precision.name() == text)
            .ok_or_else(|| ClusterError::UnknownPrecision { name: text.to_owned() })
    }
}

/// Why a description of a cluster cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The text is not JSON, or not a cluster.
    #[error("cluster file, line {line}, column {column}: {message}")]
    Json {
        /// Line of the error, from one.
        line: usize,
        /// Column of the error, from one.
        column: usize,
        /// What serde found.
        message: String,
    },
    /// A rate, size or time is zero, negative or not finite.
    #[error("`{field}` is {value}, but must be {works}")]
    Unusable {
        /// The field's path.
        field: String,
        /// What it holds.
        value: String,
        /// What it could hold instead, with an example.
        works: &'static str,
    },
    /// Network levels do not widen outward.
    #[error(
        "`levels[{index}].ranks` is {ranks}, but level {} inside it already has {inner}; list levels innermost first, each with more ranks than the last",
        index - 1
    )]
    LevelsNotIncreasing {
        /// The offending level.
        index: usize,
        /// Its ranks.
        ranks: u32,
        /// The ranks of the level inside it.
        inner: u32,
    },
    /// No level connects every rank.
    #[error(
        "no level reaches all ranks: the last, `{name}`, ends at {ranks}; leave out its `ranks`, or add a level without `ranks`"
    )]
    NoOutermostLevel {
        /// The last level's name.
        name: String,
        /// Its ranks.
        ranks: u32,
    },
    /// Only the outermost level may reach all ranks.
    #[error("`levels[{index}]` reaches all ranks but is not the last; give it `ranks`, such as 8")]
    UnboundedInnerLevel {
        /// The offending level.
        index: usize,
    },
    /// The GPU has no rate for a precision.
    #[error("`{gpu}` has no peak rate for `{precision}`; it has {known}")]
    MissingPrecision {
        /// The GPU's name.
        gpu: String,
        /// The precision asked for.
        precision: Precision,
        /// The precisions that it has.
        known: String,
    },
    /// A name is none of the precisions.
    #[error("`{name}` is not a precision; `fp32`, `fp16`, `bf16`, `fp8` and `fp4` are")]
    UnknownPrecision {
        /// The name given.
        name: String,
    },
}

const POSITIVE: &str = "from 1 to 1e30, such as 4.5e11";
const NOT_NEGATIVE: &str = "from 0 to 3600 seconds, such as 5e-6";
const COUNT: &str = "at least 1, such as 8";

impl Cluster {
    /// Reads and checks a cluster's JSON.
    ///
    /// # Errors
    ///
    /// On broken JSON, unknown or missing fields, and values that no cluster can have.
    pub fn from_json(text: &str) -> Result<Self, ClusterError> {
        let cluster: Self = serde_json::from_str(text).map_err(|error| ClusterError::Json {
            line: error.line(),
            column: error.column(),
            message: without_position(&error.to_string()),
        })?;
        cluster.check()?;
        Ok(cluster)
    }

    /// Checks a cluster that was put together by hand.
    ///
    /// # Errors
    ///
    /// As for [`Self::from_json`].
    pub fn check(&self) -> Result<(), ClusterError> {
        check_count("gpus_per_node", self.gpus_per_node)?;
        check_positive("host_link_bandwidth_bytes_per_second", self.host_link_bandwidth.get())?;
        let slowdown = self.communication_slowdown.unwrap_or(0.0);
        if !(0.0..1.0).contains(&slowdown) {
            return Err(ClusterError::Unusable {
                field: "communication_slowdown".to_owned(),
                value: written(slowdown),
                works: "from 0 to below 1, such as 0.1",
            });
        }
        self.gpu.check()?;
        check_levels(&self.levels)
    }
}

impl Gpu {
    /// The peak dense rate in `precision`.
    ///
    /// # Errors
    ///
    /// Where the GPU has none, naming those that it has.
    pub fn peak(&self, precision: Precision) -> Result<FlopsPerSecond, ClusterError> {
        self.peak.get(&precision).copied().ok_or_else(|| ClusterError::MissingPrecision {
            gpu: self.name.clone(),
            precision,
            known: self.peak.keys().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", "),
        })
    }

    fn check(&self) -> Result<(), ClusterError> {
        check_positive("gpu.memory_bytes", self.memory.as_f64())?;
        check_positive("gpu.memory_bandwidth_bytes_per_second", self.memory_bandwidth.get())?;
        if let Some(count) = self.num_multiprocessors {
            check_count("gpu.num_multiprocessors", count)?;
        }
        if self.peak.is_empty() {
            return Err(ClusterError::Unusable {
                field: "gpu.peak_flops_per_second".to_owned(),
                value: "empty".to_owned(),
                works: "a rate for at least one precision, such as {\"bf16\": 9.89e14}",
            });
        }
        self.sustained.iter().try_for_each(|(precision, rate)| {
            check_positive(&format!("gpu.sustained_flops_per_second.{precision}"), rate.get())
        })?;
        self.peak.iter().try_for_each(|(precision, rate)| {
            check_positive(&format!("gpu.peak_flops_per_second.{precision}"), rate.get())
        })
    }
}

fn check_levels(levels: &[NetworkLevel]) -> Result<(), ClusterError> {
    let Some(last) = levels.last() else {
        return Err(ClusterError::Unusable {
            field: "levels".to_owned(),
            value: "empty".to_owned(),
            works: "a list of at least one level, the last without `ranks`",
        });
    };
    let mut inner = 0;
    for (index, level) in levels.iter().enumerate() {
        check_positive(
            &format!("levels[{index}].bandwidth_bytes_per_second"),
            level.bandwidth.get(),
        )?;
        let latency = level.latency.get();
        if !(0.0..=3600.0).contains(&latency) {
            let field = format!("levels[{index}].latency_seconds");
            return Err(ClusterError::Unusable {
                field,
                value: written(latency),
                works: NOT_NEGATIVE,
            });
        }
        match level.ranks {
            Some(ranks) => {
                check_count(&format!("levels[{index}].ranks"), ranks)?;
                if ranks <= inner {
                    return Err(ClusterError::LevelsNotIncreasing { index, ranks, inner });
                }
                inner = ranks;
            }
            None if index + 1 < levels.len() => {
                return Err(ClusterError::UnboundedInnerLevel { index });
            }
            None => {}
        }
    }
    match last.ranks {
        Some(ranks) => Err(ClusterError::NoOutermostLevel { name: last.name.clone(), ranks }),
        None => Ok(()),
    }
}

fn check_positive(field: &str, value: f64) -> Result<(), ClusterError> {
    if (1.0..=1e30).contains(&value) {
        return Ok(());
    }
    Err(ClusterError::Unusable { field: field.to_owned(), value: written(value), works: POSITIVE })
}

/// A number as a person would write it: 1e300 without its zeros.
fn written(value: f64) -> String {
    if value == 0.0 || (1e-6..1e15).contains(&value.abs()) {
        value.to_string()
    } else {
        format!("{value:e}")
    }
}

fn check_count(field: &str, value: u32) -> Result<(), ClusterError> {
    if value > 0 {
        return Ok(());
    }
    Err(ClusterError::Unusable { field: field.to_owned(), value: value.to_string(), works: COUNT })
}

/// Memory as a positive number of bytes; `8e10` is taken for 80000000000.
fn memory_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    let count = f64::deserialize(deserializer)?;
    // 2^63 bytes are 8 EiB, and the cast below is exact in range.
    if count >= 1.0 && count < f64::from(2u32).powi(63) {
        return Ok(Bytes::from_f64(count));
    }
    Err(serde::de::Error::custom(format!(
        "`gpu.memory_bytes` is {count}, but must be a positive number of bytes, such as 85899345920"
    )))
}

/// `serde_json` ends its message with the position, which the error already has.
fn without_position(message: &str) -> String {
    message.rsplit_once(" at line ").map_or(message, |(text, _)| text).to_owned()
}

#[cfg(test)]
mod tests;
