//! Behaviour of a framework, as named choices and fitted constants.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cluster::Architecture;
use crate::graph::{EmbeddingTable, Graph, LossGradient, USUAL_CHUNKS};

named_enum! {
    /// Attention implementation that a framework calls.
    pub enum AttentionLibrary {
        /// FlashAttention of 2022, also as Triton kernels.
        FlashAttention1 = "flash-attention-1",
        /// FlashAttention-2, which PyTorch's `scaled_dot_product_attention` also calls.
        FlashAttention2 = "flash-attention-2",
        /// cuDNN, or FlashAttention-3 on Hopper, as Transformer Engine chooses between them.
        Cudnn = "cudnn",
        /// No fused kernel: scores, softmax and weighted sum are separate kernels, and scores are stored.
        Unfused = "unfused",
    }
}

/// Kernels of a framework.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct KernelHabits {
    /// Attention implementation.
    pub attention: AttentionLibrary,
    /// Attention implementation on GPUs of particular architectures, where it differs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attention_by_architecture: BTreeMap<Architecture, AttentionLibrary>,
    /// Execution of linear layers that read the same tensor.
    pub projections: Projections,
    /// Units that run matrix products whose rows do not begin at multiples of 16 bytes.
    pub unaligned_rows: UnalignedRows,
    /// Number of kernels for norms, activation functions and rotary embeddings.
    pub fusion: Fusion,
    /// Choice of kernels for the shapes of matrix products and attention, where the default choice of a GPU's
    /// libraries is poor.
    #[serde(default, skip_serializing_if = "is_default")]
    pub choice: KernelChoice,
    /// Kernels that run activation functions and casts of experts.
    #[serde(default)]
    pub expert_activations: ExpertActivations,
    /// Operators of Mamba-2 that the kernel of the scan runs.
    #[serde(default, skip_serializing_if = "is_default")]
    pub scan: ScanKernel,
    /// Memory traffic of norms, activation functions, dropout, residuals and rotary embeddings, over that of one
    /// kernel each that reads its inputs and writes its outputs once.
    pub elementwise_traffic: f64,
    /// Kernels of the loss.
    pub loss: LossKernels,
}

named_enum! {
    /// Choice of kernels for the shapes of matrix products and attention.
    #[derive(Default)]
    pub enum KernelChoice {
        /// By the libraries' heuristics.
        #[default]
        Heuristic = "heuristic",
        /// By measuring all kernels for the shapes of the model, as in AMD's containers of Megatron-Core (hipBLASLt's
        /// tuning, AITER).
        Tuned = "tuned",
    }
}

pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

named_enum! {
    /// Part of a model that is compiled, where a framework leaves this to the user.
    pub enum Compile {
        /// Nothing: PyTorch runs function by function.
        None = "none",
        /// Each block by itself.
        Regional = "regional",
        /// All blocks, and the loss.
        Full = "full",
    }
}

/// Kernels of the loss.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LossKernels {
    /// Storage of the gradient of the loss.
    pub gradient: LossGradient,
    /// Number of chunks that tokens are split into, for `chunked`.
    #[serde(default = "usual_chunks", skip_serializing_if = "is_usual")]
    pub chunks: u64,
    /// Bytes read and written in forward, per logit.
    pub forward_bytes_per_logit: f64,
    /// Bytes read and written in backward, per logit.
    pub backward_bytes_per_logit: f64,
    /// Bytes per logit that stay allocated in addition to the tensors that the loss saves, such as logits in pipeline
    /// buffers.
    #[serde(default, skip_serializing_if = "is_default")]
    pub buffer_bytes_per_logit: f64,
}

const fn usual_chunks() -> u64 {
    USUAL_CHUNKS
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
const fn is_usual(chunks: &u64) -> bool {
    *chunks == USUAL_CHUNKS
}

/// Behaviour of the host.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct HostHabits {
    /// Time at which the host launches kernels.
    pub launches: Launches,
    /// Time to launch the kernels of one operator of the graph, in one pass, in microseconds.
    pub microseconds_per_operator: f64,
    /// Time in each step for which the device waits for the host outside of passes, in milliseconds.
    #[serde(default)]
    pub milliseconds_per_step: f64,
}

/// Accumulation and reduction of parameter gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GradientHabits {
    /// Accumulation over micro-batches.
    pub accumulation: GradientAccumulation,
    /// Time at which gradients are reduced over the replicas.
    pub reduced: WhenReduced,
    /// Number format of the reduction.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reduced_as: GradientFormat,
    /// Part of the gradient sum that a rank holds with ZeRO-1.
    pub zero_1_sum: GradientSum,
    /// Part of the sum over micro-batches that a rank holds with ZeRO-2 and 3: the shard that each gradient was
    /// reduced to, or the whole sum, which is reduced with the last micro-batch only (PyTorch FSDP's `no_sync` and
    /// `set_requires_gradient_sync(False)`).
    #[serde(default)]
    pub sharded_sum: GradientSum,
}

