//! GPUs of several kinds: groups of consecutive ranks, each with hardware of its own.

use std::sync::Arc;

use cost_models::Hardware;
use ir::cluster::{Cluster, NodeGroup};
use ir::framework::Framework;
use ir::layout::{Layout, LayoutError, LayoutSpec};
use ir::plan::Training;
use ir::units::{Bytes, FlopsPerSecond};

use super::{Problem, ProblemError, hardware};
use crate::step::PipelineRanks;

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
    /// The groups of a cluster; `None` where its GPUs are alike.
    pub(super) fn new(
        cluster: &Cluster,
        framework: &Framework,
        training: &Training,
    ) -> Result<Option<Self>, ProblemError> {
        let group = |group: &NodeGroup| -> Result<GpuGroup, ProblemError> {
            let mut hardware = hardware(&cluster.of_group(group), framework.clone(), training)?;
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
    fn most_of_a_rank(&self) -> u32 {
        let divisor = |mut one: u32, mut other: u32| {
            while other > 0 {
                (one, other) = (other, one % other);
            }
            one
        };
        self.all.iter().map(|group| group.num_gpus).fold(0, divisor)
    }

    /// True if each pipeline rank of `stride` GPUs lies within one group.
    fn hold_ranks_of(&self, stride: u32) -> bool {
        self.all.iter().all(|group| group.num_gpus.is_multiple_of(stride))
    }
}

impl Problem {
    /// Number of kinds of GPUs.
    pub fn num_groups(&self) -> usize {
        self.groups.as_ref().map_or(1, |groups| groups.all.len())
    }

    /// Hardware of a group.
    pub fn hardware_of(&self, group: usize) -> &Hardware {
        self.groups.as_ref().map_or(&self.hardware, |groups| &groups.all[group].hardware)
    }

    /// All hardware, to change a constant of each.
    pub(crate) fn all_hardware_mut(&mut self) -> impl Iterator<Item = &mut Hardware> {
        let groups = self.groups.iter_mut().flat_map(|groups| &mut groups.all);
        std::iter::once(&mut self.hardware).chain(groups.map(|group| &mut group.hardware))
    }

    /// Memory of a GPU of a group that a plan may use by prediction.
    pub fn room_of(&self, group: usize) -> Bytes {
        self.groups.as_ref().map_or(self.room, |groups| groups.all[group].room)
    }

    /// Memory of the smallest GPU.
    pub fn least_memory(&self) -> Bytes {
        let all = (0..self.num_groups()).map(|group| self.hardware_of(group).memory);
        all.min().unwrap_or_default()
    }

    /// The most memory that a plan may use on any GPU.
    pub(crate) fn most_room(&self) -> Bytes {
        (0..self.num_groups()).map(|group| self.room_of(group)).max().unwrap_or_default()
    }

    /// Group of a pipeline rank, in whose GPUs all its replicas and shards lie.
    pub(crate) fn group_of(&self, ranks: &PipelineRanks, rank: usize) -> usize {
        let Some(groups) = &self.groups else { return 0 };
        let first = ranks.group.stride * rank as u32;
        let mut end = 0;
        let within = groups.all.iter().position(|group| {
            end += group.num_gpus;
            first < end
        });
        within.expect("a layout has as many ranks as the groups have GPUs")
    }

    /// Number of pipeline ranks in each group, in a layout with `stride` GPUs in a pipeline rank.
    pub(crate) fn ranks_of_groups(&self, stride: u32, num_ranks: u32) -> Vec<u32> {
        match &self.groups {
            None => vec![num_ranks],
            Some(groups) => groups.all.iter().map(|group| group.num_gpus / stride).collect(),
        }
    }

    /// The problem with the hardware and the room of one pipeline rank's GPUs.
    #[must_use]
    pub fn at_rank(&self, layout: &Layout, rank: usize) -> Self {
        let group = self.group_of(&PipelineRanks::of(layout), rank);
        let (hardware, room) = (self.hardware_of(group).clone(), self.room_of(group));
        Self { hardware, room, ..self.clone() }
    }

    /// Checks that each pipeline rank of a layout lies within one group, and that stages go round them.
    ///
    /// # Errors
    ///
    /// [`LayoutError::GroupsUndivided`], with what would work.
    pub(crate) fn check_groups(&self, layout: &LayoutSpec) -> Result<(), LayoutError> {
        let Some(groups) = &self.groups else { return Ok(()) };
        let pipeline_parallel = layout.pipeline_parallel;
        if groups.hold_ranks_of(self.limits.num_gpus / pipeline_parallel.max(1)) {
            return Ok(());
        }
        let gpus = groups.all.iter().map(|group| group.num_gpus).collect();
        let works = groups.most_of_a_rank();
        Err(LayoutError::GroupsUndivided { pipeline_parallel, gpus, works })
    }

    /// Names of the groups of each pipeline rank of a layout; `None` where GPUs are alike.
    pub fn groups_of_ranks(&self, layout: &Layout) -> Option<Vec<String>> {
        let groups = self.groups.as_ref()?;
        let ranks = PipelineRanks::of(layout);
        let name = |rank| groups.all[self.group_of(&ranks, rank)].name.clone();
        Some((0..layout.pipeline_parallel as usize).map(name).collect())
    }

    /// Peak rate of all GPUs together.
    pub fn peak_of_all(&self) -> FlopsPerSecond {
        match &self.groups {
            None => self.hardware.peak * f64::from(self.limits.num_gpus),
            Some(groups) => groups
                .all
                .iter()
                .map(|group| group.hardware.peak * f64::from(group.num_gpus))
                .fold(FlopsPerSecond::new(0.0), |sum, peak| {
                    FlopsPerSecond::new(sum.get() + peak.get())
                }),
        }
    }

    /// The problem on these nodes instead.
    ///
    /// # Errors
    ///
    /// [`ProblemError`] where it cannot be posed there.
    pub fn on_cluster(&self, cluster: &Cluster, num_gpus: u32) -> Result<Self, ProblemError> {
        let Self { graph, training, hardware, vocabulary_parallel, .. } = self.clone();
        let problem = Self::new(graph, training, cluster, hardware.framework, num_gpus)?;
        let problem = problem.with_documents(self.sequences.clone().map(|it| it.documents))?;
        let problem = problem.with_headroom(self.headroom());
        let (stages, expert_load) = (self.stages.clone(), self.expert_load.clone());
        Ok(Self { vocabulary_parallel, stages, expert_load, ..problem })
    }
}
