//! Behaviour of a framework, as named choices and fitted constants.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cluster::Architecture;
use crate::graph::{EmbeddingTable, LossGradient, USUAL_CHUNKS};

named_enum! {
    /// The attention that frameworks call.
    pub enum AttentionLibrary {
        /// FlashAttention of 2022, as Triton kernels too.
        FlashAttention1 = "flash-attention-1",
        /// FlashAttention-2, which PyTorch's `scaled_dot_product_attention` calls too.
        FlashAttention2 = "flash-attention-2",
        /// cuDNN, or FlashAttention-3 on Hopper, as Transformer Engine chooses them.
        Cudnn = "cudnn",
        /// None: scores, softmax and weighted sum are kernels of their own, and scores are stored.
        Unfused = "unfused",
    }
}

/// Its kernels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct KernelHabits {
    /// Whose attention it calls.
    pub attention: AttentionLibrary,
    /// On GPUs of these generations, whose it calls instead.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attention_by_architecture: BTreeMap<Architecture, AttentionLibrary>,
    /// How linear layers that read the same tensor run.
    pub projections: Projections,
    /// What runs products whose rows do not begin at multiples of 16 bytes.
    pub unaligned_rows: UnalignedRows,
    /// How many kernels norms, activation functions and rotary embeddings take.
    pub fusion: Fusion,
    /// How kernels are chosen for the shapes of products and attention, where a GPU's libraries choose badly by
    /// themselves.
    #[serde(default, skip_serializing_if = "is_default")]
    pub choice: KernelChoice,
    /// Where activation functions and casts of experts run.
    #[serde(default)]
    pub expert_activations: ExpertActivations,
    /// Bytes that norms, activation functions, dropout, residuals and rotary embeddings touch, over those of one
    /// kernel each that reads its inputs and writes its outputs once.
    pub elementwise_traffic: f64,
    /// The loss.
    pub loss: LossKernels,
}

named_enum! {
    /// How kernels are chosen for the shapes of products and attention.
    #[derive(Default)]
    pub enum KernelChoice {
        /// By the libraries' heuristics.
        #[default]
        Heuristic = "heuristic",
        /// By measuring all for the shapes of the model, as in AMD's containers of Megatron-Core (hipBLASLt's tuning,
        /// AITER).
        Tuned = "tuned",
    }
}

pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

named_enum! {
    /// What of a model is compiled, where a framework leaves it to the user.
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
    /// Where its gradient goes.
    pub gradient: LossGradient,
    /// Chunks of the tokens, of `chunked`.
    #[serde(default = "usual_chunks", skip_serializing_if = "is_usual")]
    pub chunks: u64,
    /// Bytes that it touches in forward, for each logit.
    pub forward_bytes_per_logit: f64,
    /// In backward.
    pub backward_bytes_per_logit: f64,
    /// Bytes for each logit that stay beside what the loss keeps, such as logits in buffers of the pipeline.
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

/// What the host does.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct HostHabits {
    /// When it launches kernels.
    pub launches: Launches,
    /// Time that it takes to launch what an operator of the graph consists of, in one pass, in microseconds.
    pub microseconds_per_operator: f64,
    /// Time of a step in which the device waits for it outside of passes, in milliseconds.
    #[serde(default)]
    pub milliseconds_per_step: f64,
}

/// How gradients of parameters come together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GradientHabits {
    /// How they are added up over micro-batches.
    pub accumulation: GradientAccumulation,
    /// When they are reduced over the replicas.
    pub reduced: WhenReduced,
    /// In which format they are reduced.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reduced_as: GradientFormat,
    /// What a rank has of the sum with ZeRO-1.
    pub zero_1_sum: GradientSum,
    /// What a rank has of the sum over micro-batches with ZeRO-2 and 3: the part that each was reduced to, or all of
    /// it, which is reduced with the last alone (PyTorch FSDP's `no_sync` and `set_requires_gradient_sync(False)`).
    #[serde(default)]
    pub sharded_sum: GradientSum,
}