/// Gathering of parameters, and how long they stay gathered.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ParameterHabits {
    /// Time at which updated parameters are gathered.
    pub gathered: UpdatedParameters,
    /// Parameters that a pipeline stage keeps gathered with ZeRO-3.
    pub zero_3_stage: StageParameters,
    /// Weights that are sharded with ZeRO-3.
    #[serde(default, skip_serializing_if = "is_default")]
    pub zero_3_shards: WeightShards,
    /// Copies into and out of the buffers that ZeRO exchanges.
    #[serde(default, skip_serializing_if = "is_default")]
    pub buffers: ExchangeBuffers,
    /// Time for each rank's shard of updated parameters, in addition to the time for its bytes, in microseconds, where
    /// each shard is broadcast separately.
    pub microseconds_per_shard: f64,
    /// Host time to gather and release the parameters of one operator in one pass with ZeRO-3, in microseconds, where
    /// hooks of each module do so in Python; 0 where whole blocks are gathered.
    #[serde(default, skip_serializing_if = "is_default")]
    pub microseconds_per_gather: f64,
}

/// Behaviour of tensor-parallel ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TensorHabits {
    /// Work that overlaps tensor-parallel exchanges.
    pub overlap: TensorOverlap,
    /// Format in which inputs of 8-bit products are gathered.
    pub gathers: TensorGathers,
    /// Part of the gathered inputs that is saved for backward, with sequence parallelism.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gathered_inputs: GatheredInputs,
    /// The vocabulary of each rank is padded to a multiple of this number of elements.
    pub vocabulary_multiple: u32,
    /// Part of the logits that a rank's loss reads.
    #[serde(default)]
    pub logits: Logits,
    /// Part of an embedding's table that a rank holds.
    #[serde(default)]
    pub embedding: EmbeddingTable,
}

/// Behaviour of pipeline ranks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PipelineHabits {
    /// Activity of a rank while it exchanges messages.
    pub messages: MessageOverlap,
    /// Part of the message that each tensor-parallel rank sends, where these ranks have the same message.
    pub message_bytes: MessageBytes,
    /// Time from the arrival of a message that the device waits for until the device continues, in microseconds: the
    /// host waits for the message, and only then launches kernels.
    pub microseconds_per_awaited_message: f64,
}

/// Routing of tokens to their experts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ExpertHabits {
    /// Largest number of network domains that a token's experts are in, where the router enforces one (DeepSeek-AI
    /// 2024, arXiv 2412.19437, section 2.1.2: node-limited routing).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_domains: Option<u32>,
}

/// Ratio of the time of an exchange in a step to that of the same collective alone.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TransferFactors {
    /// Ratio for exchanges within blocks.
    pub within_blocks: f64,
    /// Ratio for exchanges over replicas.
    pub over_replicas: f64,
}

/// Memory that a framework holds in addition to that which a layout implies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MemoryHabits {
    /// Bytes that blocks save for backward, over those with one fused kernel per operator.
    pub saved: f64,
    /// Form in which linear layers save inputs that are cast for their products.
    pub inputs: KeptInputs,
    /// Treatment of experts' outputs from forward to backward.
    pub expert_outputs: ExpertOutputs,
    /// Treatment of 16-bit gradients that are accumulated in 32 bits.
    pub gradients_in_16_bits: GradientCopies,
    /// True if replicas that share no states reduce copies of their gradients, in buckets that stay.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gradient_buckets: bool,
    /// True if weights that products read in 8 bits are also stored so, in place of 16 bits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stores_8_bits: bool,
    /// Number of flat 16-bit copies of the parameters, for reductions and gathers.
    pub parameter_copies: f64,
    /// Bytes per parameter that a rank updates, in addition to the optimizer's state.
    pub update_bytes: f64,
    /// Number of parameters of a rank that ZeRO 3 updates at once, each with these bytes; all if not stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at_once: Option<u64>,
    /// Temporary memory of the update.
    #[serde(default, skip_serializing_if = "is_default")]
    pub update_buffers: UpdateBuffers,
    /// Workspace that cuBLAS takes from the allocator, for each host thread that runs matrix products.
    #[serde(default)]
    pub cublas_workspace: CublasWorkspace,
    /// True if linear layers are those of Transformer Engine, which has workspaces of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub transformer_engine: bool,
    /// Memory of libraries in addition to CUDA's context, in GiB: workspaces, communicators' buffers.
    pub libraries_gib: f64,
}

