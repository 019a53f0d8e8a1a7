//! The order of ranks.

use crate::graph::Sharding;

/// An axis along which ranks form groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeshAxis {
    /// Tensor parallelism of all operators except experts.
    Tensor,
    /// Tensor parallelism of experts, within that of the other operators.
    ExpertTensor,
    /// Context parallelism.
    Context,
    /// Expert parallelism, within tensor, context and data parallelism, over ranks with the same shard of each expert.
    Expert,
    /// Context and data parallelism together: the ranks that reduce gradients.
    ContextData,
    /// Pipeline parallelism.
    Pipeline,
}

/// Degrees that decide the distance between the ranks of a group. The order of ranks is tensor, context, data,
/// pipeline, fastest first. For experts, the ranks of a stage have another order: tensor parallelism of experts,
/// expert parallelism, replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mesh {
    /// Sharding of operators over the ranks of a stage.
    pub sharding: Sharding,
    /// Data-parallel degree.
    pub data_parallel: u32,
}

impl Mesh {
    /// Distance in ranks between two neighbours along an axis.
    pub fn stride(&self, axis: MeshAxis) -> u32 {
        match axis {
            MeshAxis::Tensor | MeshAxis::ExpertTensor => 1,
            MeshAxis::Expert => self.sharding.expert_tensor_parallel,
            MeshAxis::Context | MeshAxis::ContextData => self.sharding.tensor_parallel,
            MeshAxis::Pipeline => self.sharding.tensor_parallel * self.replicas(),
        }
    }

    /// Number of ranks that hold the same dense parameters of a stage.
    pub fn replicas(&self) -> u32 {
        self.sharding.context_parallel * self.data_parallel
    }

    /// Number of neighbouring ranks that together hold every expert: the distance between two ranks with the same
    /// experts.
    pub fn expert_ranks(&self) -> u32 {
        self.sharding.expert_parallel * self.sharding.expert_tensor_parallel
    }

    /// Number of ranks of a stage that hold the same experts.
    pub fn expert_replicas(&self) -> u32 {
        self.stride(MeshAxis::Pipeline) / self.expert_ranks()
    }

    /// Number of ranks over which the states of an expert are sharded if those of dense parameters are sharded over
    /// `zero_shard` ranks: the ranks with the same experts among the ranks that together hold a copy of all states.
    pub fn expert_shards(&self, zero_shard: u32) -> u32 {
        (zero_shard * self.sharding.tensor_parallel / self.expert_ranks()).max(1)
    }

    /// Number of groups of replicas that fail independently. Each group has copies of all states and of all experts,
    /// with a copy spread over `sharded` of the ranks that hold the same parameters, and shares no node with another
    /// group.
    pub fn replica_groups(&self, sharded: u32, gpus_per_node: u32) -> u32 {
        let Sharding { tensor_parallel, context_parallel, .. } = self.sharding;
        let of_copy = tensor_parallel * sharded.max(1);
        let whole = [tensor_parallel * context_parallel, self.expert_ranks(), gpus_per_node];
        let together =
            whole.into_iter().map(u64::from).fold(u64::from(of_copy), |together, ranks| {
                together / common_divisor(together, ranks) * ranks
            });
        let groups = u64::from(self.stride(MeshAxis::Pipeline)) / together;
        u32::try_from(groups.max(1)).unwrap_or(u32::MAX)
    }
}

/// Greatest common divisor.
pub fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}
