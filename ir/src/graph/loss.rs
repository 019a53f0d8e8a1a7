//! Kinds of the loss and their memory.

use std::fmt;
use std::str::FromStr;

/// Loss computation of a run (`--loss`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// From all logits of a micro-batch at once.
    Plain,
    /// Head and loss in this number of chunks of the tokens, forward and backward, one after the other.
    Chunked(u64),
    /// Fused with the head, in chunks as the kernel chooses them.
    Fused,
}

/// Chunks of torchtitan's `ChunkedLossWrapper` and torchtune's `CEWithChunkedOutputLoss`, if users name no other
/// number.
pub const USUAL_CHUNKS: u64 = 8;

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain => f.write_str("plain"),
            Self::Chunked(chunks) => write!(f, "chunked:{chunks}"),
            Self::Fused => f.write_str("fused"),
        }
    }
}

impl FromStr for Loss {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':').map_or((text, None), |(name, chunks)| (name, Some(chunks))) {
            ("plain", None) => Ok(Self::Plain),
            ("fused", None) => Ok(Self::Fused),
            ("chunked", None) => Ok(Self::Chunked(USUAL_CHUNKS)),
            ("chunked", Some(chunks)) => match chunks.parse() {
                Ok(chunks @ 2..) => Ok(Self::Chunked(chunks)),
                _ => Err("chunks are 2 or more, as in `chunked:8`".to_owned()),
            },
            _ => Err("must be plain, chunked, chunked:N or fused".to_owned()),
        }
    }
}

named_enum! {
    /// Where the loss's gradient goes, and with it the memory of the loss.
    pub enum LossGradient {
        /// Over the logits, in forward: Transformer Engine's `parallel_cross_entropy`.
        InPlace = "in-place",
        /// Into memory of its own, from logits in 16 bits: kernels that keep statistics of rows alone, such as those of
        /// `flash_attn.losses.cross_entropy`.
        Fused = "fused",
        /// As `fused` where blocks are compiled, and the loss with them; as `loss-parallel` where they are
        /// not.
        Compiled = "compiled",
        /// Over the softmax in fp32, and then into memory of its own as it is cast: Megatron-Core's
        /// `vocab_parallel_cross_entropy`.
        OverSoftmax = "over-softmax",
        /// The same with one copy more in fp32: Megatron-Core's `fused_vocab_parallel_cross_entropy`, whose compiled
        /// function does not write its argument, and Megatron-LM's until 2023, which subtracted the maximum into a new
        /// tensor.
        OverCopy = "over-copy",
        /// PyTorch's `cross_entropy` of logits in fp32: log-softmax, its gradient and that of the logits.
        /// A dispatch mode counts 12 bytes a logit at once in a step of transformers 5.24's `Trainer`.
        Apart = "apart",
        /// The same, and under PyTorch's `loss_parallel` where tensor-parallel ranks share the vocabulary: its
        /// `_nll_loss_and_log_softmax_backward` has log-softmax, exponentials, the labels' part and their sum at once.
        /// A dispatch mode counts 16 bytes a logit in that function of PyTorch 2.15.
        LossParallel = "loss-parallel",
        /// PyTorch's `cross_entropy` of logits as they are.
        Uncast = "uncast",
        /// The head and the loss of a chunk of the tokens at a time, forward and backward, each as `fused`; the
        /// gradient of what the head reads is gathered in fp32: torchtitan's `ChunkedLossWrapper`.
        Chunked = "chunked",
        /// The same in chunks whose logits take about as much as what the head reads, the gradient over the logits, and
        /// all in forward: Liger's `fused_linear_cross_entropy`.
        WithHead = "with-head",
    }
}

/// Loss computation of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LossKind {
    /// Where its gradient goes.
    pub gradient: LossGradient,
    /// Chunks of the tokens, of [`LossGradient::Chunked`].
    pub chunks: u64,
}

impl LossKind {
    /// A loss with the usual number of chunks, if it has chunks.
    pub const fn usual(gradient: LossGradient) -> Self {
        Self { gradient, chunks: USUAL_CHUNKS }
    }

    /// Number of chunks in which the logits of `tokens` tokens are computed, of a head from `hidden` features to
    /// `vocabulary` logits.
    ///
    /// # Source
    ///
    /// Liger-Kernel, `fused_linear_cross_entropy_forward`: a chunk has as many tokens as the least power of two that is
    /// not below tokens / (vocabulary / hidden), with both quotients rounded up.
    pub fn num_chunks(self, tokens: u64, hidden: u64, vocabulary: u64) -> u64 {
        match self.gradient {
            LossGradient::Chunked => self.chunks.clamp(1, tokens.max(1)),
            LossGradient::WithHead => {
                let times = vocabulary.div_ceil(hidden.max(1)).max(1);
                let of_chunk = tokens.div_ceil(times).max(1).next_power_of_two();
                tokens.div_ceil(of_chunk).max(1)
            }
            _ => 1,
        }
    }
}

impl LossGradient {
    /// True if the head is computed in chunks with the loss.
    pub const fn has_chunks(self) -> bool {
        matches!(self, Self::Chunked | Self::WithHead)
    }

    /// Bytes for each logit from the loss's forward to its backward, where logits have `compute_bytes` each.
    pub const fn saved_bytes(self, compute_bytes: u64) -> u64 {
        match self {
            Self::Chunked | Self::WithHead => 0,
            Self::InPlace | Self::Fused | Self::Compiled | Self::Uncast => compute_bytes,
            Self::OverSoftmax | Self::OverCopy | Self::Apart | Self::LossParallel => 4,
        }
    }

    /// Bytes for each logit in the loss's backward in addition to those and the gradient that it returns, with the
    /// vocabulary shared by tensor-parallel ranks or not.
    pub const fn copied_bytes(self, compute_bytes: u64, is_shared: bool) -> u64 {
        match self {
            Self::InPlace | Self::Fused | Self::Compiled | Self::OverSoftmax => 0,
            Self::Chunked | Self::WithHead => compute_bytes,
            Self::OverCopy => 4,
            Self::LossParallel if is_shared => 12 - compute_bytes,
            Self::Apart | Self::LossParallel => 8 - compute_bytes,
            Self::Uncast => compute_bytes,
        }
    }
}
