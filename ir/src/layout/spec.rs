//! Layouts as they are written down.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::mesh::Mesh;
use super::zero::ZeroStage;
use crate::graph::Recompute;
use crate::schedule::ScheduleKind;

/// A layout as it is written down; not yet known to be valid.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(deny_unknown_fields)]
pub struct LayoutSpec {
    /// Ranks that share heads, inner features and vocabulary.
    pub tensor_parallel: u32,
    /// Whether those ranks share the sequence between the sharded products.
    pub sequence_parallel: bool,
    /// Ranks that share each sequence.
    pub context_parallel: u32,
    /// Ranks, within context and data parallelism, that share the experts; within tensor, context and
    /// data parallelism if experts are whole.
    pub expert_parallel: u32,
    /// Whether tensor parallelism leaves each expert whole, so that its ranks too share the experts,
    /// each for its own part of the sequence (Liu et al. 2025, *MoE Parallel Folding*, arXiv
    /// 2504.14960). Otherwise it cuts each expert, as it cuts all else.
    #[serde(default)]
    pub whole_experts: bool,
    /// Ranks that share the layers.
    pub pipeline_parallel: u32,
    /// Chunks of layers on each pipeline rank; of each direction where the schedule has two.
    pub virtual_stages: u32,
    /// Replicas, counting shards.
    pub data_parallel: u32,
    /// Ranks over which ZeRO shards, within context and data parallelism; fewer than all of them is
    /// hybrid sharding (HSDP).
    pub zero_shard: u32,
    /// What those ranks share.
    pub zero_stage: ZeroStage,
    /// Sequences of a replica in a micro-batch.
    pub micro_batch_size: u32,
    /// Micro-batches of a replica in a step.
    pub num_micro_batches: u32,
    /// Which activations are computed again.
    pub recompute: Recompute,
    /// The order of micro-batches in the pipeline.
    pub schedule: ScheduleKind,
}

impl LayoutSpec {
    /// How far apart the ranks of its groups lie.
    pub fn mesh(&self) -> Mesh {
        Mesh {
            tensor_parallel: self.tensor_parallel,
            expert_tensor_parallel: self.expert_tensor_parallel(),
            context_parallel: self.context_parallel,
            data_parallel: self.data_parallel,
        }
    }

    /// Ranks that share each expert's inner features.
    pub fn expert_tensor_parallel(&self) -> u32 {
        if self.whole_experts { 1 } else { self.tensor_parallel }
    }

    /// Ranks of a stage: those among which parameters are replicated or shared.
    pub fn ranks_per_stage(&self) -> u32 {
        self.tensor_parallel * self.context_parallel * self.data_parallel
    }

    /// Ranks of a stage that hold the same experts.
    pub fn expert_replicas(&self) -> u32 {
        self.ranks_per_stage() / self.mesh().expert_ranks(self.expert_parallel)
    }

    /// Ranks over which ZeRO shards the states of an expert: those with the same experts among the ones
    /// that share a copy of all states.
    pub fn expert_shards(&self) -> u32 {
        let with_copy = self.zero_shard * self.tensor_parallel;
        (with_copy / self.mesh().expert_ranks(self.expert_parallel)).max(1)
    }
}

impl fmt::Display for LayoutSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sequence = if self.sequence_parallel { "-sp" } else { "" };
        write!(f, "tp{}{sequence}", self.tensor_parallel)?;
        for (name, degree, is_said) in [
            ("cp", self.context_parallel, self.context_parallel > 1),
            ("ep", self.expert_parallel, self.expert_parallel > 1),
            ("etp", self.expert_tensor_parallel(), self.whole_experts),
            ("pp", self.pipeline_parallel, true),
            ("vpp", self.virtual_stages, self.virtual_stages > 1),
        ] {
            if is_said {
                write!(f, "-{name}{degree}")?;
            }
        }
        write!(f, "-dp{}", self.data_parallel)
    }
}
