//! GPUs, nodes and the network between them.
//!
//! A cluster is checked before it is used: every rate is positive and finite, network levels widen outward and the
//! outermost level reaches every rank.

mod error;
mod groups;
mod measured;
mod precision;

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use crate::collective::Collective;
use crate::text::json;
use crate::units::{Bytes, BytesPerSecond, FlopsPerSecond, Seconds};
use error::{Bounds, written};

pub use error::ClusterError;
pub use measured::{
    AttentionTime, KernelTimes, MeasuredCollective, MeasuredKernels, MeasuredPasses, MeasuredTime,
    MemoryTime, ProductTime, Times,
};
pub use precision::Precision;

/// The GPU, the node, and the network levels, innermost first. With [groups](Self::groups), all three are those of the
/// first group; the levels then also include those that join the groups.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// The name that `--cluster` takes, or the file's own.
    #[serde(deserialize_with = "crate::text::name")]
    pub name: String,
    /// Description in one sentence.
    pub description: String,
    /// Position and names in the list of built-in clusters; not part of the cluster.
    #[serde(default, skip_serializing)]
    pub preset: IgnoredAny,
    /// The GPU, or other accelerator, that every rank has.
    pub gpu: Gpu,
    /// Number of GPUs that share a host.
    pub gpus_per_node: u32,
    /// Network levels, innermost first; the last reaches every rank.
    pub levels: Vec<NetworkLevel>,
    /// Bandwidth between a GPU and its host's memory, one direction, with all GPUs of the node active.
    #[serde(rename = "host_link_bandwidth_bytes_per_second")]
    pub host_link_bandwidth: BytesPerSecond,
    /// Memory of a node's host, separate from that of its GPUs; absent: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// Names of the nodes, in the order of their ranks; empty where they are not known. A plan states them
    /// outside of its cluster.
    #[serde(default, skip_serializing)]
    pub hosts: Vec<String>,
    /// Fraction by which kernels run slower while their GPU communicates, as collectives occupy some of its
    /// multiprocessors and memory bandwidth; absent: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub communication_slowdown: Option<f64>,
    /// Groups of nodes of one kind, in the order of the ranks, where nodes are of several kinds; else empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<NodeGroup>,
    /// Sources of the numbers, by field.
    #[serde(default)]
    pub sources: BTreeMap<String, String>,
}

/// Nodes of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeGroup {
    /// Number of nodes.
    pub nodes: u32,
    /// GPU, node and network of the group by itself.
    pub cluster: Cluster,
}

impl NodeGroup {
    /// Number of GPUs in the group.
    pub fn num_gpus(&self) -> u32 {
        self.nodes.saturating_mul(self.cluster.gpus_per_node)
    }
}

/// Host memory that the GPUs of a node share.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Memory of a node, in bytes.
    #[serde(rename = "memory_bytes", deserialize_with = "host_memory_bytes")]
    pub memory: Bytes,
    /// Peak bandwidth of the host's memory, all sockets together.
    #[serde(rename = "memory_bandwidth_bytes_per_second")]
    pub memory_bandwidth: BytesPerSecond,
}

/// One accelerator, as a rank sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// The vendor's name.
    #[serde(deserialize_with = "crate::text::name")]
    pub name: String,
    /// Family of GPUs with the same behaviour.
    pub architecture: Architecture,
    /// Device memory that a process can use, in bytes.
    #[serde(rename = "memory_bytes", deserialize_with = "memory_bytes")]
    pub memory: Bytes,
    /// Peak bandwidth of device memory.
    #[serde(rename = "memory_bandwidth_bytes_per_second")]
    pub memory_bandwidth: BytesPerSecond,
    /// Peak dense rate of matrix products by precision, without sparsity.
    #[serde(rename = "peak_flops_per_second")]
    pub peak: BTreeMap<Precision, FlopsPerSecond>,
    /// Rate that large matrix products sustain during training, where power keeps the clock below that of a short run;
    /// absent where not measured.
    #[serde(
        default,
        rename = "sustained_flops_per_second",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub sustained: BTreeMap<Precision, FlopsPerSecond>,
    /// Number of streaming multiprocessors or compute units, which a wave of tiles fills. Absent where the accelerator
    /// has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_multiprocessors: Option<u32>,
    /// Maximum power of the GPU (board or thermal design power), in watts; absent where its vendor publishes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_watts: Option<f64>,
    /// Name of the fitted kernel rates of this GPU; absent: those of the nearest GPU, scaled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_rates: Option<String>,
    /// Kernel times measured on this very machine with the executor; they take precedence over rates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<MeasuredKernels>,
}

