//! Degrees of parallelism by which operators are sharded.

named_enum! {
    /// Exchange by which context-parallel ranks, each of which has a part of each sequence, attend to the other parts.
    #[derive(Default)]
    pub enum ContextParallelKind {
        /// Keys and values go round a ring, overlapped with attention (Liu et al. 2023, arXiv 2310.01889).
        #[default]
        Ring = "ring",
        /// Queries, keys and values are exchanged for those of all positions and a share of the heads; the output is
        /// exchanged back (Jacobs et al. 2023, *DeepSpeed Ulysses*, arXiv 2309.14509).
        AllToAll = "all_to_all",
    }
}

/// Sharding of operators over the ranks of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sharding {
    /// Ranks over which heads, inner features and vocabulary are sharded.
    pub tensor_parallel: u32,
    /// True if the sequence is also sharded over the tensor-parallel ranks, between the sharded products.
    pub sequence_parallel: bool,
    /// Ranks over which the sequence is sharded everywhere.
    pub context_parallel: u32,
    /// Exchange by which context-parallel ranks attend to each other's positions.
    pub context_parallel_kind: ContextParallelKind,
    /// Ranks over which the experts are distributed.
    pub expert_parallel: u32,
    /// Ranks over which the inner features of each expert are sharded: all tensor-parallel ranks, or this number of
    /// neighbours among them. In the latter case, the other tensor-parallel ranks are among the expert-parallel ones.
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
            context_parallel_kind: ContextParallelKind::Ring,
            expert_parallel: 1,
            expert_tensor_parallel: degree,
        }
    }

    /// The sharding of all operators but experts.
    #[must_use]
    pub const fn without_experts(self) -> Self {
        Self { expert_parallel: 1, expert_tensor_parallel: self.tensor_parallel, ..self }
    }

    /// Ranks over which the heads of attention are sharded in addition to tensor parallelism.
    pub const fn head_exchange(&self) -> u32 {
        match self.context_parallel_kind {
            ContextParallelKind::Ring => 1,
            ContextParallelKind::AllToAll => self.context_parallel,
        }
    }

    /// Number of groups of tensor-parallel ranks among which the tokens for experts are divided; in each group, every
    /// rank has a shard of every expert that the group holds.
    pub const fn expert_groups(&self) -> u32 {
        self.tensor_parallel / self.expert_tensor_parallel
    }
}
