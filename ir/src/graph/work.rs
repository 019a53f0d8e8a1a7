//! Work of a sharded block on one rank: kernels, exchanges, and activations saved for backward.
//!
//! Everything here is counted from the operators, their shapes and the placement of their tensors.
//! Nothing here knows how long anything takes.

use std::collections::BTreeSet;

use super::block::OpId;
use super::loss::{LossGradient, LossKind};
use super::mask::AttentionMask;
use super::offload::OffloadModules;
use super::recompute::BlockRecompute;
use super::sharding::Sharding;
use super::switches::{EmbeddingTable, Switches};
use super::tensor::Sizes;
use crate::collective::Collective;
use crate::units::{Bytes, Flops};

/// Sizes, sharding and framework options under which a block's work is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct ShardContext {
    /// Micro-batch size and sequence length.
    pub sizes: Sizes,
    /// Sharding of the operators.
    pub sharding: Sharding,
    /// Bytes of an element in the precision of the step.
    pub compute_bytes: u64,
    /// True if the block is the first and its input is data: it computes no gradient of its input.
    pub reads_data: bool,
    /// True if linear layers that read the same tensor run as one product.
    pub fuses_projections: bool,
    /// Each tensor-parallel rank's shard of the vocabulary is padded to a multiple of this number of elements.
    pub vocabulary_multiple: u32,
    /// Part of an embedding's table that a tensor-parallel rank holds.
    pub embedding: EmbeddingTable,
    /// Dispatcher, overlap and CUDA graphs of the run.
    pub switches: Switches,
    /// Bits per element of the saved inputs of linear layers, where these are saved as cast for the matrix products;
    /// `None` where they are not.
    pub kept_bits: Option<u64>,
    /// True if the outputs of experts are saved for backward.
    pub keeps_expert_outputs: bool,
    /// True if operators run as several PyTorch functions, one after the other.
    pub is_eager: bool,
    /// True if a gated activation runs as two functions, and the product saves the function of the gate.
    pub keeps_gates: bool,
    /// True if the kernel of Mamba-2's scan also runs gate, norm and projection, and saves nothing between them.
    pub scans_to_projection: bool,
    /// Loss computation.
    pub loss: LossKind,
    /// Tokens that go to the experts of a rank.
    pub routed: RoutedTokens,
    /// Documents in the sequences; `None` where a sequence is one document.
    pub documents: Option<DocumentSizes>,
    /// True if the host gathers the parameters of each operator for each pass.
    pub gathers_by_operator: bool,
    /// True if inputs that a rank gathered for its matrix products are saved whole.
    pub keeps_gathered: bool,
    /// The modules whose saved tensors are in the host's memory; `None` where those of whole blocks are.
    pub offloaded: Option<OffloadModules>,
}

/// Documents in the sequences of the replica that all others wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentSizes {
    /// Length of the document that a token belongs to, averaged over the tokens of a sequence: the number of keys of a
    /// query, before masking.
    pub attended: u64,
    /// Tokens of a sequence including its padding, averaged over micro-batches: they decide the time.
    pub padded: u64,
    /// Tokens of the longest sequences in a step: they decide the memory.
    pub longest: u64,
}

/// Tokens that go to the experts of a rank, in thousandths of their number with an even spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoutedTokens {
    /// On the rank that all others wait for, in one layer.
    pub busiest: u64,
    /// On the rank that gets the most over all layers: it decides the memory.
    pub fullest: u64,
}

impl RoutedTokens {
    /// Equal loads on all ranks.
    pub const BALANCED: Self = Self { busiest: 1000, fullest: 1000 };
}

impl ShardContext {
    /// A block that is not the first, in 16 bits; every operator is one kernel, and so are linear layers that read the
    /// same input.
    pub const fn plain(sizes: Sizes, sharding: Sharding) -> Self {
        Self {
            sizes,
            sharding,
            compute_bytes: 2,
            reads_data: false,
            fuses_projections: true,
            vocabulary_multiple: 1,
            embedding: EmbeddingTable::Part,
            switches: Switches::USUAL,
            kept_bits: None,
            keeps_expert_outputs: true,
            is_eager: false,
            keeps_gates: false,
            scans_to_projection: false,
            loss: LossKind::usual(LossGradient::Apart),
            routed: RoutedTokens::BALANCED,
            documents: None,
            gathers_by_operator: false,
            keeps_gathered: false,
            offloaded: None,
        }
    }
}

