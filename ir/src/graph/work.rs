//! What a sharded block does: kernels, exchanges, and what it keeps for backward.
//!
//! Everything here is counted from the operators, their shapes and the placement of their tensors.
//! Nothing here knows how long anything takes.

use std::collections::BTreeSet;

use super::block::OpId;
use super::op::AttentionMask;
use super::recompute::BlockRecompute;
use super::sharding::Sharding;
use super::switches::{EmbeddingTable, Switches};
use super::tensor::Sizes;
use crate::collective::Collective;
use crate::units::{Bytes, Flops};

/// In what circumstances a block does its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Setting {
    /// Batch and sequence.
    pub sizes: Sizes,
    /// How the operators are sharded.
    pub sharding: Sharding,
    /// Bytes of an element in the precision of the step.
    pub compute_bytes: u64,
    /// Whether the block is the first and takes data: no gradient leaves it.
    pub takes_data: bool,
    /// Whether linear layers that read the same tensor run as one product.
    pub fuses_projections: bool,
    /// Of how many elements each tensor-parallel rank's part of a vocabulary is a multiple, padded.
    pub vocabulary_multiple: u32,
    /// What of an embedding's table a tensor-parallel rank has.
    pub embedding: EmbeddingTable,
    /// What is switched on.
    pub switches: Switches,
    /// Bits of an element of what linear layers keep of their inputs, where they keep these as they cast them for
    /// their products; else none.
    pub kept_bits: Option<u64>,
    /// Whether what experts put out is kept for backward.
    pub keeps_expert_outputs: bool,
}

/// The axis of the mesh that an exchange runs along.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Axis {
    /// Tensor parallelism, of all but experts.
    Tensor,
    /// Tensor parallelism of experts.
    ExpertTensor,
    /// Context parallelism.
    Context,
    /// Expert parallelism.
    Expert,
}

impl Axis {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Tensor, Self::ExpertTensor, Self::Context, Self::Expert];

    /// Whether operators are cut along it, so that their inputs are gathered and their outputs summed.
    pub const fn is_tensor(self) -> bool {
        matches!(self, Self::Tensor | Self::ExpertTensor)
    }
}

/// A part of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pass {
    /// From data to loss.
    Forward,
    /// Gradients of activations.
    InputGrad,
    /// Gradients of parameters.
    WeightGrad,
}

/// The shape of a kernel, on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kernel {
    /// `batch` products of `[m, k]` by `[k, n]`.
    MatMul {
        /// How many.
        batch: u64,
        /// Rows.
        m: u64,
        /// Columns.
        n: u64,
        /// What is summed over.
        k: u64,
    },
    /// Fused attention; its backward where the pass is [`Pass::InputGrad`].
    Attention(AttentionShape),
    /// Elementwise work, reductions and copies, bound by memory.
    Memory,
}

/// The shape of a fused attention, on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttentionShape {
    /// Sequences.
    pub batch: u64,
    /// Query heads.
    pub heads: u64,
    /// Key and value heads.
    pub kv_heads: u64,
    /// Queries of each head.
    pub queries: u64,
    /// Keys that there are for each query.
    pub context: u64,
    /// Features of a query and a key.
    pub head_dim: u64,
    /// Features of a value.
    pub value_head_dim: u64,
    /// Which keys a query looks at.
    pub mask: AttentionMask,
}

impl AttentionShape {
    /// Share of query-key pairs that the mask leaves.
    pub fn visible_fraction(&self) -> f64 {
        let s = self.context as f64;
        match self.mask {
            AttentionMask::Full => 1.0,
            AttentionMask::SlidingWindow { window } if (window as f64) < s => {
                let w = window as f64;
                (s * w - w * (w - 1.0) / 2.0) / (s * s)
            }
            AttentionMask::Causal | AttentionMask::SlidingWindow { .. } => (s + 1.0) / (2.0 * s),
        }
    }

    /// FLOPs of the two products of a forward over all pairs, masked or not.
    pub fn full_flops(&self) -> Flops {
        let pairs =
            self.batch as f64 * self.heads as f64 * self.queries as f64 * self.context as f64;
        Flops::new(2.0 * pairs * (self.head_dim + self.value_head_dim) as f64)
    }
}

/// A kernel of one pass, on one rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KernelWork {
    /// The operator that it belongs to; the first of those that share one product.
    pub op: OpId,
    /// In which pass it runs.
    pub pass: Pass,
    /// Its shape.
    pub kernel: Kernel,
    /// Operations that it executes; zero for [`Kernel::Memory`].
    pub flops: Flops,
    /// Bytes that it reads.
    pub read: Bytes,
    /// Bytes that it writes.
    pub written: Bytes,
}

