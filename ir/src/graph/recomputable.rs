//! What selective recompute does with an operator's output.

/// Treatment of an operator's output by selective recompute: saved, or recomputed in backward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Recomputable {
    /// Saved: expensive to compute for the bytes it takes.
    #[default]
    No,
    /// Dropped and recomputed under `selective`: cheap for the bytes it takes. Unfused attention scores, norms,
    /// activation functions.
    Selective,
    /// The end of a region that `selective` recomputes as a whole: recomputed, but its output is also saved, as the
    /// region's checkpoint does. Unfused attention's product with the values.
    SelectiveEnd,
    /// Saved where other ranks send it, and else as `Selective`: exchanges of experts' tokens.
    UnlessReceived,
}

impl Recomputable {
    /// The treatment where experts are spread over this number of ranks.
    pub const fn among(self, expert_parallel: u32) -> Self {
        match self {
            Self::UnlessReceived if expert_parallel > 1 => Self::No,
            Self::UnlessReceived => Self::Selective,
            other => other,
        }
    }
}
