//! A cluster, ready to be asked for times.

use ir::cluster::{Cluster, Precision};
use ir::collective::Collective;
use ir::plan::Training;
use ir::units::{Bytes, FlopsPerSecond, Seconds};

use crate::kernels::Device;
use crate::{FrameworkRates, Group, Network};

/// A device and a network, and the precision of linear layers.
#[derive(Clone, Debug)]
pub struct Hardware {
    /// Kernels.
    pub device: Device,
    /// Collectives.
    pub network: Network,
    /// The precision of linear layers.
    pub precision: Precision,
    /// Whether gradients of parameters are accumulated in fp32.
    pub fp32_gradients: bool,
    /// What runs the step.
    pub framework: FrameworkRates,
    /// The rate of that precision by the data sheet.
    pub peak: FlopsPerSecond,
    /// What fits on a GPU.
    pub memory: Bytes,
    /// Ranks of the innermost network domain.
    pub domain: u32,
    /// By what share kernels run slower while their GPU exchanges data.
    pub communication_slowdown: f64,
}

impl Hardware {
    /// The GPUs and links of `cluster`; `None` if they do not have the precision of `training`.
    pub fn new(cluster: &Cluster, training: &Training) -> Option<Self> {
        let Training { precision, fp32_gradients, framework, .. } = *training;
        let framework = FrameworkRates::of(framework);
        let device = Device::for_training(&cluster.gpu, framework.attention);
        Some(Self {
            device,
            network: Network::new(cluster),
            precision,
            fp32_gradients,
            framework,
            peak: *cluster.gpu.peak.get(&precision)?,
            memory: cluster.gpu.memory,
            domain: cluster.levels.first().and_then(|level| level.ranks).unwrap_or(u32::MAX),
            communication_slowdown: cluster.communication_slowdown.unwrap_or(0.0),
        })
    }

    /// By how much kernels run slower while their GPU exchanges data, in thousandths of their rate.
    pub fn slowdown_per_mille(&self) -> u32 {
        (self.communication_slowdown * 1000.0).round() as u32
    }

    /// Time for each rank of a chain to send `bytes` to the next: the message that crosses the outermost
    /// level is the slowest.
    pub fn to_neighbour(&self, group: Group, bytes: Bytes) -> Seconds {
        if group.size < 2 {
            return Seconds::ZERO;
        }
        let ends = Group { size: 2, stride: group.stride * (group.size - 1) };
        self.network.time(Collective::SendReceive, ends, bytes)
    }
}