/// When parameters are gathered, and how long they are kept.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ParameterHabits {
    /// When updated ones are gathered.
    pub gathered: UpdatedParameters,
    /// What a pipeline stage keeps gathered with ZeRO-3.
    pub zero_3_stage: StageParameters,
    /// What is sharded with ZeRO-3.
    #[serde(default, skip_serializing_if = "is_default")]
    pub zero_3_shards: WeightShards,
    /// What is copied into or out of the buffers that are exchanged with ZeRO.
    #[serde(default, skip_serializing_if = "is_default")]
    pub buffers: ExchangeBuffers,
    /// Time for each rank's shard of updated parameters beside what its bytes take, in microseconds, where each is
    /// broadcast by itself.
    pub microseconds_per_shard: f64,
    /// Time of the host to gather and release the parameters of one operator in one pass with ZeRO-3, in microseconds,
    /// where hooks of each module do so in Python; 0 where whole blocks are gathered.
    #[serde(default, skip_serializing_if = "is_default")]
    pub microseconds_per_gather: f64,
}

/// What tensor-parallel ranks do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TensorHabits {
    /// What their exchanges run beside.
    pub overlap: TensorOverlap,
    /// What they gather for 8-bit products.
    pub gathers: TensorGathers,
    /// What they keep for backward of inputs that they gathered, with sequence parallelism.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gathered_inputs: GatheredInputs,
    /// Of how many elements the vocabulary of each rank is a multiple, padded.
    pub vocabulary_multiple: u32,
    /// What of the logits the loss of a rank takes.
    #[serde(default)]
    pub logits: Logits,
    /// What of an embedding's table a rank has.
    #[serde(default)]
    pub embedding: EmbeddingTable,
}

/// What pipeline ranks do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PipelineHabits {
    /// What a rank does while it exchanges messages.
    pub messages: MessageOverlap,
    /// What each of the tensor-parallel ranks that have the same message sends.
    pub message_bytes: MessageBytes,
    /// Time from when a message that is waited for has come to when the device goes on, in microseconds: the host
    /// waits for it, and then launches anew.
    pub microseconds_per_awaited_message: f64,
}

/// How tokens come to their experts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ExpertHabits {
    /// In how many network domains a token's experts are at most, where the router sees to that
    /// (DeepSeek-AI 2024, arXiv 2412.19437, section 2.1.2: node-limited routing).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_domains: Option<u32>,
}

/// Times of exchanges over those of the same collectives alone.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TransferFactors {
    /// Within blocks.
    pub within_blocks: f64,
    /// Over replicas.
    pub over_replicas: f64,
}

/// What a framework holds beside what a layout implies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MemoryHabits {
    /// Bytes that blocks keep for backward, over those that one fused kernel for each operator would.
    pub saved: f64,
    /// What linear layers keep of inputs that are cast for their products.
    pub inputs: KeptInputs,
    /// What experts put out, from their forward to their backward.
    pub expert_outputs: ExpertOutputs,
    /// Gradients in 16 bits beside those that are added up in 32.
    pub gradients_in_16_bits: GradientCopies,
    /// True if weights that products read in 8 bits are stored so, in place of 16 bits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stores_8_bits: bool,
    /// Flat copies of the parameters in 16 bits, for reductions and gathers.
    pub parameter_copies: f64,
    /// Bytes beside the optimizer's state for each parameter that a rank updates.
    pub update_bytes: f64,
    /// Parameters of a rank that ZeRO 3 updates at once, each with these bytes; all if not stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at_once: Option<u64>,
    /// What the update needs while it runs.
    #[serde(default, skip_serializing_if = "is_default")]
    pub update_buffers: UpdateBuffers,
    /// Workspace that cuBLAS takes from the allocator, for each thread of the host that runs products.
    #[serde(default)]
    pub cublas_workspace: CublasWorkspace,
    /// True if linear layers are Transformer Engine's, which takes workspaces of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub transformer_engine: bool,
    /// What libraries hold beside CUDA's context, in GiB: workspaces, communicators' buffers.
    pub libraries_gib: f64,
}

