//! Layouts as written down: the table of their fields.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::by_group::MicroBatchesByGroup;
use super::choice::Choice;
use super::fields::{Arity, Field, Hides, Slot, Value as _, layout_fields};
use super::mesh::{Mesh, MeshAxis};
use super::offload::Offload;
use super::zero::ZeroStage;
use crate::graph::{
    ContextParallelKind, CudaGraphs, ExpertOverlap, Recompute, Sharding, Switches, TokenDispatcher,
};
use crate::schedule::ScheduleKind;

layout_fields! {
    sharding {
        /// Ranks over which heads, inner features and vocabulary are sharded.
        tensor_parallel: u32 = 1 => {
            option: "--tp", letters: "tp",
            aliases: &["t", "tensor", "tensor_parallel_size", "tensor_model_parallel_size"], ..Field::DEGREE
        };
        /// True if the sequence is also sharded over the tensor-parallel ranks, between the sharded products.
        sequence_parallel: bool = false => { option: "--sequence-parallel", letters: "sp", hides: Hides::Usual, ..Field::OTHER };
        /// Ranks over which each sequence is sharded.
        context_parallel: u32 = 1 => {
            option: "--cp", letters: "cp", hides: Hides::Usual,
            aliases: &["c", "context", "context_parallel_size"], ..Field::DEGREE
        };
        /// Kind of exchange by which context-parallel ranks attend to each other's parts.
        #[serde(default)]
        context_parallel_kind: ContextParallelKind = ContextParallelKind::Ring => { option: "--context-parallel-kind", hides: Hides::Usual, ..Field::OTHER };
        /// Ranks, within tensor, context and data parallelism, over which the experts are distributed; the ranks
        /// counted are those with the same part of each expert.
        expert_parallel: u32 = 1 => {
            option: "--ep", letters: "ep", hides: Hides::Usual,
            aliases: &["e", "expert", "expert_parallel_size", "expert_model_parallel_size"], ..Field::DEGREE
        };
        /// Ranks over which each expert is sharded: all tensor-parallel ranks, as for other layers, or fewer of them.
        /// If fewer, experts are also distributed over the other tensor-parallel ranks, each of which has its own part
        /// of the sequence (Liu et al. 2025, *MoE Parallel Folding*, arXiv 2504.14960).
        expert_tensor_parallel: u32 = 1 => {
            option: "--etp", letters: "etp",
            aliases: &["expert_tensor_parallel_size"], ..Field::DEGREE
        };
    }
    further {
        /// Ranks over which the layers are spread.
        pipeline_parallel: u32 = 1 => {
            option: "--pp", letters: "pp",
            aliases: &["p", "pipe", "pipeline", "pipeline_parallel_size", "pipeline_model_parallel_size"], ..Field::DEGREE
        };
        /// Stages of each pipeline rank; stages per direction where the schedule has two directions.
        virtual_stages: u32 = 1 => {
            option: "--virtual-stages", letters: "vpp", hides: Hides::Usual,
            aliases: &["vp", "v", "virtual", "virtual_pipeline_model_parallel_size"], ..Field::DEGREE
        };
        /// Replicas, counting shards.
        data_parallel: u32 = 1 => {
            option: "--dp", letters: "dp",
            aliases: &["d", "data", "data_parallel_size"], ..Field::DEGREE
        };
        /// Ranks over which ZeRO shards, within context and data parallelism; fewer than all of them is
        /// hybrid sharding (HSDP).
        zero_shard: u32 = 1 => { option: "--zero-shard", letters: "shard", ..Field::OTHER };
        /// States that are sharded over those ranks.
        zero_stage: ZeroStage = ZeroStage::None => {
            option: "--zero", arity: Arity::Several, letters: "zero", aliases: &["z"], ..Field::OTHER
        };
        /// Sequences of a replica in a micro-batch.
        micro_batch_size: u32 = 1 => {
            option: "--micro-batch-size", arity: Arity::Degrees, letters: "mbs", aliases: &["mb"],
            ..Field::OTHER
        };
        /// Micro-batches of a replica in a step; where groups of replicas differ, the largest number.
        num_micro_batches: u32 = 1;
        /// Micro-batches of each replica, by the group of unlike GPUs that contains the replica.
        #[serde(default, skip_serializing_if = "MicroBatchesByGroup::is_empty")]
        micro_batches_by_group: MicroBatchesByGroup = MicroBatchesByGroup::NONE;
        /// Which activations are computed again.
        recompute: Recompute = Recompute::None => { option: "--recompute", ..Field::OTHER };
        /// Tensors in the host's memory.
        #[serde(default)]
        offload: Offload = Offload::NONE => { option: "--offload", ..Field::OTHER };
        /// The order of micro-batches in the pipeline.
        schedule: ScheduleKind = ScheduleKind::OneFOneB => { option: "--schedule", arity: Arity::Several, ..Field::OTHER };
    }
    switches {
        token_dispatcher: TokenDispatcher => { option: "--token-dispatcher", ..Field::OTHER };
        expert_overlap: ExpertOverlap => { option: "--expert-overlap", ..Field::OTHER };
        cuda_graphs: CudaGraphs => { option: "--cuda-graphs", ..Field::OTHER };
    }
}

