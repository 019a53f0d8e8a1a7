//! Groups of consecutive ranks, each with hardware of its own.

use std::sync::Arc;

use cost_models::Hardware;
use ir::cluster::{Cluster, NodeGroup};
use ir::units::Bytes;

/// Consecutive ranks with GPUs of one kind.
#[derive(Clone, Debug)]
pub struct GpuGroup {
    /// Name of the group's cluster.
    pub name: String,
    /// Its hardware, with the network as far as the other groups.
    pub hardware: Hardware,
    /// Number of its GPUs.
    pub num_gpus: u32,
    /// Memory of one of its GPUs that a plan may use by prediction.
    pub room: Bytes,
}

/// The groups of a problem, in the order of the ranks, and the cluster that they are of.
#[derive(Clone, Debug)]
pub struct GpuGroups {
    /// The groups.
    pub all: Vec<GpuGroup>,
    /// The cluster, of exactly these nodes.
    pub cluster: Arc<Cluster>,
}

impl GpuGroups {
    /// The groups of a cluster, with hardware made by `hardware`; `None` where its GPUs are alike.
    pub(super) fn new<E>(
        cluster: &Cluster,
        hardware: impl Fn(&Cluster) -> Result<Hardware, E>,
    ) -> Result<Option<Self>, E> {
        let group = |group: &NodeGroup| -> Result<GpuGroup, E> {
            let mut hardware = hardware(&cluster.of_group(group))?;
            let num_gpus = group.num_gpus();
            hardware.host = hardware.host.map(|host| host.among(num_gpus));
            let (name, room) = (group.cluster.name.clone(), hardware.memory);
            Ok(GpuGroup { name, hardware, num_gpus, room })
        };
        if !cluster.has_unlike_gpus() {
            return Ok(None);
        }
        let all = cluster.groups.iter().map(group).collect::<Result<_, _>>()?;
        Ok(Some(Self { all, cluster: Arc::new(cluster.clone()) }))
    }

    /// The largest number of GPUs of a pipeline rank with which each lies within one group.
    pub(super) fn most_of_a_rank(&self) -> u32 {
        let divisor = |mut one: u32, mut other: u32| {
            while other > 0 {
                (one, other) = (other, one % other);
            }
            one
        };
        self.all.iter().map(|group| group.num_gpus).fold(0, divisor)
    }

    /// True if each pipeline rank of `stride` GPUs lies within one group.
    pub(super) fn hold_ranks_of(&self, stride: u32) -> bool {
        self.all.iter().all(|group| group.num_gpus.is_multiple_of(stride))
    }
}
