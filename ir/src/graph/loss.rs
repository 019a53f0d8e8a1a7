//! Kinds of the loss and their memory.

use std::fmt;
use std::str::FromStr;

/// Loss computation of a run (`--loss`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// From all logits of a micro-batch at once.
    Plain,
    /// Head and loss together, in this number of chunks of the tokens, one chunk after the other; each chunk forward
    /// and backward.
    Chunked(u64),
    /// Fused with the head, in chunks that the kernel chooses.
    Fused,
}

/// Number of chunks of torchtitan's `ChunkedLossWrapper` and torchtune's `CEWithChunkedOutputLoss`, if users give no
/// other number.
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
    /// Storage of the gradient of the loss, which decides the memory of the loss.
    pub enum LossGradient {
        /// The gradient overwrites the logits, in forward: Transformer Engine's `parallel_cross_entropy`.
        InPlace = "in-place",
        /// The gradient has its own memory, and logits are in 16 bits: kernels that save only statistics of rows, such
        /// as those of `flash_attn.losses.cross_entropy`.
        Fused = "fused",
        /// As `fused` where blocks, and with them the loss, are compiled; as `loss-parallel` where they are not.
        Compiled = "compiled",
        /// The gradient overwrites the softmax in fp32, and is then cast into its own memory: Megatron-Core's
        /// `vocab_parallel_cross_entropy`.
        OverSoftmax = "over-softmax",
        /// As `over-softmax`, with one more copy in fp32: Megatron-Core's `fused_vocab_parallel_cross_entropy`, whose
        /// compiled function does not write to its argument, and the loss of Megatron-LM until 2023, which wrote
        /// logits minus the maximum into a new tensor.
        OverCopy = "over-copy",
        /// PyTorch's `cross_entropy` of logits in fp32: log-softmax, its gradient and the gradient of the logits. A
        /// dispatch mode counts 12 bytes per logit at the same time in a step of transformers 5.24's `Trainer`.
        Apart = "apart",
        /// As `apart`; and PyTorch's `loss_parallel` where tensor-parallel ranks share the vocabulary. The latter's
        /// `_nll_loss_and_log_softmax_backward` holds log-softmax, exponentials, the labels' part and their sum at the
        /// same time. A dispatch mode counts 16 bytes per logit in this function of PyTorch 2.15.
        LossParallel = "loss-parallel",
        /// PyTorch's `cross_entropy` of logits in their own format.
        Uncast = "uncast",
        /// Head and loss of one chunk of the tokens at a time, forward and backward, each chunk as `fused`; the
        /// gradient of the head's input is accumulated over chunks in fp32: torchtitan's `ChunkedLossWrapper`.
        Chunked = "chunked",
        /// As `chunked`, with chunks whose logits take about as much memory as the head's input; the gradient
        /// overwrites the logits, and everything runs in forward: Liger's `fused_linear_cross_entropy`.
        WithHead = "with-head",
    }
}

/// Loss computation of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LossKind {
    /// Where its gradient goes.
    pub gradient: LossGradient,
    /// Number of chunks of the tokens, for [`LossGradient::Chunked`].
    pub chunks: u64,
}

impl LossKind {
    /// A loss with the usual number of chunks, where its kind has chunks.
    pub const fn usual(gradient: LossGradient) -> Self {
        Self { gradient, chunks: USUAL_CHUNKS }
    }

    /// Number of chunks in which the logits of `tokens` tokens are computed, for a head from `hidden` features to
    /// `vocabulary` logits.
    ///
    /// # Source
    ///
    /// Liger-Kernel, `fused_linear_cross_entropy_forward`: the tokens of a chunk are the smallest power of two that is
    /// at least tokens / (vocabulary / hidden), with both quotients rounded up.
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

    /// Bytes per logit that are held from the forward to the backward of the loss, where a logit takes
    /// `compute_bytes`.
    pub const fn saved_bytes(self, compute_bytes: u64) -> u64 {
        match self {
            Self::Chunked | Self::WithHead => 0,
            Self::InPlace | Self::Fused | Self::Compiled | Self::Uncast => compute_bytes,
            Self::OverSoftmax | Self::OverCopy | Self::Apart | Self::LossParallel => 4,
        }
    }

    /// Further bytes per logit in the loss's backward, in addition to [`Self::saved_bytes`] and the returned gradient;
    /// `is_shared` says that tensor-parallel ranks share the vocabulary.
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