/// A domain of ranks with equal bandwidth between any two of them.
///
/// In a mesh, a rank's bandwidth is the sum over its links to all others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkLevel {
    /// Name of the level, such as `NVLink 4`.
    #[serde(deserialize_with = "crate::text::name")]
    pub name: String,
    /// Number of ranks in one domain; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<u32>,
    /// Bandwidth of one GPU into this level, one direction, with all GPUs active.
    #[serde(rename = "bandwidth_bytes_per_second")]
    pub bandwidth: BytesPerSecond,
    /// Number of network interfaces that the GPUs of a node share; absent: one for each GPU. Only topologies read it:
    /// `bandwidth` is already that of one GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interfaces_per_node: Option<u32>,
    /// Wiring of the ranks; absent: through switches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wiring: Option<Wiring>,
    /// Latency of one step of a small message between two ranks.
    #[serde(rename = "latency_seconds")]
    pub latency: Seconds,
    /// Time to start a collective and synchronize with the other ranks, in addition to its steps. Where it is given,
    /// bandwidth and latency were measured with collectives on this level, not taken from a data sheet; absent: NCCL's
    /// time.
    #[serde(default, rename = "start_seconds", skip_serializing_if = "Option::is_none")]
    pub start: Option<Seconds>,
    /// Name of the fitted collective rates measured on this level; absent: computed from latency and bandwidth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collective_rates: Option<String>,
    /// Collectives measured on this very level; the others follow from latency and bandwidth.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub measured: BTreeMap<Collective, MeasuredCollective>,
}

/// Wiring of the ranks of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Wiring {
    /// Through switches: a rank's whole bandwidth can go to any other rank.
    Switched,
    /// All to all: each link to another rank has a part of a rank's bandwidth, so that communication with a few ranks
    /// uses only the bandwidth of the links to these.
    Mesh,
}

/// A family of accelerators whose kernels and collectives behave alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// Cores of a host's processor.
    Cpu,
}

/// Hardware vendor or kind, as far as software is written for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Platform {
    /// NVIDIA's GPUs.
    Nvidia,
    /// AMD's GPUs.
    Amd,
    /// Google's TPUs.
    Tpu,
    /// AWS's Trainium.
    Trainium,
    /// Intel's Gaudi.
    Gaudi,
    /// A host's processor.
    Cpu,
}

impl Platform {
    /// Name of the platform in a sentence.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Nvidia => "NVIDIA GPUs",
            Self::Amd => "AMD GPUs",
            Self::Tpu => "TPUs",
            Self::Trainium => "Trainium",
            Self::Gaudi => "Gaudi",
            Self::Cpu => "CPUs",
        }
    }
}

impl Architecture {
    /// Platform of the architecture.
    pub const fn platform(self) -> Platform {
        match self {
            Self::Volta | Self::Ampere | Self::Ada | Self::Hopper | Self::Blackwell => {
                Platform::Nvidia
            }
            Self::Cdna2 | Self::Cdna3 | Self::Cdna4 => Platform::Amd,
            Self::Tpu => Platform::Tpu,
            Self::Trainium => Platform::Trainium,
            Self::Gaudi => Platform::Gaudi,
            Self::Cpu => Platform::Cpu,
        }
    }
}

impl Cluster {
    /// Reads and checks a cluster's JSON.
    ///
    /// # Errors
    ///
    /// On broken JSON, unknown or missing fields, and values that no cluster can have.
    pub fn from_json(text: &str) -> Result<Self, ClusterError> {
        let cluster: Self = json::read(text).map_err(ClusterError::Json)?;
        cluster.check()?;
        Ok(cluster)
    }

    /// The cluster for a job that uses `gpus` GPUs of each node, from 1 to all. Network domains keep their number of
    /// nodes; the host is not divided.
    #[must_use]
    pub fn with_gpus_per_node(mut self, gpus: u32) -> Self {
        let node = self.gpus_per_node.max(1);
        let mut inner = 1;
        self.levels.retain_mut(|level| {
            let Some(ranks) = level.ranks else { return true };
            let own = if ranks < node { ranks.min(gpus) } else { ranks / node * gpus };
            level.ranks = Some(own);
            // A level with no more GPUs than the level inside it connects nothing.
            let is_wider = own > inner;
            inner = inner.max(own);
            is_wider
        });
        self.gpus_per_node = gpus;
        self
    }

