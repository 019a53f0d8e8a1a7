//! Memory of a pipeline rank.

use cost_models::Hardware;
use cost_models::states::{ModelStates, StateBytes};
use ir::cluster::{Architecture, Precision};
use ir::framework::{CublasWorkspace, GradientCopies, StageParameters};
use ir::layout::{Layout, Offload, ZeroStage};
use ir::plan::MemoryUse;
use ir::schedule::Updates;
use ir::units::Bytes;

use super::holdings::Holdings;
use super::replicas::Replicas;
use super::states::{frozen_states, on_device};
use crate::problem::Problem;

/// Memory of a GPU that CUDA, its libraries and NCCL hold outside the allocator: 1113 MiB.
///
/// # Source
///
/// BigScience's notes on their V100 and A100 runs, which subtract this from nvidia-smi's figure.
pub const CONTEXT: Bytes = Bytes::new(1113 << 20);

/// Memory that the caching allocator reserves beyond what is allocated, in per cent.
///
/// # Source
///
/// SimuMax's published runs on 8 B200: the mean of reserved over allocated, 200 ranks of 25 runs.
pub const ALLOCATOR_SLACK_PERCENT: u64 = 4;

/// Blocks whose gathered parameters a rank holds at once under ZeRO-3: the one that computes and the
/// one that is fetched meanwhile (Zhao et al. 2023, *PyTorch FSDP*, arXiv 2304.11277, section 3.4).
const GATHERED_BLOCKS: u64 = 2;

const GIB: f64 = (1u64 << 30) as f64;

/// Memory that a pipeline rank of a group holds throughout a step: everything except activations saved for backward,
/// the memory of backward, and the allocator's slack.
pub(super) fn throughout(
    problem: &Problem,
    layout: &Layout,
    held: &Holdings,
    [rank, group]: [usize; 2],
) -> MemoryUse {
    let framework = &problem.hardware.framework;
    let bytes = problem.state_bytes();
    let states = on_device(layout, held, bytes);
    let replicas = Replicas::new(problem, layout, group);
    let offload = layout.offload;
    let frozen =
        if offload.parameters { ModelStates::default() } else { frozen_states(layout, held) };
    let gathered = if layout.zero_stage == ZeroStage::Parameters {
        let gather = GATHERED_BLOCKS * bytes.parameter + bytes.gradient;
        let keeps_all = framework.parameters.zero_3_stage == StageParameters::WholeStage;
        if keeps_all && layout.pipeline_parallel > 1 {
            Bytes::new(held.parameters.dense * (bytes.parameter + bytes.gradient))
                + held.parameters.frozen.dense
        } else {
            Bytes::new(held.largest_block * gather) + held.largest_frozen_block * GATHERED_BLOCKS
        }
    } else {
        Bytes::ZERO
    };
    let updated = updated(&replicas, held);
    let at_once = framework.memory.updated_at_once;
    let at_once = at_once.filter(|_| layout.zero_stage == ZeroStage::Parameters);
    let updated_at_once = at_once.map_or(updated, |most| updated.min(most));
    let copies = states.parameters.get() as f64 * framework.memory.parameter_copies;
    let libraries = libraries(problem.hardware_of(group), held.parameters.expert > 0);
    MemoryUse {
        parameters_bytes: states.parameters * weight_versions(layout, rank)
            + Bytes::new(copies as u64)
            + cast_weights(problem, layout, held)
            + frozen.parameters,
        gradients_bytes: states.gradients
            + whole_gradients(&replicas, held, &states)
            + gradient_copies(problem, layout, bytes, &states)
            + gradient_buckets(problem, layout, &states)
            + replicas.left_out(held),
        optimizer_bytes: states.optimizer
            + Bytes::from_f64(updated_at_once as f64 * framework.memory.update_bytes),
        gathered_bytes: gathered + replicas.gathered_gradients(held),
        workspace_bytes: held.dequantised + libraries.workspace_bytes,
        activations_bytes: held.largest_offloadable * beside_host(held, offload),
        // In each direction, one message in transit and one in use.
        buffers_bytes: held.message * 4,
        context_bytes: libraries.context_bytes,
        host_bytes: replicas.on_host(held, || in_flight_at_peak(layout, rank)),
        ..MemoryUse::default()
    }
}

