//! Pipeline ranks and their stages.

use cost_models::StridedGroup;
use ir::layout::{Layout, MeshAxis};
use ir::schedule::StagePlacement;

/// The pipeline ranks of a layout, and the placement of stages on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineRanks {
    /// Group of the pipeline ranks.
    pub group: StridedGroup,
    /// Placement of stages on ranks.
    pub placement: StagePlacement,
}

impl PipelineRanks {
    /// The pipeline ranks of a layout.
    pub fn of(layout: &Layout) -> Self {
        let stride = layout.mesh().stride(MeshAxis::Pipeline);
        let group = StridedGroup { size: layout.pipeline_parallel, stride };
        Self { group, placement: layout.schedule.placement() }
    }

    /// The ranks that have a stage: one rank, or one for each copy, which take turns.
    pub fn with(&self, stage: usize) -> impl Iterator<Item = usize> {
        self.placement.ranks(self.group.size, stage as u32).map(|rank| rank as usize)
    }

    /// The rank that runs a stage for the first micro-batch.
    pub fn first_with(&self, stage: usize) -> usize {
        self.with(stage).next().expect("every stage of a layout is placed")
    }

    /// The stages of a rank, out of `num_stages`, in the order of the model.
    pub fn stages(&self, rank: usize, num_stages: usize) -> impl Iterator<Item = usize> {
        let stages = self.placement.stages(self.group.size, num_stages as u32, rank as u32);
        stages.map(|stage| stage as usize)
    }

    /// True if the stage is the first of its rank.
    pub fn is_first(&self, stage: usize) -> bool {
        self.stages(self.first_with(stage), stage + 1).next() == Some(stage)
    }

    /// True if a stage and the next are on different ranks.
    pub(super) fn is_crossed(&self, stage: usize) -> bool {
        self.first_with(stage) != self.first_with(stage + 1)
    }
}