    /// Checks a cluster that was not read from JSON.
    ///
    /// # Errors
    ///
    /// As for [`Self::from_json`].
    pub fn check(&self) -> Result<(), ClusterError> {
        Bounds::COUNT.check("gpus_per_node", self.gpus_per_node.into())?;
        let field = "host_link_bandwidth_bytes_per_second";
        Bounds::BYTES_PER_SECOND.check(field, self.host_link_bandwidth.get())?;
        if let Some(host) = &self.host {
            Bounds::BYTES.check("host.memory_bytes", host.memory.as_f64())?;
            let field = "host.memory_bandwidth_bytes_per_second";
            Bounds::BYTES_PER_SECOND.check(field, host.memory_bandwidth.get())?;
        }
        let slowdown = self.communication_slowdown.unwrap_or(0.0);
        if !(0.0..1.0).contains(&slowdown) {
            let works = "from 0 to below 1, such as 0.1";
            return Err(ClusterError::unusable("communication_slowdown", written(slowdown), works));
        }
        self.gpu.check()?;
        self.check_groups()?;
        check_levels(&self.levels)
    }
}

impl Gpu {
    fn check(&self) -> Result<(), ClusterError> {
        Bounds::BYTES.check("gpu.memory_bytes", self.memory.as_f64())?;
        let field = "gpu.memory_bandwidth_bytes_per_second";
        Bounds::BYTES_PER_SECOND.check(field, self.memory_bandwidth.get())?;
        if let Some(watts) = self.power_watts {
            Bounds::WATTS.check("gpu.power_watts", watts)?;
        }
        if let Some(count) = self.num_multiprocessors {
            Bounds::COUNT.check("gpu.num_multiprocessors", count.into())?;
        }
        if let Some(measured) = &self.measured {
            measured.check("gpu.measured")?;
        }
        if self.peak.is_empty() {
            let works = "a rate for at least one precision, such as {\"bf16\": 9.89e14}";
            return Err(ClusterError::unusable("gpu.peak_flops_per_second", "empty", works));
        }
        self.sustained.iter().try_for_each(|(precision, rate)| {
            let field = format!("gpu.sustained_flops_per_second.{precision}");
            Bounds::FLOPS_PER_SECOND.check(&field, rate.get())
        })?;
        self.peak.iter().try_for_each(|(precision, rate)| {
            let field = format!("gpu.peak_flops_per_second.{precision}");
            Bounds::FLOPS_PER_SECOND.check(&field, rate.get())
        })
    }
}

fn check_levels(levels: &[NetworkLevel]) -> Result<(), ClusterError> {
    let Some(last) = levels.last() else {
        let works = "a list of at least one level, the last without `ranks`";
        return Err(ClusterError::unusable("levels", "empty", works));
    };
    let mut inner = 0;
    for (index, level) in levels.iter().enumerate() {
        let field = format!("levels[{index}].bandwidth_bytes_per_second");
        Bounds::BYTES_PER_SECOND.check(&field, level.bandwidth.get())?;
        Bounds::LATENCY.check(&format!("levels[{index}].latency_seconds"), level.latency.get())?;
        if let Some(start) = level.start {
            Bounds::SECONDS.check(&format!("levels[{index}].start_seconds"), start.get())?;
        }
        if let Some(interfaces) = level.interfaces_per_node {
            let field = format!("levels[{index}].interfaces_per_node");
            Bounds::COUNT.check(&field, interfaces.into())?;
        }
        for (collective, measured) in &level.measured {
            measured.check(&format!("levels[{index}].measured.{}", collective.name()))?;
        }
        // The distance between ranks in a mesh of domains has no description here.
        if level.wiring == Some(Wiring::Mesh) && (index > 0 || level.ranks.is_none_or(|it| it < 2))
        {
            let works =
                "`switched`, or absent, for all but the innermost level with `ranks` from 2";
            return Err(ClusterError::unusable(format!("levels[{index}].wiring"), "`mesh`", works));
        }
        match level.ranks {
            Some(ranks) => {
                Bounds::COUNT.check(&format!("levels[{index}].ranks"), ranks.into())?;
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

/// Deserializes the memory of a GPU.
fn memory_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    bytes_of("gpu.memory_bytes", deserializer)
}

/// Deserializes the memory of a node.
fn host_memory_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    bytes_of("host.memory_bytes", deserializer)
}

/// Memory as a positive number of bytes; `8e10` is read as 80000000000.
fn bytes_of<'de, D: Deserializer<'de>>(
    field: &'static str,
    deserializer: D,
) -> Result<Bytes, D::Error> {
    let count = f64::deserialize(deserializer)?;
    // 2^63 bytes are 8 EiB, and the cast below is exact in range.
    if count >= 1.0 && count < f64::from(2u32).powi(63) {
        return Ok(Bytes::from_f64(count));
    }
    Err(serde::de::Error::custom(format!(
        "`{field}` is {count}, but must be a positive number of bytes, such as 85899345920"
    )))
}

#[cfg(test)]
mod tests;
