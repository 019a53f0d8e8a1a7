//! Groups of consecutive ranks, each with hardware of its own.

use std::sync::Arc;

use cost_models::{Hardware, StridedGroup};
use ir::cluster::{Cluster, NodeGroup};
use ir::collective::Collective;
use ir::layout::common_divisor;
use ir::units::{Bytes, Seconds};

/// Consecutive ranks with GPUs of one kind.
#[derive(Clone, Debug)]
pub struct GpuGroup {
    /// Name of the group's cluster.
    pub name: String,
    /// Hardware of the group, with the network up to the other groups.
    pub hardware: Hardware,
    /// Number of its GPUs.
    pub num_gpus: u32,
    /// Memory of one of its GPUs that a plan may use by prediction.
    pub memory_budget: Bytes,
}

/// The groups of a problem, in the order of the ranks, and the cluster to which they belong.
#[derive(Clone, Debug)]
pub struct GpuGroups {
    /// The groups.
    pub all: Vec<GpuGroup>,
    /// The cluster, with exactly these nodes.
    pub cluster: Arc<Cluster>,
    /// False where only pipelines through the groups are considered.
    pub(super) have_replicas: bool,
}

/// The groups of GPUs in which the replicas of a step lie, as seen from the replicas of one group.
#[derive(Clone, Debug)]
pub struct ReplicasByGroup {
    all: Arc<[GpuGroup]>,
    own: usize,
}

impl ReplicasByGroup {
    /// Number of ranks in a group, of `ranks` in all groups.
    fn ranks_of(&self, group: &GpuGroup, ranks: u32) -> u32 {
        let all: u64 = self.all.iter().map(|group| u64::from(group.num_gpus)).sum();
        (u64::from(ranks) * u64::from(group.num_gpus) / all) as u32
    }

    /// The pipeline ranks of a replica of the own group, given `ranks` for all groups together: a pipeline lies within
    /// its group.
    pub(crate) fn pipeline(&self, ranks: StridedGroup) -> StridedGroup {
        StridedGroup { stride: self.ranks_of(&self.all[self.own], ranks.stride).max(1), ..ranks }
    }

    /// Time of a collective over replicas of all groups: at the speed of the slowest of their links.
    pub(crate) fn time(
        &self,
        collective: Collective,
        group: StridedGroup,
        bytes: Bytes,
    ) -> Seconds {
        self.slowest(|of| {
            let own = self.ranks_of(of, group.size).max(1);
            of.hardware.network.time_beyond(collective, group, (of.num_gpus, own), bytes)
        })
    }

    /// The longest time of any group.
    pub(crate) fn slowest(&self, time: impl Fn(&GpuGroup) -> Seconds) -> Seconds {
        self.all.iter().map(time).max_by(|a, b| a.get().total_cmp(&b.get())).unwrap_or_default()
    }
}

impl GpuGroups {
    /// The groups, for the replicas of one of them.
    pub(super) fn of_replicas(&self, own: usize) -> ReplicasByGroup {
        ReplicasByGroup { all: self.all.clone().into(), own }
    }

    /// The groups of a cluster, with hardware made by `hardware`; `None` where its GPUs are alike.
    pub(super) fn new<E>(
        cluster: &Cluster,
        hardware: impl Fn(&Cluster) -> Result<Hardware, E>,
    ) -> Result<Option<Self>, E> {
        let group = |group: &NodeGroup| -> Result<GpuGroup, E> {
            let num_gpus = group.num_gpus();
            let hardware = hardware(&cluster.of_group(group))?.among(num_gpus);
            let (name, memory_budget) = (group.cluster.name.clone(), hardware.memory);
            Ok(GpuGroup { name, hardware, num_gpus, memory_budget })
        };
        if !cluster.has_unlike_gpus() {
            return Ok(None);
        }
        let all = cluster.groups.iter().map(group).collect::<Result<_, _>>()?;
        Ok(Some(Self { all, cluster: Arc::new(cluster.clone()), have_replicas: true }))
    }

    /// The largest number of GPUs per pipeline rank with which each pipeline rank lies within one group.
    pub(super) fn most_of_a_rank(&self) -> u32 {
        let gpus = self.all.iter().map(|group| u64::from(group.num_gpus));
        gpus.fold(0, common_divisor) as u32
    }

    /// True if each pipeline rank of `stride` GPUs lies within one group.
    pub(super) fn hold_ranks_of(&self, stride: u32) -> bool {
        self.all.iter().all(|group| group.num_gpus.is_multiple_of(stride))
    }
}