/// A collective of one pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exchange {
    /// The operator that waits for it.
    pub op: OpId,
    /// In which pass it runs.
    pub pass: Pass,
    /// Along which axis.
    pub axis: Axis,
    /// What is done.
    pub collective: Collective,
    /// The size of the whole buffer, as [`Collective`] counts it.
    pub bytes: Bytes,
}

/// What of a tensor is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SavedPart {
    /// The tensor itself.
    Value,
    /// The tensor as it was cast for products.
    Cast,
    /// The tensor before context-parallel ranks exchanged it.
    Exchanged,
    /// A mask of one byte an element.
    Mask,
    /// Statistics of its rows, or indices: small beside the tensor.
    Statistics,
}

/// Something kept from forward to backward, on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The operator that made it.
    pub op: OpId,
    /// What of it is kept.
    pub part: SavedPart,
    /// Its size.
    pub bytes: Bytes,
    /// Whether selective recompute drops it.
    pub selective: bool,
    /// Whether selective recompute alone keeps it, to start from.
    pub is_start: bool,
    /// Whether it came into the block from outside.
    pub block_input: bool,
}

/// Parameters that a rank holds of a block: those that are trained in elements, frozen ones in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalParameters {
    /// Those that every data-parallel rank has.
    pub dense: u64,
    /// Those of experts, which expert parallelism shards.
    pub expert: u64,
    /// Those that are tied to another block's; held here too where that block is elsewhere.
    pub tied: u64,
    /// Among `dense`, those whose gradients are summands over the tensor-parallel ranks, each of which has some
    /// of the tokens or of the heads that they are for.
    pub partial_gradients: u64,
    /// Among `dense`, those of key-value heads that neighbouring tensor-parallel ranks have copies of, each with summands
    /// of the gradients.
    pub copied: u64,
    /// How many neighbours have copies of one.
    pub num_copies: u32,
    /// Among `expert`, the same over the ranks that share each expert.
    pub expert_partial_gradients: u64,
    /// Those that are not trained, which none of the others counts.
    pub frozen: FrozenParameters,
}

/// Frozen parameters that a rank holds of a block, as they are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrozenParameters {
    /// Those that every data-parallel rank has.
    pub dense: Bytes,
    /// Those of experts.
    pub expert: Bytes,
    /// Those that are tied to another block's; held here too where that block is elsewhere.
    pub tied: Bytes,
}

impl FrozenParameters {
    pub(super) fn add(&mut self, bytes: Bytes, is_expert: bool, is_tied: bool) {
        if is_tied {
            self.tied += bytes;
        } else if is_expert {
            self.expert += bytes;
        } else {
            self.dense += bytes;
        }
    }
}

/// All that a block does in a micro-batch, on one rank.
#[derive(Clone, Debug)]
pub struct BlockWork {
    /// Kernels of all passes.
    pub kernels: Vec<KernelWork>,
    /// Collectives of all passes.
    pub exchanges: Vec<Exchange>,
    /// What forward keeps for backward when nothing is recomputed.
    pub saved: Vec<Saved>,
    /// Parameters held.
    pub parameters: LocalParameters,
    /// What leaves the block: the message to the next pipeline stage.
    pub output: Bytes,
    /// The largest tensor that an operator puts out.
    pub largest_tensor: Bytes,
    /// The largest weight that is made from a quantised one for a product, as the product reads it.
    pub dequantised: Bytes,
    /// Operators that selective recompute runs again.
    pub selective: BTreeSet<OpId>,
}

impl BlockWork {
    /// Bytes kept from forward to backward under a policy.
    pub fn saved_bytes(&self, recompute: BlockRecompute) -> Bytes {
        self.saved
            .iter()
            .filter(|saved| match recompute {
                BlockRecompute::None => !saved.is_start,
                BlockRecompute::Selective => !saved.selective,
                BlockRecompute::Full => saved.block_input,
            })
            .map(|saved| saved.bytes)
            .sum()
    }

    /// Elements of the largest weight whose gradient one product makes; of experts, of one.
    pub fn largest_weight(&self) -> u64 {
        let of = |kernel: &KernelWork| match kernel {
            KernelWork { pass: Pass::WeightGrad, kernel: Kernel::MatMul { m, n, .. }, .. } => m * n,
            _ => 0,
        };
        self.kernels.iter().map(of).max().unwrap_or(0)
    }

    /// Whether `op` runs again in backward under a policy.
    pub fn is_recomputed(&self, op: OpId, recompute: BlockRecompute) -> bool {
        match recompute {
            BlockRecompute::None => false,
            BlockRecompute::Selective => self.selective.contains(&op),
            BlockRecompute::Full => true,
        }
    }
}
