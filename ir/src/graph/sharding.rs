//! The degrees by which operators are sharded.

/// How the ranks of a stage share its operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sharding {
    /// Ranks that share heads, inner features and vocabulary.
    pub tensor_parallel: u32,
    /// Whether those ranks also share the sequence between the sharded products.
    pub sequence_parallel: bool,
    /// Ranks that share the sequence everywhere.
    pub context_parallel: u32,
    /// Ranks that share the experts.
    pub expert_parallel: u32,
    /// Ranks that share the inner features of each expert: the tensor-parallel ranks; or 1, and then these
    /// are among the ranks that share the experts.
    pub expert_tensor_parallel: u32,
}

impl Sharding {
    /// No sharding at all.
    pub const NONE: Self = Self::tensor(1);

    /// Sharded over `degree` tensor-parallel ranks, without sequence parallelism.
    pub const fn tensor(degree: u32) -> Self {
        Self {
            tensor_parallel: degree,
            sequence_parallel: false,
            context_parallel: 1,
            expert_parallel: 1,
            expert_tensor_parallel: degree,
        }
    }

    /// Whether tensor parallelism leaves each expert whole.
    pub const fn has_whole_experts(&self) -> bool {
        self.expert_tensor_parallel < self.tensor_parallel
    }
}