named_enum! {
    /// Workspace that cuBLAS takes from PyTorch's allocator.
    #[derive(Default)]
    pub enum CublasWorkspace {
        /// None: the matrix products are not PyTorch's.
        #[default]
        None = "none",
        /// The default that PyTorch chooses for the GPU.
        Default = "default",
        /// `CUBLAS_WORKSPACE_CONFIG=:4096:8`, for deterministic products.
        Deterministic = "deterministic",
    }
}

/// Temporary memory of the update, in bytes for each parameter that a rank updates. Its buffers differ in size from
/// those of forward and backward, so the allocator keeps both as long as the GPU has enough memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct UpdateBuffers {
    /// At the peak: gradients in fp32, and temporary tensors of the optimizer.
    pub held: f64,
    /// Allocated and freed before the peak. With sharded parameters (ZeRO-3) nothing is concatenated, and later
    /// allocations reuse what was freed.
    pub freed: f64,
}

choices! {
    /// Kernels that run activation functions and casts of experts.
    #[derive(Default)]
    pub enum ExpertActivations {
        /// Separate kernels.
        #[default]
        Apart,
        /// The matrix products themselves (Megatron-Core's fused grouped products in CuTe DSL).
        WithinProducts,
    }

    /// Operators of Mamba-2 that the kernel of the scan runs.
    #[derive(Default)]
    pub enum ScanKernel {
        /// Convolutions and the scan.
        #[default]
        Scan,
        /// Gate, norm and projection too; of what follows the scan, its output alone is saved.
        ToProjection,
    }

    /// Number of kernels for norms, activation functions and rotary embeddings.
    pub enum Fusion {
        /// One each, written by hand: Apex, Transformer Engine, FlashAttention's, Megatron's compiled functions.
        Kernels,
        /// One each, but two for a gated activation: the function of the gate, and its product.
        KernelsButGates,
        /// One each or fewer: `torch.compile`, XLA.
        Compiled,
        /// One for each function that their PyTorch code calls.
        Eager,
    }

    /// Units that run matrix products whose rows do not begin at multiples of 16 bytes.
    pub enum UnalignedRows {
        /// Units other than the tensor cores: cuBLAS of 2022.
        VectorUnits,
        /// The tensor cores, which wait for their loads: cuBLAS since then.
        TensorCores,
    }

    /// Execution of linear layers that read the same tensor.
    pub enum Projections {
        /// As one product.
        Fused,
        /// One after the other.
        Apart,
    }

    /// Time at which the host launches kernels.
    pub enum Launches {
        /// While the device runs the kernels before.
        Ahead,
        /// After the kernel before has ended (`CUDA_LAUNCH_BLOCKING=1`), so that no launch time is hidden.
        Blocking,
    }

    /// Accumulation of parameter gradients over micro-batches.
    pub enum GradientAccumulation {
        /// No accumulation: each gradient is reduced to the rank that updates the parameter.
        None,
        /// By a separate kernel that adds a gradient to the sum.
        Separate,
        /// In the matrix product that computes the gradient, where there is one: Megatron-LM's gradient accumulation
        /// fusion, from 2022 for sums in fp32, and from later that year for sums in 16 bits.
        Fused,
    }

    /// Time at which gradients are reduced over the replicas.
    pub enum WhenReduced {
        /// While the last backward runs.
        BesideBackward,
        /// After the last backward.
        AfterBackward,
    }

    /// Number format in which gradients are reduced over the replicas.
    #[derive(Default)]
    pub enum GradientFormat {
        /// The format in which they are stored.
        #[default]
        Held,
        /// In fp32, cast bucket by bucket.
        Fp32,
    }

    /// Part of the gradient sum that a rank holds where each rank updates a part of the parameters.
    #[derive(Default)]
    pub enum GradientSum {
        /// The part for the parameters that it updates.
        #[default]
        Part,
        /// The whole sum, of which it uses a part.
        Whole,
        /// The whole sum where the layout has pipelines, for ZeRO-2 and 3 (PyTorch's pipelines of FSDP modules).
        WholeInPipelines,
    }

    /// Weights of which ranks hold shards with ZeRO-3.
    #[derive(Default)]
    pub enum WeightShards {
        /// 16-bit copies in addition to the optimizer's master weights: DeepSpeed's.
        #[default]
        Copies,
        /// The master weights, which are cast when they are gathered: PyTorch's FSDP.
        Masters,
    }

    /// Copies into and out of the buffers that ZeRO exchanges, by kernels between those of passes.
    #[derive(Default)]
    pub enum ExchangeBuffers {
        /// None: parameters and gradients lie in the buffers.
        #[default]
        InPlace,
        /// Gradients are copied in: PyTorch's first FSDP, whose parameters are views of the buffer.
        GradientsCopied,
        /// Gradients are copied in, and gathered parameters out: PyTorch's `fully_shard`, which shards each parameter,
        /// and DeepSpeed.
        Copied,
    }

    /// Time at which updated parameters are gathered.
    pub enum UpdatedParameters {
        /// While the next forward runs.
        BesideForward,
        /// Before the next forward.
        BeforeForward,
    }

    /// Parameters that a pipeline stage keeps gathered with ZeRO-3.
    pub enum StageParameters {
        /// Those of the block that is being computed, and of the next.
        TwoBlocks,
        /// All parameters of the stage, and their gradients, until the step ends.
        WholeStage,
    }

    /// Part of the logits that the loss of a tensor-parallel rank reads.
    #[derive(Default)]
    pub enum Logits {
        /// Those of the rank's part of the vocabulary: Megatron-LM's vocabulary-parallel cross-entropy, torchtitan's
        /// parallel loss.
        #[default]
        Part,
        /// All logits, gathered: DTensor plans that replicate the head's output.
        Whole,
    }

    /// Work that overlaps tensor-parallel exchanges.
    pub enum TensorOverlap {
        /// Nothing.
        None,
        /// In backward, the product for the other gradient: Megatron-LM since 2022
        /// (`linear_with_grad_accumulation_and_async_allreduce`), and nanotron.
        Gradients,
        /// The products that read or write the exchanged tensor, piece by piece: Transformer Engine's user buffers,
        /// PyTorch's asynchronous tensor parallelism.
        Products,
    }

    /// Part of the gathered inputs that tensor-parallel ranks save for backward.
    #[derive(Default)]
    pub enum GatheredInputs {
        /// The rank's own part, which is gathered again: Korthikanti et al. 2022 (arXiv 2205.05198), section 4.2.2.
        #[default]
        Part,
        /// The whole: where gather and product are separate functions, and PyTorch saves the product's input.
        Whole,
    }

    /// Format in which tensor-parallel ranks gather inputs of 8-bit products.
    pub enum TensorGathers {
        /// 16 bits; the cast follows.
        #[serde(rename = "16-bit")]
        Bits16,
        /// 8 bits, cast before the gather.
        #[serde(rename = "8-bit")]
        Bits8,
    }

    /// Activity of a pipeline rank while it exchanges messages.
    pub enum MessageOverlap {
        /// It computes.
        BesidePasses,
        /// It waits.
        Awaited,
    }

    /// Part of a message that each tensor-parallel rank sends, where these ranks have the same message.
    pub enum MessageBytes {
        /// A part; the receiving ranks gather the parts.
        Part,
        /// The whole message.
        Whole,
    }

    /// Division of a causal mask among context-parallel ranks.
    #[derive(Default)]
    pub enum CausalPieces {
        /// Every rank has the same amount of work.
        #[default]
        Balanced,
        /// Each has one contiguous piece of the sequence, and the last rank has the most work.
        Plain,
    }

    /// Point up to which the forward of a fully recomputed layer runs again.
    #[derive(Default)]
    pub enum RecomputeEnd {
        /// The end of the layer.
        #[default]
        Layer,
        /// The last tensor that backward reads, which leaves out the layer's last product.
        LastSaved,
    }

    /// Operators that selective recompute runs again, where no modules are named.
    #[derive(Default)]
    pub enum SelectiveRecompute {
        /// Operators that are cheap relative to the bytes saved.
        #[default]
        Cheap,
        /// All but attention, exchanges of experts' tokens, and every other linear layer.
        EveryOtherLinear,
    }

    /// Form in which linear layers save inputs that are cast to 8 or 4 bits for their products.
    pub enum KeptInputs {
        /// As cast.
        Cast,
        /// Uncast, in 16 bits.
        Uncast,
    }

    /// Treatment of experts' outputs.
    pub enum ExpertOutputs {
        /// They are saved, for the gradient of the router's weights, which multiply them.
        Kept,
        /// Their memory is reused: the router's weights multiply the outputs of the experts' activation functions
        /// instead.
        Freed,
    }

    /// Treatment of 16-bit gradients after they were accumulated in 32 bits.
    pub enum GradientCopies {
        /// Their memory is reused.
        Freed,
        /// They stay allocated.
        Kept,
        /// They stay allocated where there are replicas, in the buckets that replicas reduce.
        KeptByReplicas,
    }
}

impl Fusion {
    /// True if the function of a gate and its product are two kernels.
    pub const fn runs_gates_apart(self) -> bool {
        matches!(self, Self::KernelsButGates | Self::Eager)
    }
}

impl SelectiveRecompute {
    /// The graph with this selective recompute marked, unless its modules were chosen.
    pub fn marked(self, graph: Graph) -> Graph {
        match self {
            Self::EveryOtherLinear if graph.recomputed_modules().is_none() => {
                graph.keeping_every_other_linear()
            }
            _ => graph,
        }
    }
}
