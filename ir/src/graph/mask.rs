//! Masks of attention.

/// Positions that a query attends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttentionMask {
    /// All positions.
    Full,
    /// The query's own position and all earlier ones.
    Causal,
    /// The query's own position and the `window - 1` positions before it.
    SlidingWindow {
        /// Number of positions, the query's own included.
        window: u64,
    },
    /// The query's own position and all earlier ones of its chunk (Llama 4).
    Chunked {
        /// Number of positions of a chunk.
        length: u64,
    },
    /// The positions that an `OpKind::Indexer` chooses among the query's own and all earlier ones (DeepSeek-AI 2025,
    /// *DeepSeek-V3.2*).
    Chosen {
        /// Number of positions.
        keys: u64,
    },
    /// A sliding window, and keys that an `OpKind::Compress` computed from blocks of earlier positions: all of these
    /// keys, or those that an `OpKind::Indexer` chooses (DeepSeek-AI 2026, *DeepSeek-V4*, section 2.3).
    Compressed {
        /// Number of positions, the query's own included.
        window: u64,
        /// Positions of a block.
        block: u64,
        /// Number of blocks that are chosen.
        keys: Option<u64>,
    },
}

impl AttentionMask {
    /// Number of attention's inputs with features: queries, keys and values, and compressed keys where there are any.
    pub(super) const fn inputs(self) -> usize {
        if matches!(self, Self::Compressed { .. }) { 4 } else { 3 }
    }
}
