//! Location of model states and bytes that an update touches, counted by hand.

use cost_models::states::{
    ModelStates, StateBytes, optimizer_step, touched_by_host_update, touched_by_update,
};
use cost_models::{Device, Precision, clusters};
use ir::layout::{Offload, OffloadedActivations, ZeroStage};
use ir::units::Bytes;

/// 16 bits with master weights in fp32; fp32 throughout; 16 bits alone.
const MIXED: StateBytes = StateBytes::MIXED_ADAM;
const FP32: StateBytes =
    StateBytes { parameter: 4, shard: 4, gradient: 4, optimizer: 8.0, has_master: false, ..MIXED };
const HALF: StateBytes = StateBytes { optimizer: 4.0, has_master: false, moment: 2.0, ..MIXED };

const NO_OFFLOAD: Offload =
    Offload { optimizer: false, parameters: false, activations: OffloadedActivations::None };
const ALL: Offload = Offload { optimizer: true, parameters: true, ..NO_OFFLOAD };

fn bytes([parameters, gradients, optimizer]: [u64; 3]) -> ModelStates {
    let [parameters, gradients, optimizer] = [parameters, gradients, optimizer].map(Bytes::new);
    ModelStates { parameters, gradients, optimizer }
}

/// Ren et al. 2021, *ZeRO-Offload* (arXiv 2101.06840), section 4: the optimizer's 12 bytes a parameter leave the
/// device, and gradients with them where each rank has a part of them; parameters stay.
#[test]
fn what_is_offloaded_leaves_the_device() {
    let states = bytes([20, 21, 120]);
    for (zero, gradients) in [
        (ZeroStage::None, 21),
        (ZeroStage::OptimizerState, 21),
        (ZeroStage::Gradients, 0),
        (ZeroStage::Parameters, 0),
    ] {
        assert_eq!(states.on_device(zero, NO_OFFLOAD), states);
        let optimizer = Offload { optimizer: true, ..NO_OFFLOAD };
        assert_eq!(states.on_device(zero, optimizer), bytes([20, gradients, 0]));
        let parameters = Offload { parameters: true, ..NO_OFFLOAD };
        assert_eq!(states.on_device(zero, parameters), bytes([0, 21, 120]));
        assert_eq!(states.on_device(zero, ALL), bytes([0, gradients, 0]));
    }
}

/// Frozen weights have neither gradients nor an optimizer, and are sharded where parameters are.
#[test]
fn frozen_weights_are_weights_alone() {
    let stored = Bytes::new(1001);
    for zero in [ZeroStage::None, ZeroStage::OptimizerState, ZeroStage::Gradients] {
        assert_eq!(ModelStates::of_frozen(stored, zero, 8), bytes([1001, 0, 0]));
    }
    assert_eq!(ModelStates::of_frozen(stored, ZeroStage::Parameters, 8), bytes([126, 0, 0]));
    let all = bytes([1, 2, 3]) + bytes([10, 20, 30]);
    assert_eq!(all, bytes([11, 22, 33]));
    assert_eq!(all.total(), Bytes::new(66));
}

/// Of a thousand parameters. On the device: gradients for their norm; then gradients again, the optimizer's state read
/// and written, and weights written, or read as well where they have no copy in fp32. On the host: gradients twice,
/// all that is updated read and written, and weights for the device, where they are others than those.
#[test]
fn an_update_touches_what_it_reads_and_writes() {
    for (of, norm, update, on_host, host) in [
        (MIXED, 2, 2 + 2 * 12 + 2, 12, 2 * 2 + 2 * 12 + 2),
        (FP32, 4, 4 + 2 * 8 + 2 * 4, 8 + 4, 2 * 4 + 2 * 12),
        (HALF, 2, 2 + 2 * 4 + 2 * 2, 4 + 2, 2 * 2 + 2 * 6),
    ] {
        assert_eq!(touched_by_update(1000, of), [1000 * norm, 1000 * update].map(Bytes::new));
        assert!((of.on_host() - f64::from(on_host)).abs() < 1e-12);
        assert_eq!(touched_by_host_update(1000, of), Bytes::new(1000 * host));
    }
}

/// An update is bound by memory: an H100's 3.35 TB/s, of which kernels reach a half to all. A rank with an eighth of
/// the parameters takes an eighth of the time.
#[test]
fn an_update_takes_as_long_as_memory_is_touched() {
    let cluster = clusters::preset("h100").expect("it ships");
    let device = Device::new(&cluster.gpu);
    let owned = 8_000_000_000;
    let time = |owned| optimizer_step([owned, owned], MIXED, Precision::Bf16, &device).get();
    let touched = [2, 28].map(|bytes| (owned * bytes) as f64).iter().sum::<f64>();
    let share = touched / 3.35e12 / time(owned);
    assert!((0.5..=1.0).contains(&share), "{share}");
    assert!((time(owned) / time(owned / 8) / 8.0 - 1.0).abs() < 0.02);
}
