//! Memory of the loss.

named_enum! {
    /// Where the loss's gradient goes, and with it the memory of the loss.
    pub enum LossGradient {
        /// Over the logits, in forward: Transformer Engine's `parallel_cross_entropy`.
        InPlace = "in-place",
        /// Into memory of its own, from logits in 16 bits: kernels that keep statistics of rows alone, such as those of
        /// `flash_attn.losses.cross_entropy`.
        Fused = "fused",
        /// As `fused` where blocks are compiled, and the loss with them; as `apart` where they are not.
        Compiled = "compiled",
        /// Over the softmax in fp32, and then into memory of its own as it is cast: Megatron-Core's
        /// `vocab_parallel_cross_entropy`.
        OverSoftmax = "over-softmax",
        /// The same with one copy more in fp32: Megatron-Core's `fused_vocab_parallel_cross_entropy`, whose compiled
        /// function does not write its argument, and Megatron-LM's until 2023, which subtracted the maximum into a new
        /// tensor.
        OverCopy = "over-copy",
        /// PyTorch's `cross_entropy` of logits in fp32: log-softmax, its gradient and that of the logits.
        Apart = "apart",
        /// PyTorch's `cross_entropy` of logits as they are.
        Uncast = "uncast",
        /// The head and the loss of an eighth of the tokens at a time, forward and backward, each as `fused`; the
        /// gradient of what the head reads is gathered in fp32: torchtitan's `ChunkedLossWrapper`. Liger's
        /// `fused_linear_cross_entropy` takes more pieces.
        Chunked = "chunked",
    }
}

/// Pieces of the tokens whose logits are there at once, of `chunked`.
const CHUNKS: u64 = 8;

impl LossGradient {
    /// Bytes for each logit from the loss's forward to its backward, where logits have `compute_bytes` each.
    pub const fn saved_bytes(self, compute_bytes: u64) -> u64 {
        match self {
            Self::Chunked => 0,
            Self::InPlace | Self::Fused | Self::Compiled | Self::Uncast => compute_bytes,
            Self::OverSoftmax | Self::OverCopy | Self::Apart => 4,
        }
    }

    /// Bytes for each logit in the loss's backward beside those and the gradient that it returns.
    pub const fn copied_bytes(self, compute_bytes: u64) -> u64 {
        match self {
            Self::InPlace | Self::Fused | Self::Compiled | Self::OverSoftmax => 0,
            Self::Chunked => compute_bytes,
            Self::OverCopy => 4,
            Self::Apart => 8 - compute_bytes,
            Self::Uncast => compute_bytes,
        }
    }

    /// Number of pieces that the logits are computed in.
    pub const fn pieces(self) -> u64 {
        if matches!(self, Self::Chunked) { CHUNKS } else { 1 }
    }
}
