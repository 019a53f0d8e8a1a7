//! Treatment of an operator's output by selective recompute.

/// Treatment of an operator's output by selective recompute: saved, or recomputed in backward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Recomputable {
    /// Saved: expensive to compute relative to its bytes.
    #[default]
    No,
    /// Dropped and recomputed under `selective`: cheap relative to its bytes. Unfused attention scores, norms,
    /// activation functions.
    Selective,
    /// The last operator of a region that `selective` recomputes as a whole: it is recomputed, but its output is also
    /// saved, as the output of a checkpointed region is. Unfused attention's product with the values.
    SelectiveEnd,
    /// Saved where other ranks send the output, else as `Selective`: exchanges of experts' tokens.
    UnlessReceived,
}

impl Recomputable {
    /// The treatment where experts are distributed over this number of ranks.
    pub const fn among(self, expert_parallel: u32) -> Self {
        match self {
            Self::UnlessReceived if expert_parallel > 1 => Self::No,
            Self::UnlessReceived => Self::Selective,
            other => other,
        }
    }
}
