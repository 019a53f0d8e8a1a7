//! What the frameworks that run training steps do: their kernels, and what they run side by side.
//!
//! Behaviours, with their sources; what is called inferred follows from measured steps alone:
//!
//! | framework | attention | gradients, parameters overlapped | tensor exchanges | messages | host |
//! |---|---|---|---|---|---|
//! | `megatron-core` | cuDNN through Transformer Engine | yes, yes (`--overlap-grad-reduce`, `--overlap-param-gather`) | beside products (`--tp-comm-overlap`) | overlapped | launches ahead; CUDA graphs where a recipe has them |
//! | `megatron-lm` | FlashAttention-2, or stored scores | no, no (Narayanan et al. 2021; DDP without overlap) | beside backward's other product | ranks wait (`p2p_communication.py`) | launches ahead |
//! | `megatron-deepspeed` | the same | no, no | nothing | ranks wait | launches ahead; waits for each kernel in BigScience's study of 2022, whose runs had `CUDA_LAUNCH_BLOCKING=1` lest they hang |
//! | `deepspeed` | stored scores | yes, yes | nothing | - | launches ahead; gathers parameter by parameter at a tenth of the network's rate: inferred from the ZeRO-3 runs of Narayanan et al. 2021 |
//! | `nanotron` | FlashAttention-2 | yes (whole ones with ZeRO-1: `get_fp32_accum_hook`), no | beside backward's other product (`tp_linear_async_communication`) | ranks wait | launches ahead |
//! | `fsdp` | FlashAttention of 2022 in Triton (LLM Foundry's default then) | yes, yes (prefetch; Zhao et al. 2023) | - | - | launches ahead |
//! | `torchtitan` | FlashAttention-2 through PyTorch | yes, yes (FSDP2) | nothing, or beside products (asynchronous tensor parallelism) | overlapped | launches ahead |
//! | `executor` | its own, block by block of queries (`executor/src/ops/attention/`) | yes, in buckets (`executor/src/reducer.rs`), ZeRO-3's parameters a block ahead; no with ZeRO-1 and 2, whose parameters are gathered by the update (`executor/src/rank/update.rs`) | nothing | sends do not wait | is the device on a CPU, where what operators take includes it |
//!
//! Gradients are added up over micro-batches by a kernel of their own in Megatron-LM until 2022 (`main_grad.add_`),
//! in DeepSpeed and in nanotron (`FP32GradientAccumulator`); within the products that make them in Megatron-LM since
//! then and in Transformer Engine. FSDP reduces each micro-batch's to its shards.
//!
//! With 8-bit products, torchtitan casts what tensor-parallel ranks gather before they do (torchao's
//! `Float8ColwiseParallel` and `PrepareFloat8ModuleInput`). Its context-parallel ranks count as if each had a
//! plain piece of a causal sequence, which is inferred: of its runs with 4 and 8 ranks, attention takes 1.5 times
//! what as much of it takes without, although PyTorch balanced rings by then.
//!
//! A run's source may say otherwise of its run; see `planner/src/validation/setup.rs`.
//!
//! Bytes that the loss touches for a logit are counted from the frameworks' kernels: Megatron-LM's vocabulary-parallel
//! cross-entropy reads and writes logits in fp32 for the cast, the maximum, the difference, the exponential,
//! its sum and the quotient (38 in forward), and in backward for a product and a cast (14); Transformer
//! Engine's fuses these; PyTorch's own (20 and 14) is assumed to lie between. All other numbers are fitted to measured steps (`fit/fit_steps.py`), or, of memory,
//! chosen so that the mean error over a framework's rows is least.

use std::collections::BTreeMap;

use ir::framework::Framework;
use serde::Deserialize;

use crate::kernels::AttentionLibrary;

const RATES: &str = include_str!("../data/frameworks.json");

/// What tensor-parallel exchanges run beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
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

/// How gradients of parameters are added up over micro-batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GradientAccumulation {
    /// Not at all: each is reduced to the rank that updates the parameter.
    None,
    /// By a kernel that adds a gradient to the sum.
    Separate,
    /// In the product that makes the gradient, where one does: Megatron-LM's gradient accumulation fusion, of
    /// 2022 for sums in fp32 and since later that year in 16 bits.
    Fused,
}

