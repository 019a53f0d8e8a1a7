//! Hardware of a cluster with a framework, for times of kernels and messages.

use ir::cluster::{Architecture, Cluster, Host, Precision};
use ir::framework::Framework;
use ir::plan::Training;
use ir::units::{Bytes, BytesPerSecond, FlopsPerSecond, Seconds};

use crate::kernels::Device;
use crate::{Network, StridedGroup};

/// A device, a network and a framework, with the precision of linear layers.
#[derive(Clone, Debug, PartialEq)]
pub struct Hardware {
    /// Times of kernels.
    pub device: Device,
    /// Times of collectives.
    pub network: Network,
    /// The precision of linear layers.
    pub precision: Precision,
    /// True if gradients of parameters are accumulated in fp32.
    pub fp32_gradients: bool,
    /// The framework that runs the step.
    pub framework: Framework,
    /// Peak rate of that precision by the data sheet.
    pub peak: FlopsPerSecond,
    /// The GPU's family.
    pub architecture: Architecture,
    /// Memory of a GPU.
    pub memory: Bytes,
    /// A GPU's share of its host with all GPUs of the node in use; `None` if the host is unknown.
    pub host: Option<HostShare>,
    /// Number of ranks in the innermost network domain.
    pub domain: u32,
    /// Share of their rate that kernels lose while their GPU communicates.
    pub communication_slowdown: f64,
}

/// A host, shared evenly among a number of GPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostShare {
    host: Host,
    num_gpus: u32,
    link: BytesPerSecond,
}

/// Share of the host memory's peak bandwidth that an update reaches.
///
/// # Source
///
/// Ren et al. 2021, *ZeRO-Offload* (arXiv 2101.06840), table 4: CPU-Adam takes 0.22, 0.51, 1.03, 2.41 and 2.57 s for
/// 1, 2, 4, 8 and 10 billion parameters on a DGX-2, whose 12 channels of DDR4-2666 have 256 GB/s. It touches 30 B for
/// each parameter: 4 of the gradient; master weight and moments, read and written; 2 of the weight. That is 39 to 53 %
/// of the peak, 46 % in the median.
const HOST_EFFICIENCY: f64 = 0.46;

impl HostShare {
    /// Host memory of a GPU's share.
    pub fn memory(&self) -> Bytes {
        Bytes::new(self.host.memory.get() / u64::from(self.num_gpus))
    }

    /// The share where `num_gpus` GPUs are in use, on as few hosts as possible.
    #[must_use]
    fn among(self, num_gpus: u32) -> Self {
        Self { num_gpus: self.num_gpus.min(num_gpus.max(1)), ..self }
    }

    /// Time to copy `bytes` in one direction.
    pub fn copy(&self, bytes: Bytes) -> Seconds {
        bytes / self.link
    }

    /// Time of an update that reads and writes `touched` bytes.
    pub fn update(&self, touched: Bytes) -> Seconds {
        touched / (self.host.memory_bandwidth * (HOST_EFFICIENCY / f64::from(self.num_gpus)))
    }
}

impl Hardware {
    /// Hardware of `cluster` with `framework`; `None` if its GPUs lack the precision of `training`.
    pub fn new(cluster: &Cluster, framework: Framework, training: &Training) -> Option<Self> {
        let Training { precision, fp32_gradients, .. } = *training;
        let device = Device::of(&cluster.gpu, &framework);
        Some(Self {
            device,
            network: Network::new(cluster),
            precision,
            fp32_gradients,
            framework,
            peak: *cluster.gpu.peak.get(&precision)?,
            architecture: cluster.gpu.architecture,
            memory: cluster.gpu.memory,
            host: cluster.host.map(|host| HostShare {
                host,
                num_gpus: cluster.gpus_per_node,
                link: cluster.host_link_bandwidth,
            }),
            domain: cluster.levels.first().and_then(|level| level.ranks).unwrap_or(u32::MAX),
            communication_slowdown: cluster.communication_slowdown.unwrap_or(0.0),
        })
    }

    /// The hardware within a job of `num_gpus` GPUs, which share their hosts and wait for the slowest.
    #[must_use]
    pub fn among(mut self, num_gpus: u32) -> Self {
        self.device.take_slowest_of(num_gpus);
        let host = self.host.map(|host| host.among(num_gpus));
        Self { host, network: self.network.among(num_gpus), ..self }
    }

    /// Time outside of passes in which a step waits for the host.
    pub fn host_time_of_step(&self) -> Seconds {
        let milliseconds = self.framework.host.milliseconds_per_step * self.device.training.host;
        Seconds::new(milliseconds * 1e-3)
    }

    /// Slowdown of kernels while their GPU communicates, in thousandths of their rate.
    pub fn slowdown_per_mille(&self) -> u32 {
        (self.communication_slowdown * 1000.0).round() as u32
    }

    /// Time for each rank of a chain, or of a ring, to send `bytes` to the next rank: that of the slowest message, over
    /// the outermost level.
    pub fn to_neighbour(&self, group: StridedGroup, bytes: Bytes) -> Seconds {
        if group.size < 2 {
            return Seconds::ZERO;
        }
        self.network.to_neighbour(group, bytes)
    }
}