/// The axis of the mesh that an exchange runs along.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Axis {
    /// Tensor parallelism of all operators but experts.
    Tensor,
    /// Tensor parallelism of experts.
    ExpertTensor,
    /// Context parallelism.
    Context,
    /// Expert parallelism.
    Expert,
}

impl Axis {
    /// All axes.
    pub const ALL: [Self; 4] = [Self::Tensor, Self::ExpertTensor, Self::Context, Self::Expert];

    /// True if operators are sharded along the axis, so that their inputs are gathered and their outputs summed.
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
        /// Number of products.
        batch: u64,
        /// Rows of the output.
        m: u64,
        /// Columns of the output.
        n: u64,
        /// Size of the dimension that is summed over.
        k: u64,
    },
    /// Fused attention; its whole backward is in the pass [`Pass::InputGrad`].
    Attention(AttentionShape),
    /// Elementwise work, reductions and copies, bound by memory.
    Memory,
}

/// The shape of a fused attention, on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttentionShape {
    /// Number of sequences.
    pub batch: u64,
    /// Number of query heads.
    pub heads: u64,
    /// Number of key and value heads.
    pub kv_heads: u64,
    /// Number of queries of each head.
    pub queries: u64,
    /// Number of keys for each query, before masking.
    pub context: u64,
    /// Number of features of a query and a key.
    pub head_dim: u64,
    /// Number of features of a value.
    pub value_head_dim: u64,
    /// Keys that a query attends to.
    pub mask: AttentionMask,
    /// Tokens of a document in the sequence, beyond which no query attends; the sequence length where the sequence is
    /// one document.
    pub document: u64,
}

impl AttentionShape {
    /// Fraction of query-key pairs that remain after the mask and the borders of documents.
    pub fn visible_fraction(&self) -> f64 {
        let s = self.document as f64;
        let within = match self.mask {
            AttentionMask::Full => 1.0,
            AttentionMask::SlidingWindow { window: keys } | AttentionMask::Chosen { keys }
                if (keys as f64) < s =>
            {
                let w = keys as f64;
                (s * w - w * (w - 1.0) / 2.0) / (s * s)
            }
            AttentionMask::Causal
            | AttentionMask::SlidingWindow { .. }
            | AttentionMask::Chosen { .. } => (s + 1.0) / (2.0 * s),
            AttentionMask::Chunked { length } => {
                let length = (length as f64).min(s);
                let (whole, rest) = ((s / length).floor(), s % length);
                (whole * length * (length + 1.0) + rest * (rest + 1.0)) / (2.0 * s * s)
            }
            // All later positions attend to each block, but only as far as it is among the chosen ones.
            AttentionMask::Compressed { window, block, keys } => {
                let (w, block) = ((window as f64).min(s), block as f64);
                let chosen = keys.map_or(f64::INFINITY, |keys| keys as f64).min(s / block);
                let blocks = s * chosen - block * chosen * chosen / 2.0;
                (s * w - w * (w - 1.0) / 2.0 + blocks) / (s * s)
            }
        };
        within * s / self.context as f64
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
    /// The operator that the kernel belongs to; the first of those that share one product.
    pub op: OpId,
    /// Pass in which the kernel runs.
    pub pass: Pass,
    /// Shape of the kernel.
    pub kernel: Kernel,
    /// Operations that the kernel executes; zero for most of [`Kernel::Memory`].
    pub flops: Flops,
    /// Bytes that the kernel reads.
    pub read: Bytes,
    /// Bytes that the kernel writes.
    pub written: Bytes,
}

/// A collective of one pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exchange {
    /// The operator that waits for it.
    pub op: OpId,
    /// Pass in which the collective runs.
    pub pass: Pass,
    /// Axis of the mesh along which the collective runs.
    pub axis: Axis,
    /// Kind of collective.
    pub collective: Collective,
    /// The size of the whole buffer, as [`Collective`] counts it.
    pub bytes: Bytes,
}

/// Part of a tensor that is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SavedPart {
    /// The tensor itself.
    Value,
    /// The tensor as it was cast for products.
    Cast,
    /// The tensor before context-parallel ranks exchanged it.
    Exchanged,
    /// Additional tensors that the functions of an operator save where it runs function by function.
    Between,
    /// The outputs of experts' activation functions before the router's weights multiply them.
    Unweighted,
    /// A mask of one byte per element.
    Mask,
    /// Statistics of the tensor's rows, or indices: small compared to the tensor.
    Statistics,
}