/// A framework's kernels and habits.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a habit of its own")]
pub struct FrameworkRates {
    /// Whose fused attention it calls.
    pub attention: AttentionLibrary,
    /// Whether linear layers that read the same tensor run as one product.
    pub fuses_projections: bool,
    /// Whether a pipeline rank computes nothing while it exchanges messages.
    pub waits_for_messages: bool,
    /// Whether the host waits for each kernel before it launches the next (`CUDA_LAUNCH_BLOCKING=1`), and so
    /// hides nothing.
    pub blocks_launches: bool,
    /// Time from one operator to the next where it does, in microseconds; 0 where no such run was measured.
    pub blocked_microseconds: f64,
    /// Time that the host takes to launch what an operator of the graph consists of, in one pass, in
    /// microseconds.
    pub operator_microseconds: f64,
    /// Bytes that norms, activation functions, dropout, residuals and rotary embeddings touch, over those
    /// of one kernel each that reads its inputs and writes its outputs once.
    pub elementwise: f64,
    /// Bytes that softmax and dropout of attention scores touch where these are stored, over the same.
    pub scores: f64,
    /// Whether the loss puts its gradient in the place of the logits.
    pub fuses_loss: bool,
    /// Bytes that the loss touches in forward, for each logit.
    pub loss_forward_bytes: f64,
    /// In backward.
    pub loss_backward_bytes: f64,
    /// How gradients are added up over micro-batches.
    pub accumulation: GradientAccumulation,
    /// Whether gradients are reduced over the replicas while the last backward runs.
    pub overlaps_gradients: bool,
    /// Whether with ZeRO-1 every rank has the sum of all gradients, of which it uses a part.
    pub reduces_whole_gradients: bool,
    /// Whether updated parameters are gathered while the next forward runs.
    pub overlaps_parameters: bool,
    /// What tensor-parallel exchanges run beside.
    pub tensor_overlap: TensorOverlap,
    /// Whether the exchanges of experts run beside another micro-batch's passes.
    pub overlaps_experts: bool,
    /// Whether a token goes once to each rank that has experts for it, and once to each node, rather than
    /// once for each expert (DeepEP, HybridEP).
    pub sends_tokens_once: bool,
    /// In how many network domains a token's experts are at most, where the router sees to that
    /// (DeepSeek-AI 2024, arXiv 2412.19437, section 2.1.2: node-limited routing).
    #[serde(default)]
    pub most_domains: Option<u32>,
    /// Whether inputs of 8-bit products are cast before tensor-parallel ranks gather them.
    pub gathers_8_bit: bool,
    /// Whether context-parallel ranks have as much of a causal mask each.
    pub balances_context: bool,
    /// Whether tensor-parallel ranks that have the same message each send a part of it.
    pub scatters_messages: bool,
    /// Share of operators that the host launches one by one; the others are in CUDA graphs.
    pub launched: f64,
    /// Time of exchanges within blocks, over that of the same collectives alone.
    pub collectives: f64,
    /// Time of exchanges over replicas, over that of the same collectives alone.
    pub data_collectives: f64,
    /// Bytes that blocks keep for backward, over those that one fused kernel for each operator would.
    pub saved: f64,
    /// Bytes that the head and the loss hold at their peak, over the same.
    pub saved_by_loss: f64,
    /// Whether gradients in 16 bits stay allocated beside those that are added up in 32.
    pub keeps_16_bit_gradients: bool,
    /// Flat copies of the parameters in 16 bits, for reductions and gathers.
    pub parameter_copies: f64,
    /// Bytes beside the optimizer's state for each parameter that a rank updates.
    pub update_bytes: f64,
    /// Whether ZeRO-3 keeps gathered what a pipeline stage has, and its gradients, until the step ends.
    pub keeps_gathered: bool,
    /// What libraries hold beside CUDA's context, in GiB: workspaces, communicators' buffers.
    pub libraries_gib: f64,
}

impl FrameworkRates {
    /// Those of a framework.
    pub fn of(framework: Framework) -> Self {
        let mut all: BTreeMap<Framework, Self> =
            serde_json::from_str(RATES).expect("the data that ships is valid; a test reads it");
        all.remove(&framework).expect("every framework has its rates; a test asks for all")
    }
}
