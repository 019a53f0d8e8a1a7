//! The order of ranks.

use crate::graph::Sharding;

/// An axis along which ranks form groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeshAxis {
    /// Tensor parallelism, of all but experts.
    Tensor,
    /// Tensor parallelism of experts, within that of all else.
    ExpertTensor,
    /// Context parallelism.
    Context,
    /// Expert parallelism, within tensor, context and data, over those with the same part of each expert.
    Expert,
    /// Context and data parallelism together: who reduces gradients.
    ContextData,
    /// Pipeline parallelism.
    Pipeline,
}

/// Degrees that decide how far apart the ranks of a group lie: the order of ranks, which is tensor,
/// context, data, pipeline, fastest first. For experts the ranks of a stage are in another order: tensor
/// parallelism of experts, expert parallelism, replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mesh {
    /// How operators are sharded over the ranks of a stage.
    pub sharding: Sharding,
    /// Data-parallel degree.
    pub data_parallel: u32,
}

impl Mesh {
    /// Ranks between two neighbours along an axis.
    pub fn stride(&self, axis: MeshAxis) -> u32 {
        match axis {
            MeshAxis::Tensor | MeshAxis::ExpertTensor => 1,
            MeshAxis::Expert => self.sharding.expert_tensor_parallel,
            MeshAxis::Context | MeshAxis::ContextData => self.sharding.tensor_parallel,
            MeshAxis::Pipeline => self.sharding.tensor_parallel * self.replicas(),
        }
    }

    /// Ranks that hold the same dense parameters of a stage.
    pub fn replicas(&self) -> u32 {
        self.sharding.context_parallel * self.data_parallel
    }

    /// Neighbouring ranks that have every expert between them: how far apart two ranks with the same
    /// experts lie.
    pub fn expert_ranks(&self) -> u32 {
        self.sharding.expert_parallel * self.sharding.expert_tensor_parallel
    }

    /// Ranks of a stage that hold the same experts.
    pub fn expert_replicas(&self) -> u32 {
        self.stride(MeshAxis::Pipeline) / self.expert_ranks()
    }

    /// Ranks over which the states of an expert are sharded where those of dense parameters are over
    /// `zero_shard`: those with the same experts among the ones that have a copy of all states between them.
    pub fn expert_shards(&self, zero_shard: u32) -> u32 {
        (zero_shard * self.sharding.tensor_parallel / self.expert_ranks()).max(1)
    }
}
