//! The degrees by which operators are sharded.

/// How operators are sharded over the ranks of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sharding {
    /// Ranks over which heads, inner features and vocabulary are sharded.
    pub tensor_parallel: u32,
    /// Whether the sequence is sharded over those ranks too, between the sharded products.
    pub sequence_parallel: bool,
    /// Ranks over which the sequence is sharded everywhere.
    pub context_parallel: u32,
    /// Ranks over which the experts are spread.
    pub expert_parallel: u32,
    /// Ranks over which the inner features of each expert are sharded: the tensor-parallel ranks; or 1, and
    /// then these are among the ranks over which the experts are spread.
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