impl LayoutSpec {
    /// The order of ranks, from the layout's degrees.
    pub fn mesh(&self) -> Mesh {
        Mesh { sharding: self.sharding(), data_parallel: self.data_parallel }
    }

    /// Micro-batches of a replica and their size, as tables show them: `8x2`, or `8/4x2` where groups of replicas
    /// differ.
    pub fn micro_batches(&self) -> String {
        let by_group = self.micro_batches_by_group;
        if by_group.are_equal() {
            return format!("{}x{}", self.num_micro_batches, self.micro_batch_size);
        }
        format!("{by_group}x{}", self.micro_batch_size)
    }

    /// GPUs of a replica.
    pub fn gpus_per_replica(&self) -> u32 {
        self.tensor_parallel * self.context_parallel * self.pipeline_parallel
    }

    /// The layout of the replicas in a group of GPUs, as if all replicas had that group's number of micro-batches.
    #[must_use]
    pub(super) fn of_group(self, group: usize) -> Self {
        let number = self.micro_batches_by_group.numbers().get(group).copied();
        let num_micro_batches = number.unwrap_or(self.num_micro_batches);
        Self { num_micro_batches, micro_batches_by_group: MicroBatchesByGroup::NONE, ..self }
    }

    /// Ranks of a stage: those among which parameters are replicated or sharded.
    pub fn ranks_per_stage(&self) -> u32 {
        self.mesh().stride(MeshAxis::Pipeline)
    }

    /// Number of groups of replicas that fail independently, on nodes of `gpus_per_node` GPUs.
    pub fn replica_groups(&self, gpus_per_node: u32) -> u32 {
        let sharded = if self.zero_stage == ZeroStage::None { 1 } else { self.zero_shard };
        self.mesh().replica_groups(sharded, gpus_per_node)
    }

    /// The largest number of ranks over which states can be sharded so that several groups of replicas fail
    /// independently.
    pub fn shards_that_fail_apart(&self, gpus_per_node: u32) -> Option<u32> {
        let mut fewer = (1..self.zero_shard).rev().filter(|it| self.zero_shard.is_multiple_of(*it));
        fewer.find(|it| self.mesh().replica_groups(*it, gpus_per_node) > 1)
    }

    /// Number of GPUs.
    pub fn num_gpus(&self) -> u32 {
        self.ranks_per_stage() * self.pipeline_parallel
    }
}

impl fmt::Display for LayoutSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut decided = PartialLayout::from(self);
        if self.expert_tensor_parallel == self.tensor_parallel {
            decided.expert_tensor_parallel = Choice::Any;
        }
        decided.fmt(f)
    }
}
