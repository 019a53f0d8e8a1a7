//! Offload to the host changes no result, and frees the device.

use std::sync::Arc;

use burn_flex::FlexDevice;
use executor_communicators::local;
use executor_kernels::array::Element;
use ir::graph::{ContextParallelKind, Recompute};
use ir::layout::{Offload, OffloadedActivations, ZeroStage};
use ir::schedule::ScheduleKind;
use ir::units::Bytes;
use traces::timeline::{Activity, CopyDestination, Stream, Track};

use super::parity::check;
use super::training::{GPT, LLAMA, LayoutCase, MIXTRAL, ONE, program, rank};

const OPTIMIZER: Offload = Offload { optimizer: true, ..Offload::NONE };
const STATES: Offload =
    Offload { optimizer: true, parameters: true, activations: OffloadedActivations::None };
const ALL: Offload = Offload { activations: OffloadedActivations::AllBlocks, ..STATES };
const ACTIVATIONS: Offload =
    Offload { activations: OffloadedActivations::AllBlocks, ..Offload::NONE };

/// ZeRO 3 with full recompute, where everything can be on the host.
const SHARDED: LayoutCase =
    LayoutCase { zero: ZeroStage::Parameters, recompute: Recompute::Full, data: 2, ..ONE };

#[test]
fn one_rank() {
    let full = Recompute::Full;
    check(
        LLAMA,
        &[
            LayoutCase { offload: OPTIMIZER, ..ONE },
            LayoutCase { offload: OPTIMIZER, zero: ZeroStage::Gradients, ..ONE },
            LayoutCase { offload: ACTIVATIONS, recompute: full, ..ONE },
            LayoutCase { offload: ALL, data: 1, micro_batch_size: 2, ..SHARDED },
        ],
    );
}

#[test]
fn every_stage_of_zero() {
    let cases = ZeroStage::ALL.map(|zero| LayoutCase { offload: OPTIMIZER, data: 2, zero, ..ONE });
    check(LLAMA, &cases);
    let hybrid = LayoutCase { data: 4, shard: 2, offload: OPTIMIZER, ..ONE };
    check(
        GPT,
        &ZeroStage::ALL[1..]
            .iter()
            .map(|zero| LayoutCase { zero: *zero, ..hybrid })
            .collect::<Vec<_>>(),
    );
}

#[test]
fn parameters_and_activations() {
    check(
        GPT,
        &[
            LayoutCase { offload: STATES, ..SHARDED },
            LayoutCase { offload: ALL, ..SHARDED },
            LayoutCase { offload: ALL, tensor: 2, sequence: true, ..SHARDED },
            LayoutCase { offload: ALL, pipeline: 2, ..SHARDED },
            LayoutCase { offload: ALL, context: 2, data: 1, ..SHARDED },
        ],
    );
}

#[test]
fn pipelines_with_tied_tables() {
    let gpipe = ScheduleKind::GPipe;
    let interleaved = ScheduleKind::Interleaved;
    check(
        GPT,
        &[
            LayoutCase { offload: OPTIMIZER, pipeline: 2, ..ONE },
            LayoutCase {
                offload: OPTIMIZER,
                pipeline: 2,
                data: 2,
                zero: ZeroStage::OptimizerState,
                ..ONE
            },
            LayoutCase {
                offload: OPTIMIZER,
                pipeline: 2,
                virtual_stages: 2,
                schedule: interleaved,
                ..ONE
            },
            LayoutCase {
                offload: Offload { activations: OffloadedActivations::AllBlocks, ..OPTIMIZER },
                recompute: Recompute::Full,
                pipeline: 2,
                schedule: gpipe,
                ..ONE
            },
        ],
    );
}

#[test]
fn experts() {
    check(
        MIXTRAL,
        &[
            LayoutCase { offload: ALL, expert: 2, ..SHARDED },
            LayoutCase { offload: OPTIMIZER, expert: 2, data: 2, tensor: 2, sequence: true, ..ONE },
            LayoutCase {
                offload: ACTIVATIONS,
                recompute: Recompute::Full,
                context: 2,
                context_kind: ContextParallelKind::AllToAll,
                ..ONE
            },
        ],
    );
}

/// What a rank held at its peak on the device and on its host, and its last step.
fn ran(case: LayoutCase, element: Element) -> (Bytes, Bytes, Track) {
    let program = Arc::new(program(LLAMA, case, element));
    let outcomes = local::run(program.num_ranks(), &[FlexDevice], |communicator| {
        let mut rank = rank(&program, communicator)?;
        rank.step()?;
        rank.record()?;
        rank.step()?;
        Ok::<_, executor_runtime::rank::RunError>((
            rank.peak_memory(),
            rank.peak_host_memory(),
            rank.recorded()?,
        ))
    });
    outcomes.unwrap_or_else(|failure| panic!("{failure}")).swap_remove(0)
}

/// Bytes that a track copies one way.
fn copied(track: &Track, side: CopyDestination) -> Bytes {
    let copies = track.events.iter().filter(|event| event.stream == Stream::Host);
    let copies = copies.filter(|it| matches!(it.activity, Activity::Copy { to, .. } if to == side));
    copies.map(|event| event.bytes).sum()
}

#[test]
fn the_optimizers_state_leaves_the_device() {
    let (mixed, master) = (Element::BF16, 4 + 4 + 4);
    let num_parameters = program(LLAMA, ONE, mixed).num_trained_parameters();
    let (whole, nothing, _) = ran(ONE, mixed);
    let (rest, on_host, track) = ran(LayoutCase { offload: OPTIMIZER, ..ONE }, mixed);
    assert_eq!(nothing, Bytes::ZERO);
    assert_eq!(on_host, Bytes::new(num_parameters * (master + 4)), "states and fp32 gradients");
    // What is reduced of one rank leaves the device as well.
    assert!(whole - rest >= Bytes::new(num_parameters * master), "{whole} less {rest}");
    assert_eq!(copied(&track, CopyDestination::Host), Bytes::new(num_parameters * 4), "gradients");
    assert_eq!(copied(&track, CopyDestination::Device), Bytes::new(num_parameters * 2), "weights");
}

#[test]
fn parameters_come_for_each_use() {
    let mixed = Element::BF16;
    let num_parameters = program(LLAMA, ONE, mixed).num_trained_parameters();
    let case = LayoutCase { offload: STATES, micro_batch_size: 2, ..SHARDED };
    let (_, _, track) = ran(case, mixed);
    // Two micro-batches, forward and backward, and half of the parameters a rank; units are padded to halves.
    let least = Bytes::new(2 * 2 * num_parameters);
    let brought = copied(&track, CopyDestination::Device);
    assert!(brought >= least && brought <= least + Bytes::new(2048), "{brought}, not {least}");
}