/// A tensor saved from forward to backward, on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Saved {
    /// The operator that produced it.
    pub op: OpId,
    /// Part of the tensor that is saved.
    pub part: SavedPart,
    /// Size in bytes.
    pub bytes: Bytes,
    /// The last operator whose backward needs it.
    pub until: OpId,
    /// True if it can be offloaded: where modules to offload were chosen, all operators that save it belong to them.
    pub is_offloadable: bool,
    /// True if selective recompute drops it.
    pub selective: bool,
    /// True if only selective recompute saves it, as an input to the recomputation.
    pub is_start: bool,
    /// True if it is an input of the block.
    pub block_input: bool,
    /// True if the preceding block saves it too, unless that block is recomputed.
    pub is_shared: bool,
}

/// Parameters of a block that a rank holds: trained ones in elements, frozen ones in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalParameters {
    /// Parameters that every data-parallel rank holds.
    pub dense: u64,
    /// Parameters of experts, which expert parallelism shards.
    pub expert: u64,
    /// Parameters tied to those of another block; also held here if that block is on another stage.
    pub tied: u64,
    /// Subset of `dense`: parameters whose gradients are partial sums over the tensor-parallel ranks, each of which
    /// has some of the tokens or heads.
    pub partial_gradients: u64,
    /// Subset of `dense`: parameters of key-value heads that neighbouring tensor-parallel ranks replicate, each with
    /// partial sums of the gradients.
    pub copied: u64,
    /// Number of neighbouring ranks that hold a copy of the same key-value head.
    pub num_copies: u32,
    /// Subset of `expert`: parameters whose gradients are partial sums over the ranks that share each expert.
    pub expert_partial_gradients: u64,
    /// Frozen parameters, which no other field counts.
    pub frozen: FrozenParameters,
    /// Trained and frozen weights that are cast to 8 or 4 bits for products.
    pub cast: u64,
    /// Shapes of `dense`.
    pub dense_shapes: ShapeCounts,
    /// Shapes of `expert`.
    pub expert_shapes: ShapeCounts,
}

impl LocalParameters {
    /// All trained parameters.
    pub const fn trained(&self) -> u64 {
        self.dense + self.expert
    }

    /// Adds the parameters of `count` such blocks, except tied ones: whether these are held here depends on where the
    /// other block is.
    pub fn add_times(&mut self, block: &Self, count: u64) {
        self.dense += block.dense * count;
        self.expert += block.expert * count;
        self.partial_gradients += block.partial_gradients * count;
        self.copied += block.copied * count;
        self.num_copies = self.num_copies.max(block.num_copies);
        self.expert_partial_gradients += block.expert_partial_gradients * count;
        self.frozen.dense += block.frozen.dense * count;
        self.frozen.expert += block.frozen.expert * count;
        self.cast += block.cast * count;
        self.dense_shapes.add_times(block.dense_shapes, count);
        self.expert_shapes.add_times(block.expert_shapes, count);
    }
}

/// Counts of the trained parameters on a rank, for optimizers that treat matrices as matrices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShapeCounts {
    /// Parameters outside the matrices of layers: those of tables, heads, norms, convolutions and biases.
    pub outside_matrices: u64,
    /// Rows and columns of all matrices, tables among them, and elements of all other parameters.
    pub rows_and_columns: u64,
    /// FLOPs of one iteration of Newton and Schulz on each matrix of a layer.
    pub iteration_flops: u64,
}

impl ShapeCounts {
    /// Adds `matrices` parameters of `rows` x `columns`; `is_of_layer` says that they are neither tables nor heads.
    ///
    /// An iteration computes `X <- a X + (b A + c A^2) X` with `A = X X^T`, for `r` rows and `c >= r` columns:
    ///
    /// ```text
    /// 2 r^2 c + 2 r^3 + 2 r^2 c
    /// ```
    ///
    /// # Source
    ///
    /// Jordan et al. 2024, *Muon: An optimizer for hidden layers in neural networks*.
    pub(super) fn add_matrices(
        &mut self,
        matrices: u64,
        [rows, columns]: [u64; 2],
        is_of_layer: bool,
    ) {
        self.rows_and_columns += matrices * (rows + columns);
        if is_of_layer {
            let [r, c] = [rows.min(columns), rows.max(columns)];
            let square = r.saturating_mul(r);
            let each = square.saturating_mul(c.saturating_mul(4).saturating_add(2 * r));
            self.iteration_flops =
                self.iteration_flops.saturating_add(matrices.saturating_mul(each));
        } else {
            self.outside_matrices += matrices * rows * columns;
        }
    }