named_enum! {
    /// Workspace that cuBLAS takes from PyTorch's allocator.
    #[derive(Default)]
    pub enum CublasWorkspace {
        /// None: the products are not PyTorch's.
        #[default]
        None = "none",
        /// The one that PyTorch chooses for the GPU.
        Default = "default",
        /// `CUBLAS_WORKSPACE_CONFIG=:4096:8`, for deterministic products.
        Deterministic = "deterministic",
    }
}

/// What the update needs while it runs, in bytes for each parameter that a rank updates. Its buffers are of other sizes
/// than those of forward and backward, so that the allocator keeps both, as long as the GPU has room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct UpdateBuffers {
    /// At its fullest: gradients in fp32, and what the optimizer computes on the way.
    pub held: f64,
    /// What it had and freed before that. With sharded parameters (ZeRO-3) nothing is joined, and what is freed fits
    /// what comes next.
    pub freed: f64,
}

choices! {
    /// Where activation functions and casts of experts run.
    #[derive(Default)]
    pub enum ExpertActivations {
        /// In kernels of their own.
        #[default]
        Apart,
        /// Within the products (Megatron-Core's fused grouped products in CuTe DSL).
        WithinProducts,
    }

    /// How many kernels norms, activation functions and rotary embeddings take.
    pub enum Fusion {
        /// One each, written by hand: Apex, Transformer Engine, FlashAttention's, Megatron's compiled functions.
        Kernels,
        /// One each, or less: `torch.compile`, XLA.
        Compiled,
        /// One for each function that PyTorch's code of it calls.
        Eager,
    }

    /// What runs products whose rows do not begin at multiples of 16 bytes.
    pub enum UnalignedRows {
        /// The units beside the tensor cores: cuBLAS of 2022.
        VectorUnits,
        /// The tensor cores, which wait for what they load: cuBLAS since then.
        TensorCores,
    }

    /// How linear layers that read the same tensor run.
    pub enum Projections {
        /// As one product.
        Fused,
        /// One by one.
        Apart,
    }

    /// When the host launches kernels.
    pub enum Launches {
        /// While the device runs those before.
        Ahead,
        /// When the one before has ended (`CUDA_LAUNCH_BLOCKING=1`), and so hides nothing.
        Blocking,
    }

    /// How gradients of parameters are added up over micro-batches.
    pub enum GradientAccumulation {
        /// Not at all: each is reduced to the rank that updates the parameter.
        None,
        /// By a kernel that adds a gradient to the sum.
        Separate,
        /// In the product that makes the gradient, where one does: Megatron-LM's gradient accumulation fusion, of
        /// 2022 for sums in fp32 and since later that year in 16 bits.
        Fused,
    }

    /// When gradients are reduced over the replicas.
    pub enum WhenReduced {
        /// While the last backward runs.
        BesideBackward,
        /// After it.
        AfterBackward,
    }

    /// In which format gradients are reduced over the replicas.
    #[derive(Default)]
    pub enum GradientFormat {
        /// As they are held.
        #[default]
        Held,
        /// In fp32, cast bucket by bucket.
        Fp32,
    }

    /// What a rank has of the sum of gradients where each rank updates a part of the parameters.
    #[derive(Default)]
    pub enum GradientSum {
        /// The part that it updates parameters with.
        #[default]
        Part,
        /// All of it, of which it uses a part.
        Whole,
        /// All of it where the layout has pipelines, of the sum with ZeRO-2 and 3 (PyTorch's pipelines of FSDP
        /// modules).
        WholeInPipelines,
    }

    /// What the shards of weights are with ZeRO-3.
    #[derive(Default)]
    pub enum WeightShards {
        /// Copies in 16 bits beside the optimizer's master weights: DeepSpeed's.
        #[default]
        Copies,
        /// The master weights, which are cast as they are gathered: PyTorch's FSDP.
        Masters,
    }

    /// What is copied into or out of the buffers that are exchanged with ZeRO, by kernels between those of passes.
    #[derive(Default)]
    pub enum ExchangeBuffers {
        /// Nothing: parameters and gradients lie in them.
        #[default]
        InPlace,
        /// Gradients into them: PyTorch's first FSDP, whose parameters are views of the buffer.
        GradientsCopied,
        /// Gradients into them, and gathered parameters out of them: PyTorch's `fully_shard`, whose shards are of each
        /// parameter, and DeepSpeed.
        Copied,
    }

    /// When updated parameters are gathered.
    pub enum UpdatedParameters {
        /// While the next forward runs.
        BesideForward,
        /// Before it.
        BeforeForward,
    }

    /// What a pipeline stage keeps gathered with ZeRO-3.
    pub enum StageParameters {
        /// The block that computes, and the next.
        TwoBlocks,
        /// All that the stage has, and its gradients, until the step ends.
        WholeStage,
    }

    /// What of the logits the loss of a tensor-parallel rank takes.
    #[derive(Default)]
    pub enum Logits {
        /// Those of its part of the vocabulary: Megatron-LM's vocabulary-parallel cross-entropy, torchtitan's parallel
        /// loss.
        #[default]
        Part,
        /// All of them, gathered: DTensor's plans that replicate what the head puts out.
        Whole,
    }

    /// What tensor-parallel exchanges run beside.
    pub enum TensorOverlap {
        /// Nothing.
        None,
        /// In backward, the other gradient's product: Megatron-LM since 2022
        /// (`linear_with_grad_accumulation_and_async_allreduce`), and nanotron.
        Gradients,
        /// The products that take or make what is exchanged, piece by piece: Transformer Engine's user buffers,
        /// PyTorch's asynchronous tensor parallelism.
        Products,
    }

    /// What tensor-parallel ranks keep for backward of inputs that they gathered.
    #[derive(Default)]
    pub enum GatheredInputs {
        /// Their part, to be gathered again: Korthikanti et al. 2022 (arXiv 2205.05198), section 4.2.2.
        #[default]
        Part,
        /// All of it: where gathering and product are functions of their own, and PyTorch saves what a product reads.
        Whole,
    }

    /// What tensor-parallel ranks gather for 8-bit products.
    pub enum TensorGathers {
        /// 16 bits, cast afterwards.
        #[serde(rename = "16-bit")]
        Bits16,
        /// 8 bits, cast before.
        #[serde(rename = "8-bit")]
        Bits8,
    }

    /// What a pipeline rank does while it exchanges messages.
    pub enum MessageOverlap {
        /// It computes.
        BesidePasses,
        /// It waits.
        Awaited,
    }

    /// What each of the tensor-parallel ranks that have the same message sends.
    pub enum MessageBytes {
        /// A part of it, to be gathered by those that have it.
        Part,
        /// All of it.
        Whole,
    }

    /// How context-parallel ranks share a causal mask.
    #[derive(Default)]
    pub enum CausalPieces {
        /// Each has as much of it.
        #[default]
        Balanced,
        /// Each has a plain piece of the sequence, and the last most to do.
        Plain,
    }

    /// How far the forward of a layer that is recomputed whole runs again.
    #[derive(Default)]
    pub enum RecomputeEnd {
        /// To its end.
        #[default]
        Layer,
        /// To the last tensor that backward takes, which leaves out the layer's last product.
        LastSaved,
    }

    /// What selective recompute computes again, where no modules are named.
    #[derive(Default)]
    pub enum SelectiveRecompute {
        /// Operators that are cheap for the bytes saved.
        #[default]
        Cheap,
        /// All but attention, exchanges of experts' tokens, and every other linear layer.
        EveryOtherLinear,
    }

    /// What linear layers keep of inputs that are cast to 8 or 4 bits for their products.
    pub enum KeptInputs {
        /// What they were cast to.
        Cast,
        /// The inputs, in 16 bits.
        Uncast,
    }

    /// What becomes of what experts put out.
    pub enum ExpertOutputs {
        /// It is kept: the gradient of the router's weights, which it is multiplied by, takes it.
        Kept,
        /// Its memory is used again: the router's weights multiply what experts' activation functions put out.
        Freed,
    }

    /// What becomes of gradients in 16 bits once they were added up in 32.
    pub enum GradientCopies {
        /// Their memory is used again.
        Freed,
        /// They stay allocated.
        Kept,
        /// They stay where there are replicas, in the buckets that these reduce.
        KeptByReplicas,
    }
}
