//! Memory of a rank.

use cost_models::states::{ModelStates, StateBytes};
use ir::framework::{Framework, GradientCopies, LossGradient, StageParameters};
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

/// All that a pipeline rank holds throughout a step: everything but what is kept for backward, what is
/// computed again, and the allocator's slack.
pub(super) fn throughout(
    problem: &Problem,
    layout: &Layout,
    held: &Holdings,
    rank: usize,
) -> MemoryUse {
    let framework = &problem.hardware.framework;
    let bytes = StateBytes::new(&problem.training);
    let states = on_device(layout, held, bytes);
    let replicas = Replicas::new(problem, layout);
    let offload = layout.offload;
    let frozen =
        if offload.parameters { ModelStates::default() } else { frozen_states(layout, held) };
    let gathered = if layout.zero_stage == ZeroStage::Parameters {
        let gather = GATHERED_BLOCKS * bytes.parameter + bytes.gradient;
        let keeps_all = framework.parameters.zero_3_stage == StageParameters::WholeStage;
        if keeps_all && layout.pipeline_parallel > 1 {
            Bytes::new(held.dense * (bytes.parameter + bytes.gradient)) + held.frozen.dense
        } else {
            Bytes::new(held.largest_block * gather) + held.largest_frozen_block * GATHERED_BLOCKS
        }
    } else {
        Bytes::ZERO
    };
    let element = bytes.parameter + bytes.gradient;
    // The one that comes into an operator and the one that goes out. The largest are the loss's.
    let is_in_place = framework.kernels.loss.gradient == LossGradient::InPlace;
    let gradients = if is_in_place { 1 } else { 2 };
    let weight_gradient = Bytes::new(held.largest_weight * element);
    let copies = states.parameters.get() as f64 * framework.memory.parameter_copies;
    MemoryUse {
        parameters_bytes: states.parameters * weight_versions(layout, rank)
            + Bytes::new(copies as u64)
            + frozen.parameters,
        gradients_bytes: states.gradients
            + whole_gradients(&replicas, held, &states)
            + gradient_copies(problem, layout, bytes, &states)
            + replicas.left_out(held),
        optimizer_bytes: states.optimizer + update_copies(framework, bytes, &states),
        gathered_bytes: gathered + replicas.gathered_gradients(held),
        // Gradients of activations, or that of a weight, as the product makes it and as it is added up:
        // where the ones are largest, the other is small. A quantised weight is made into what a product reads
        // beside them.
        workspace_bytes: (held.largest_tensor * gradients).max(weight_gradient) + held.dequantised,
        activations_bytes: held.largest_offloadable * beside_host(held, offload),
        // One message on its way in each direction, and one being used.
        buffers_bytes: held.message * 4,
        context_bytes: CONTEXT + Bytes::new((framework.memory.libraries_gib * GIB) as u64),
        host_bytes: replicas.on_host(held, || in_flight_at_peak(layout, rank)),
        ..MemoryUse::default()
    }
}

/// A rank's memory at its peak, where it keeps `kept` for backward, what is computed again included.
///
/// With `P` for what forward and backward have beside states, and `U` for the update's buffers at their fullest,
/// of which neither is there while the other is, `max(P, U)` is allocated, and the allocator keeps the rest of
/// `P + U` where the GPU has room: it frees what it caches before it fails.
pub(super) fn at_peak(
    problem: &Problem,
    layout: &Layout,
    throughout: MemoryUse,
    held: &Holdings,
    kept: Bytes,
) -> MemoryUse {
    let recomputed = held.recompute_working_set.min(kept);
    let mut memory = MemoryUse {
        activations_bytes: throughout.activations_bytes + (kept - recomputed),
        recompute_bytes: recomputed,
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
    memory.allocator_bytes += cached.min(problem.room.saturating_sub(memory.total()));
    memory
}

/// Buffers of the update at its peak, and memory that was freed before.
fn update_buffers(problem: &Problem, layout: &Layout, held: &Holdings) -> [Bytes; 2] {
    let buffers = problem.hardware.framework.memory.update_buffers;
    let bytes = StateBytes::new(&problem.training);
    if layout.offload.optimizer || bytes.optimizer == 0 {
        return [Bytes::ZERO; 2];
    }
    let updated = on_device(layout, held, bytes).optimizer.as_f64() / bytes.optimizer as f64;
    let is_sharded = layout.zero_stage == ZeroStage::Parameters;
    let freed = if is_sharded { 0.0 } else { buffers.freed };
    [buffers.held, freed].map(|each| Bytes::from_f64(updated * each))
}

/// A rank's memory at its peak, where it holds `held` and has `num_micro_batches` in flight.
pub fn in_flight(
    problem: &Problem,
    layout: &Layout,
    held: &Holdings,
    rank: usize,
    num_micro_batches: u64,
) -> MemoryUse {
    let before_last = held.kept_before_last(layout.offload);
    let kept = before_last * num_micro_batches + held.saved_by_last + held.recompute_working_set;
    at_peak(problem, layout, throughout(problem, layout, held, rank), held, kept)
}

/// Memory of a rank with the allocator's slack, without CUDA and its libraries.
pub fn with_slack(used: Bytes) -> Bytes {
    used + CONTEXT + slack(used + CONTEXT, CONTEXT)
}

/// The allocator's slack: the most that it reserves beyond what is in use.
pub(super) fn slack(peak: Bytes, context: Bytes) -> Bytes {
    Bytes::new(peak.saturating_sub(context).get() / 100 * ALLOCATOR_SLACK_PERCENT)
}

/// Gradients that a rank holds in addition to those with which it updates parameters.
fn whole_gradients(replicas: &Replicas<'_>, held: &Holdings, states: &ModelStates) -> Bytes {
    if !replicas.sums_whole_gradients() {
        return Bytes::ZERO;
    }
    Bytes::new((held.dense + held.expert) * replicas.bytes.gradient)
        .saturating_sub(states.gradients)
}

/// Gradients in 16 bits beside those in 32.
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

/// Memory of the update in addition to its state.
fn update_copies(framework: &Framework, bytes: StateBytes, states: &ModelStates) -> Bytes {
    let each = framework.memory.update_bytes / bytes.optimizer.max(1) as f64;
    Bytes::new((states.optimizer.get() as f64 * each) as u64)
}

/// Of how many blocks what lies on the host is on the device as well. Where all are offloaded, of one that is used
/// while another's is copied. Where others keep theirs on the device, copies are spread over the passes of all
/// blocks, of one at a time (`AsyncDoubleBufferGroupOffloadHandler` of Transformer Engine's `cpu_offload.py`).
fn beside_host(held: &Holdings, offload: Offload) -> u64 {
    match offload.activations.of_blocks(held.num_offloadable, held.num_stages) {
        0 => 0,
        blocks if blocks < held.num_offloadable => 1,
        _ => 2,
    }
}

/// The most micro-batches of its stages that a rank has in flight.
fn in_flight_at_peak(layout: &Layout, rank: usize) -> u64 {
    let numbers = [layout.pipeline_parallel, layout.virtual_stages, layout.num_micro_batches];
    let [p, v, m] = numbers.map(u64::from);
    layout.schedule.peak_in_flight(rank as u64, p, v, m)
}

/// Number of versions of its weights that a rank keeps: one, or where they are updated after each
/// micro-batch, one for each micro-batch in flight, as each backward needs the weights that its forward
/// used.
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