/// Copies of weights that are cast for products: Transformer Engine casts them in the first micro-batch, by rows and by
/// columns, and keeps both for the other micro-batches.
///
/// # Source
///
/// TransformerEngine, `pytorch/module/base.py`, `get_weight_workspace`; Megatron-Core passes `is_first_microbatch`
/// (`extensions/transformer_engine.py`). A test of Megatron-Core, a mixture of experts in fp8 on 8 H100, holds 6.8 GiB
/// between steps; 5.7 GiB are predicted without these copies and 6.3 GiB with them.
fn cast_weights(problem: &Problem, layout: &Layout, held: &Holdings) -> Bytes {
    let memory = &problem.hardware.framework.memory;
    let precision = problem.training.precision;
    // Megatron-Core stores weights in 8 bits only with a sharded optimizer (`--fp8-param-gather`).
    let is_stored =
        memory.stores_8_bits && precision == Precision::Fp8 && layout.zero_stage != ZeroStage::None;
    let is_kept = precision.is_cast()
        && memory.transformer_engine
        && !is_stored
        && layout.zero_stage != ZeroStage::Parameters;
    let bits = if is_kept { precision.input_bits() } else { 0 };
    Bytes::new(2 * held.parameters.cast * bits / 8)
}

/// Memory of a rank at its peak, with `kept` for saved activations and the memory of backward.
///
/// With `P` for the memory of forward and backward without states, and `U` for the update's buffers at their peak,
/// which never exist at the same time, `max(P, U)` is allocated. The allocator caches the rest of `P + U` as far as the
/// GPU's memory budget allows: it frees its cache before it fails.
pub(super) fn at_peak(
    problem: &Problem,
    layout: &Layout,
    throughout: MemoryUse,
    held: &Holdings,
    (kept, memory_budget): (Bytes, Bytes),
) -> MemoryUse {
    let bytes = problem.state_bytes();
    let in_backward = held.in_backward(bytes.parameter + bytes.gradient).min(kept);
    let recomputed = held.recompute_working_set.min(in_backward);
    let mut memory = MemoryUse {
        activations_bytes: throughout.activations_bytes + (kept - in_backward),
        recompute_bytes: recomputed,
        workspace_bytes: throughout.workspace_bytes + (in_backward - recomputed),
        ..throughout
    };
    let of_passes = memory.activations_bytes
        + memory.recompute_bytes
        + memory.workspace_bytes
        + memory.gathered_bytes
        + memory.buffers_bytes;
    let [of_update, freed] = update_buffers(problem, layout, held);
    memory.workspace_bytes += of_update.saturating_sub(of_passes);
    memory.allocator_bytes = slack(memory.total(), memory.context_bytes);
    let cached = of_update.min(of_passes) + freed;
    let cached = cached + slack(cached, Bytes::ZERO);
    memory.allocator_bytes += cached.min(memory_budget.saturating_sub(memory.total()));
    memory
}

/// Memory that CUDA and libraries take, whatever runs on the GPU.
pub fn libraries(hardware: &Hardware, has_experts: bool) -> MemoryUse {
    let gib = hardware.framework.memory.libraries_gib;
    MemoryUse {
        workspace_bytes: library_workspaces(hardware, has_experts),
        context_bytes: CONTEXT + Bytes::new((gib * GIB) as u64),
        ..MemoryUse::default()
    }
}

/// Workspaces of the libraries that run products, which they take from PyTorch's allocator. cuBLAS has one for each
/// thread (of forward and of backward); Transformer Engine has one, and four more for products of groups of experts.
///
/// # Source
///
/// PyTorch, `aten/src/ATen/cuda/CublasHandlePool.cpp`, `parseChosenWorkspaceSize`; Transformer Engine,
/// `pytorch/module/base.py`, `get_cublas_workspace_size_bytes` and `get_multi_stream_cublas_workspace`.
fn library_workspaces(hardware: &Hardware, has_experts: bool) -> Bytes {
    const KIB: u64 = 1 << 10;
    let memory = &hardware.framework.memory;
    let large = 8 * 4096 * KIB;
    let [of_pytorch, of_engine] = match hardware.architecture {
        Architecture::Volta | Architecture::Ampere | Architecture::Ada => {
            [2 * 4096 * KIB + 8 * 16 * KIB, 4096 * KIB]
        }
        Architecture::Hopper | Architecture::Blackwell => [large, large],
        _ => [0, 0],
    };
    let of_thread = match memory.cublas_workspace {
        CublasWorkspace::None => 0,
        CublasWorkspace::Default => of_pytorch,
        CublasWorkspace::Deterministic => large,
    };
    let num_of_engine = match (memory.transformer_engine, has_experts) {
        (false, _) => 0,
        (true, false) => 1,
        (true, true) => 5,
    };
    Bytes::new(2 * of_thread + num_of_engine * of_engine)
}

/// Number of parameters that a rank updates on its device.
fn updated(replicas: &Replicas<'_>, held: &Holdings) -> u64 {
    if replicas.layout.offload.optimizer { 0 } else { replicas.owned(held) }
}

