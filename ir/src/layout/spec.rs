//! Layouts as they are written down.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mesh::{Mesh, MeshAxis};
use super::offload::Offload;
use super::partial::PartialLayout;
use super::zero::ZeroStage;
use crate::graph::{ContextParallelKind, Recompute, Sharding, Switches};
use crate::schedule::ScheduleKind;

/// A layout as it is written down; not yet known to be valid.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(deny_unknown_fields)]
pub struct LayoutSpec {
    /// Ranks over which heads, inner features and vocabulary are sharded.
    pub tensor_parallel: u32,
    /// Whether the sequence is sharded over those ranks too, between the sharded products.
    pub sequence_parallel: bool,
    /// Ranks over which each sequence is sharded.
    pub context_parallel: u32,
    /// How those attend to each other's parts.
    #[serde(default)]
    pub context_parallel_kind: ContextParallelKind,
    /// Ranks, within tensor, context and data parallelism, over which the experts are spread: those with the
    /// same part of each expert.
    pub expert_parallel: u32,
    /// Ranks over which each expert is sharded: the tensor-parallel ranks, as all else is; or fewer of them, so
    /// that the experts are spread over these too, each for its own part of the sequence (Liu et al. 2025,
    /// *MoE Parallel Folding*, arXiv 2504.14960).
    pub expert_tensor_parallel: u32,
    /// Ranks over which the layers are spread.
    pub pipeline_parallel: u32,
    /// Stages of each pipeline rank; of each direction where the schedule has two.
    pub virtual_stages: u32,
    /// Replicas, counting shards.
    pub data_parallel: u32,
    /// Ranks over which ZeRO shards, within context and data parallelism; fewer than all of them is
    /// hybrid sharding (HSDP).
    pub zero_shard: u32,
    /// What is sharded over those ranks.
    pub zero_stage: ZeroStage,
    /// Sequences of a replica in a micro-batch.
    pub micro_batch_size: u32,
    /// Micro-batches of a replica in a step.
    pub num_micro_batches: u32,
    /// Which activations are computed again.
    pub recompute: Recompute,
    /// What lies in the host's memory.
    #[serde(default)]
    pub offload: Offload,
    /// The order of micro-batches in the pipeline.
    pub schedule: ScheduleKind,
    /// What is switched on beside.
    #[serde(default, skip_serializing_if = "Switches::are_usual")]
    pub switches: Switches,
}

impl LayoutSpec {
    /// That of one rank, which computes one micro-batch of one sequence.
    pub const ONE_RANK: Self = Self {
        tensor_parallel: 1,
        sequence_parallel: false,
        context_parallel: 1,
        context_parallel_kind: ContextParallelKind::Ring,
        expert_parallel: 1,
        expert_tensor_parallel: 1,
        pipeline_parallel: 1,
        virtual_stages: 1,
        data_parallel: 1,
        zero_shard: 1,
        zero_stage: ZeroStage::None,
        micro_batch_size: 1,
        num_micro_batches: 1,
        recompute: Recompute::None,
        offload: Offload::NONE,
        schedule: ScheduleKind::OneFOneB,
        switches: Switches::USUAL,
    };

    /// How operators are sharded over the ranks of a stage.
    pub fn sharding(&self) -> Sharding {
        let Self { tensor_parallel, sequence_parallel, context_parallel, .. } = *self;
        let Self { context_parallel_kind, .. } = *self;
        let Self { expert_parallel, expert_tensor_parallel, .. } = *self;
        Sharding {
            tensor_parallel,
            sequence_parallel,
            context_parallel,
            context_parallel_kind,
            expert_parallel,
            expert_tensor_parallel,
        }
    }

    /// How far apart the ranks of its groups lie.
    pub fn mesh(&self) -> Mesh {
        Mesh { sharding: self.sharding(), data_parallel: self.data_parallel }
    }

    /// Ranks of a stage: those among which parameters are replicated or sharded.
    pub fn ranks_per_stage(&self) -> u32 {
        self.mesh().stride(MeshAxis::Pipeline)
    }

    /// Whether it is as is named.
    pub fn is_as(&self, named: &PartialLayout) -> bool {
        let switches = self.switches;
        let degrees = [
            (named.tensor_parallel, named.among.tensor_parallel, self.tensor_parallel),
            (named.context_parallel, named.among.context_parallel, self.context_parallel),
            (named.expert_parallel, named.among.expert_parallel, self.expert_parallel),
            (
                named.expert_tensor_parallel,
                named.among.expert_tensor_parallel,
                self.expert_tensor_parallel,
            ),
            (named.pipeline_parallel, named.among.pipeline_parallel, self.pipeline_parallel),
            (named.virtual_stages, named.among.virtual_stages, self.virtual_stages),
            (named.data_parallel, named.among.data_parallel, self.data_parallel),
            (named.micro_batch_size, named.among.micro_batch_size, self.micro_batch_size),
            (named.zero_shard, None, self.zero_shard),
        ];
        let of_degrees = degrees.into_iter().all(|(one, among, has)| {
            one.is_none_or(|one| one == has) && among.is_none_or(|among| among.takes(has))
        });
        let is = |takes: Option<bool>| takes.unwrap_or(true);
        of_degrees
            && is(named.sequence_parallel.map(|it| it == self.sequence_parallel))
            && is(named.context_parallel_kind.map(|it| it == self.context_parallel_kind))
            && is(named.zero_stage.map(|it| it == self.zero_stage))
            && named.among.takes_zero(self.zero_stage)
            && is(named.recompute.map(|it| it == self.recompute))
            && is(named.offload.map(|it| it == self.offload))
            && is(named.schedule.map(|it| it == self.schedule))
            && named.among.takes_schedule(self.schedule)
            && is(named.token_dispatcher.map(|it| it == switches.token_dispatcher))
            && is(named.expert_overlap.map(|it| it == switches.expert_overlap))
            && is(named.cuda_graphs.map(|it| it == switches.cuda_graphs))
    }

    /// Number of GPUs.
    pub fn num_gpus(&self) -> u32 {
        self.ranks_per_stage() * self.pipeline_parallel
    }
}

impl fmt::Display for LayoutSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_experts = Some(self.expert_tensor_parallel);
        let degrees = PartialLayout {
            tensor_parallel: Some(self.tensor_parallel),
            sequence_parallel: Some(self.sequence_parallel),
            context_parallel: Some(self.context_parallel),
            context_parallel_kind: Some(self.context_parallel_kind),
            expert_parallel: Some(self.expert_parallel),
            expert_tensor_parallel: of_experts.filter(|degree| *degree != self.tensor_parallel),
            pipeline_parallel: Some(self.pipeline_parallel),
            virtual_stages: Some(self.virtual_stages),
            data_parallel: Some(self.data_parallel),
            ..PartialLayout::default()
        };
        degrees.fmt(f)
    }
}
