//! Problems on GPUs of several kinds.

use cost_models::{Hardware, StridedGroup};
use ir::cluster::Cluster;
use ir::layout::{Layout, LayoutError, LayoutSpec, MOST_GROUPS};
use ir::replication::DataParallelMethod;
use ir::units::{Bytes, FlopsPerSecond};

use super::{Problem, ProblemError};
use crate::step::PipelineRanks;

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
    pub fn memory_budget_of(&self, group: usize) -> Bytes {
        self.groups.as_ref().map_or(self.memory_budget, |groups| groups.all[group].memory_budget)
    }

    /// Hardware of each group.
    pub fn all_hardware(&self) -> impl Iterator<Item = &Hardware> {
        (0..self.num_groups()).map(|group| self.hardware_of(group))
    }

    /// Hardware of the GPUs with least memory.
    pub(crate) fn smallest_hardware(&self) -> &Hardware {
        self.all_hardware().min_by_key(|hardware| hardware.memory).unwrap_or(&self.hardware)
    }

    /// Memory of the smallest GPU.
    pub fn least_memory(&self) -> Bytes {
        self.smallest_hardware().memory
    }

    /// The most memory that a plan may use on any GPU.
    pub(crate) fn largest_memory_budget(&self) -> Bytes {
        (0..self.num_groups()).map(|group| self.memory_budget_of(group)).max().unwrap_or_default()
    }

    /// Group of a pipeline rank: the group in whose GPUs all replicas and shards of the rank lie.
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

    /// The problem with the hardware and the memory budget of one pipeline rank's GPUs.
    #[must_use]
    pub fn at_rank(&self, layout: &Layout, rank: usize) -> Self {
        let group = self.groups_of_ranks(layout)[rank];
        let (hardware, budget) = (self.hardware_of(group).clone(), self.memory_budget_of(group));
        Self { hardware, memory_budget: budget, ..self.clone() }
    }

    /// The problem of the replicas that lie in a group, as if the replicas of all groups had shares as large as theirs.
    #[must_use]
    pub(crate) fn of_group(&self, group: usize) -> Self {
        let Some(groups) = &self.groups else { return self.clone() };
        let (hardware, memory_budget) =
            (self.hardware_of(group).clone(), self.memory_budget_of(group));
        let replica_groups = Some(groups.of_replicas(group));
        let mut limits = self.limits.clone();
        limits.gpus_by_group.clear();
        Self { hardware, memory_budget, limits, groups: None, replica_groups, ..self.clone() }
    }

    /// The problems of the replicas in each group; none where replicas cannot lie in groups.
    pub(crate) fn of_groups(&self) -> Vec<Self> {
        let groups = if self.supports_replica_groups() { self.num_groups() } else { 0 };
        (0..groups).map(|group| self.of_group(group)).collect()
    }

    /// Ranks of a pipeline. Where replicas lie in groups, its ranks are closer to each other than if they spanned all
    /// groups.
    pub(crate) fn pipeline(&self, ranks: StridedGroup) -> StridedGroup {
        self.replica_groups.as_ref().map_or(ranks, |groups| groups.pipeline(ranks))
    }

    /// True if replicas can lie in groups: there are two to [`MOST_GROUPS`] groups, replicas in them are considered,
    /// they reduce gradients together, and their sequences are not made from documents of different lengths.
    pub(crate) fn supports_replica_groups(&self) -> bool {
        let Some(groups) = &self.groups else { return false };
        let method = self.training.data_parallel_method;
        (2..=MOST_GROUPS).contains(&self.num_groups())
            && method == DataParallelMethod::AllReduce
            && self.sequences.is_none()
            && groups.have_replicas
    }

    /// Sets whether replicas that lie in groups are considered, or only pipelines through the groups.
    pub(crate) fn set_replica_groups(&mut self, have_replicas: bool) {
        if let Some(groups) = &mut self.groups {
            groups.have_replicas = have_replicas;
        }
    }

    /// Checks that each pipeline rank of a layout lies within one group.
    ///
    /// # Errors
    ///
    /// [`LayoutError::GroupsUndivided`], with what would work.
    pub(crate) fn check_groups(&self, layout: &LayoutSpec) -> Result<(), LayoutError> {
        let Some(groups) = &self.groups else { return Ok(()) };
        if !layout.micro_batches_by_group.is_empty() {
            return Ok(());
        }
        let pipeline_parallel = layout.pipeline_parallel;
        if groups.hold_ranks_of(self.limits.num_gpus / pipeline_parallel.max(1)) {
            return Ok(());
        }
        let gpus = groups.all.iter().map(|group| group.num_gpus).collect();
        let works = groups.most_of_a_rank();
        Err(LayoutError::GroupsUndivided { pipeline_parallel, gpus, works })
    }

    /// Group of each pipeline rank of a layout; where replicas lie in groups, first of the pipeline ranks in the first
    /// group, then of those in the next.
    pub fn groups_of_ranks(&self, layout: &Layout) -> Vec<usize> {
        let ranks = PipelineRanks::of(layout);
        let p = layout.pipeline_parallel as usize;
        if layout.micro_batches_by_group.is_empty() {
            return (0..p).map(|rank| self.group_of(&ranks, rank)).collect();
        }
        (0..self.num_groups()).flat_map(|group| std::iter::repeat_n(group, p)).collect()
    }

    /// Name of a group; `None` where GPUs are alike.
    pub fn name_of(&self, group: usize) -> Option<&str> {
        self.groups.as_ref().map(|groups| groups.all[group].name.as_str())
    }

    /// Number of replicas of a layout in each group, where replicas lie in groups.
    pub fn replicas_of_groups(&self, gpus_per_replica: u32) -> Vec<u32> {
        self.limits.gpus_by_group.iter().map(|gpus| gpus / gpus_per_replica).collect()
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
        self.like(self.training, cluster, self.hardware.framework.clone(), num_gpus)
    }
}