/// Peak of the update's buffers, and memory that was freed before the update.
fn update_buffers(problem: &Problem, layout: &Layout, held: &Holdings) -> [Bytes; 2] {
    let buffers = problem.hardware.framework.memory.update_buffers;
    let updated = updated(&Replicas::new(problem, layout, 0), held) as f64;
    let is_sharded = layout.zero_stage == ZeroStage::Parameters;
    let freed = if is_sharded { 0.0 } else { buffers.freed };
    [buffers.held, freed].map(|each| Bytes::from_f64(updated * each))
}

/// Memory of a rank of a group at its peak, with `num_micro_batches` in flight.
pub fn in_flight(
    problem: &Problem,
    layout: &Layout,
    held: &Holdings,
    [rank, group]: [usize; 2],
    num_micro_batches: u64,
) -> MemoryUse {
    let before_last = held.kept_before_last(layout.offload);
    let bytes = problem.state_bytes();
    let in_backward = held.in_backward(bytes.parameter + bytes.gradient);
    let kept = before_last * num_micro_batches + held.saved_by_last + in_backward;
    let throughout = throughout(problem, layout, held, [rank, group]);
    at_peak(problem, layout, throughout, held, (kept, problem.memory_budget_of(group)))
}

/// Memory of a rank with the allocator's slack and the CUDA context.
pub fn with_slack(used: Bytes) -> Bytes {
    used + CONTEXT + slack(used + CONTEXT, CONTEXT)
}

/// The allocator's slack: memory that it reserves beyond what is in use.
pub fn slack(peak: Bytes, context: Bytes) -> Bytes {
    Bytes::new(peak.saturating_sub(context).get() / 100 * ALLOCATOR_SLACK_PERCENT)
}

/// Unsharded gradients that a rank holds in addition to those with which it updates parameters.
fn whole_gradients(replicas: &Replicas<'_>, held: &Holdings, states: &ModelStates) -> Bytes {
    if !replicas.sums_whole_gradients() {
        return Bytes::ZERO;
    }
    Bytes::new(held.parameters.trained() * replicas.bytes.gradient).saturating_sub(states.gradients)
}

/// Gradients in 16 bits that exist in addition to those in 32.
fn gradient_copies(
    problem: &Problem,
    layout: &Layout,
    bytes: StateBytes,
    states: &ModelStates,
) -> Bytes {
    let is_kept = match problem.hardware.framework.memory.gradients_in_16_bits {
        GradientCopies::Freed => false,
        GradientCopies::Kept => true,
        GradientCopies::KeptByReplicas => layout.data_parallel > 1,
    };
    if !is_kept || bytes.gradient <= bytes.parameter {
        return Bytes::ZERO;
    }
    (states.gradients * bytes.parameter).shard(bytes.gradient)
}

/// Buckets in which replicas that share no states reduce copies of their gradients.
fn gradient_buckets(problem: &Problem, layout: &Layout, states: &ModelStates) -> Bytes {
    let has_buckets = problem.hardware.framework.memory.gradient_buckets
        && layout.zero_stage == ZeroStage::None
        && layout.data_parallel > 1;
    if has_buckets { states.gradients } else { Bytes::ZERO }
}

/// Number of blocks whose offloaded activations are on the device as well. Where all blocks are offloaded, two: one in
/// use while another is copied. Where only some blocks are offloaded, their copies are spread over the passes of all
/// blocks, one at a time (`AsyncDoubleBufferGroupOffloadHandler` of Transformer Engine's `cpu_offload.py`).
fn beside_host(held: &Holdings, offload: Offload) -> u64 {
    match offload.activations.of_blocks(held.num_offloadable, held.num_stages) {
        0 => 0,
        blocks if blocks < held.num_offloadable => 1,
        _ => 2,
    }
}

/// The most micro-batches in flight on a rank, over all its stages.
fn in_flight_at_peak(layout: &Layout, rank: usize) -> u64 {
    let numbers = [layout.pipeline_parallel, layout.virtual_stages, layout.num_micro_batches];
    let [p, v, m] = numbers.map(u64::from);
    layout.schedule.peak_in_flight(rank as u64, p, v, m)
}

/// Number of versions of its weights that a rank holds: one, or where weights are updated after each micro-batch, one
/// for each micro-batch in flight, as each backward needs the weights of its forward.
///
/// # Source
///
/// Harlap et al. 2018, *PipeDream* (arXiv 1806.03377), section 3.3: weight stashing.
fn weight_versions(layout: &Layout, rank: usize) -> u64 {
    match layout.schedule.updates() {
        Updates::AfterFlush => 1,
        Updates::AfterEachMicroBatch => in_flight_at_peak(layout, rank),
    }
}
