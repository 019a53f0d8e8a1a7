//! The order of ranks.

/// An axis along which ranks form groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeshAxis {
    /// Tensor parallelism.
    Tensor,
    /// Context parallelism.
    Context,
    /// Expert parallelism: within context and data, or of whole experts within tensor, context and data.
    Expert,
    /// Context and data parallelism together: who reduces gradients.
    ContextData,
    /// Pipeline parallelism.
    Pipeline,
}

/// Degrees that decide how far apart the ranks of a group lie: the order of ranks, which is tensor,
/// context, data, pipeline, fastest first. Experts are shared by neighbours among the ranks of a stage, or
/// where tensor parallelism cuts them, by those with the same place along it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mesh {
    /// Tensor-parallel degree.
    pub tensor_parallel: u32,
    /// Ranks that share each expert.
    pub expert_tensor_parallel: u32,
    /// Context-parallel degree.
    pub context_parallel: u32,
    /// Data-parallel degree.
    pub data_parallel: u32,
}

impl Mesh {
    /// Ranks between two neighbours along an axis.
    pub fn stride(&self, axis: MeshAxis) -> u32 {
        match axis {
            MeshAxis::Tensor => 1,
            MeshAxis::Expert => self.expert_tensor_parallel,
            MeshAxis::Context | MeshAxis::ContextData => self.tensor_parallel,
            MeshAxis::Pipeline => self.tensor_parallel * self.context_parallel * self.data_parallel,
        }
    }

    /// Neighbouring ranks that have every expert between them: how far apart two ranks with the same
    /// experts lie.
    pub fn expert_ranks(&self, expert_parallel: u32) -> u32 {
        expert_parallel * self.expert_tensor_parallel
    }
}