    /// Adds parameters that are not matrices.
    pub(super) const fn add_elements(&mut self, elements: u64) {
        self.outside_matrices += elements;
        self.rows_and_columns += elements;
    }

    /// Adds the counts of `count` equal blocks.
    pub const fn add_times(&mut self, other: Self, count: u64) {
        self.outside_matrices += other.outside_matrices * count;
        self.rows_and_columns += other.rows_and_columns * count;
        let flops = other.iteration_flops.saturating_mul(count);
        self.iteration_flops = self.iteration_flops.saturating_add(flops);
    }
}

/// Frozen parameters of a block that a rank holds, in bytes as stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrozenParameters {
    /// Parameters that every data-parallel rank holds.
    pub dense: Bytes,
    /// Parameters of experts.
    pub expert: Bytes,
    /// Parameters tied to those of another block; also held here if that block is on another stage.
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

/// All work of a block for one micro-batch, on one rank.
#[derive(Clone, Debug, Default)]
pub struct BlockWork {
    /// Kernels of all passes.
    pub kernels: Vec<KernelWork>,
    /// Collectives of all passes.
    pub exchanges: Vec<Exchange>,
    /// Tensors that forward saves for backward, under all recompute policies.
    pub saved: Vec<Saved>,
    /// Parameters of the block on one rank.
    pub parameters: LocalParameters,
    /// Bytes of the block's output: the message to the next pipeline stage.
    pub output: Bytes,
    /// Peak memory of activation gradients within backward, less the saved tensors that backward has freed by then.
    pub gradients: Bytes,
    /// Bytes of the largest weight that is dequantised for a product, in the format in which the product reads it.
    pub dequantised: Bytes,
    /// Operators that selective recompute runs again in backward.
    pub selective: BTreeSet<OpId>,
    /// The head that is computed in chunks with the loss, and their number; `None` without such a loss.
    pub head_chunks: Option<(OpId, u64)>,
}

impl BlockWork {
    /// Bytes saved from forward to backward under a policy.
    pub fn saved_bytes(&self, recompute: BlockRecompute) -> Bytes {
        self.saved_under(recompute).map(|saved| saved.bytes).sum()
    }

    /// Part of [`Self::saved_bytes`] that can be offloaded.
    pub fn offloadable_bytes(&self, recompute: BlockRecompute) -> Bytes {
        let saved = self.saved_under(recompute).filter(|saved| saved.is_offloadable);
        saved.map(|saved| saved.bytes).sum()
    }

    /// Tensors saved from forward to backward under a policy.
    fn saved_under(&self, recompute: BlockRecompute) -> impl Iterator<Item = &Saved> {
        self.saved.iter().filter(move |saved| match recompute {
            BlockRecompute::None => !saved.is_start && !saved.is_shared,
            BlockRecompute::Selective => !saved.selective,
            BlockRecompute::Full => saved.block_input,
        })
    }

    /// Bytes that a block saves without recompute in addition, where the preceding block is on another stage or is
    /// recomputed.
    pub fn shared_bytes(&self) -> Bytes {
        self.saved.iter().filter(|saved| saved.is_shared).map(|saved| saved.bytes).sum()
    }

    /// Elements of the largest weight whose gradient one product computes; for experts, the weight of one expert.
    pub fn largest_weight(&self) -> u64 {
        let of = |kernel: &KernelWork| match kernel {
            KernelWork { pass: Pass::WeightGrad, kernel: Kernel::MatMul { m, n, .. }, .. } => m * n,
            _ => 0,
        };
        self.kernels.iter().map(of).max().unwrap_or(0)
    }

    /// Returns whether `op` runs again in backward under a policy.
    pub fn is_recomputed(&self, op: OpId, recompute: BlockRecompute) -> bool {
        match recompute {
            BlockRecompute::None => false,
            BlockRecompute::Selective => self.selective.contains(&op),
            BlockRecompute::Full => true,
        }
    }

    /// The last operator whose output backward reads.
    pub fn last_saved(&self) -> Option<OpId> {
        self.saved.iter().filter(|saved| !saved.is_start).map(|saved| saved.op).max()
    }
}
