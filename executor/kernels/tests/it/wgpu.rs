//! Kernels of our own, in fp32 and fp16, against the compositions of burn's operations that compute fp64 on the CPU.
//! Sizes are no multiples of tiles, planes or cubes; rows are, and are not, multiples of the vectors that units read.

use burn::tensor::FloatDType;
use executor_kernels::array::{Array, Element};
use executor_kernels::comparison::compare;
use executor_kernels::ops::Kernels;
use executor_kernels::ops::activation::{Function, gated_forward};
use executor_kernels::ops::attention::KeyVisibility;
use executor_kernels::ops::experts::RoutingRule;
use executor_kernels::random::Plain;
use executor_kernels::trials::{
    Activations, Attend, AttentionSizes, CrossEntropy, MixtureSizes, Norms, OperatorTrial,
    Rotations, Squares, ToExperts, Update,
};
use executor_kernels::wgpu::Wgpu;
use executor_kernels::wgpu::WgpuDevice;
use ir::graph::{AttentionMask, ExpertGroups, NormKind, RotaryPairs};

use crate::ops::random;

/// The device, or none where there is no driver, which the test then says.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn device() -> Option<WgpuDevice> {
    let device = executor_kernels::wgpu::device();
    if let Err(error) = &device {
        eprintln!("skipped: {error}");
    }
    device.ok()
}

/// Rows and their width.
const SHAPES: [[usize; 2]; 2] = [[37, 1003], [136, 1024]];

/// What is held against each other: in what, and how near it comes.
#[derive(Clone, Copy)]
struct Check {
    element: Element,
    tolerance: f64,
}

const FP32: Check = Check { element: FloatDType::F32, tolerance: 5e-6 };
const FP16: Check = Check { element: FloatDType::F16, tolerance: 4e-3 };

/// Holds what a trial gives on the device against what it gives in fp64 on the CPU, from the same numbers.
#[track_caller]
fn hold(check: Check, device: &WgpuDevice, trial: &impl OperatorTrial, inputs: &[Plain]) {
    let found = compare::<Wgpu>(trial, inputs, check.element, device);
    assert!(found.error <= check.tolerance, "{found:?}");
}

#[test]
fn activations() {
    use Function as F;
    let Some(device) = device() else { return };
    for inputs in SHAPES.map(|shape| Activations::inputs(&shape)) {
        for function in [F::Gelu, F::GeluTanh, F::QuickGelu, F::Relu, F::Silu, F::Tanh, F::Sigmoid]
        {
            for check in [FP32, FP16] {
                hold(check, &device, &Activations(function), &inputs);
            }
        }
    }
}

/// A gate and a value that are halves of one array are read where they are.
#[test]
fn activations_of_views() {
    struct Views;

    impl OperatorTrial for Views {
        fn run<B: Kernels>(&self, inputs: Vec<Array<B>>) -> Vec<Array<B>> {
            let both = &inputs[0];
            let half = both.size(1) / 2;
            let (gate, value) = (both.narrow(1, 0..half), both.narrow(1, half..2 * half));
            let turned = both.clone().transpose().narrow(0, 3..70);
            vec![gated_forward(Function::Silu, gate, value), Function::Silu.forward(turned)]
        }
    }

    let Some(device) = device() else { return };
    for width in [202, 204, 208] {
        for check in [FP32, FP16] {
            hold(check, &device, &Views, &[random(&[37, width], 1)]);
        }
    }
}

#[test]
fn norms() {
    let Some(device) = device() else { return };
    for kind in [NormKind::LayerNorm, NormKind::RmsNorm] {
        for check in [FP32, FP16] {
            for shape in SHAPES {
                hold(check, &device, &Norms(kind), &Norms::inputs(shape));
            }
        }
    }
}

#[test]
fn rotations() {
    let Some(device) = device() else { return };
    for pairs in [RotaryPairs::Halves, RotaryPairs::Neighbours] {
        for check in [FP32, FP16] {
            for (width, turned) in [(24, 20), (80, 64)] {
                hold(check, &device, &Rotations { pairs, turned }, &Rotations::inputs(width));
            }
        }
    }
}

#[test]
fn cross_entropies() {
    let Some(device) = device() else { return };
    let trial = CrossEntropy { first_class: 500, num_classes: 2000 };
    for check in [FP32, FP16] {
        for shape in SHAPES {
            hold(check, &device, &trial, &CrossEntropy::inputs(shape));
        }
    }
}

#[test]
fn updates() {
    let Some(device) = device() else { return };
    for shape in SHAPES {
        for check in [FP32, FP16] {
            hold(check, &device, &Update, &Update::inputs(&shape));
        }
    }
}

#[test]
fn sums_of_squares() {
    let Some(device) = device() else { return };
    for shape in [[1, 1], [1, 1003], [1024, 1300]] {
        for check in [FP32, FP16] {
            hold(check, &device, &Squares, &Squares::inputs(shape));
        }
    }
}

/// More choices than units, experts without rows, experts with rows of several tiles, and groups of experts.
#[test]
fn experts() {
    let Some(device) = device() else { return };
    let plain = RoutingRule::likeliest;
    let groups = Some(ExpertGroups { count: 4, chosen: 2, scored_by: 2 });
    for (rule, rows, experts, widths) in [
        (plain(1, false), 1, 1, [3, 5]),
        (plain(2, true), 75, 6, [85, 130]),
        (plain(3, false), 300, 4, [64, 72]),
        (plain(2, true), 9, 300, [8, 16]),
        (RoutingRule { scaling: 2.5, groups, ..plain(4, true) }, 40, 32, [64, 24]),
    ] {
        let inputs = ToExperts::inputs(MixtureSizes { rows, experts, widths });
        for check in [FP32, FP16] {
            hold(check, &device, &ToExperts(rule), &inputs);
        }
    }
}

fn sizes([queries, keys, heads, kv_heads, width, value_width]: [usize; 6]) -> AttentionSizes {
    AttentionSizes { queries, keys, heads, kv_heads, width, value_width }
}

/// More than one tile, of which the last is not full; keys that are a part of a ring's, seen by all queries, by some
/// and by none.
#[test]
fn attention_in_tiles() {
    let Some(device) = device() else { return };
    let inputs = Attend::inputs(sizes([75, 85, 4, 2, 20, 20]));
    let masks =
        [AttentionMask::Full, AttentionMask::Causal, AttentionMask::SlidingWindow { window: 33 }];
    for mask in masks {
        for (query_start, key_start) in [(0, 0), (20, 0), (20, 60), (60, 10), (0, 200), (200, 0)] {
            let visibility = KeyVisibility { mask, query_start, key_start };
            hold(FP32, &device, &Attend::plain(visibility), &inputs);
        }
    }
}

#[test]
fn attention_with_caps_slopes_and_sinks() {
    let Some(device) = device() else { return };
    let inputs = Attend::inputs(sizes([40, 40, 3, 1, 24, 24]));
    let visibility = KeyVisibility { mask: AttentionMask::Causal, query_start: 7, key_start: 2 };
    for (soft_cap, has_slopes, has_sinks) in [
        (Some(0.7), false, false),
        (None, true, false),
        (Some(0.7), true, false),
        (None, false, true),
    ] {
        let trial = Attend { soft_cap, has_slopes, has_sinks, visibility };
        hold(FP32, &device, &trial, &inputs);
    }
}

/// Heads from tiny to more than shared memory holds, values of another width than keys, and 16 bits.
#[test]
fn attention_of_any_width() {
    let Some(device) = device() else { return };
    let visibility = KeyVisibility { mask: AttentionMask::Causal, query_start: 0, key_start: 0 };
    let causal = Attend::plain(visibility);
    for (width, value_width) in [(1, 3), (64, 64), (96, 64), (128, 128), (320, 320)] {
        let inputs = Attend::inputs(sizes([37, 37, 2, 2, width, value_width]));
        hold(FP32, &device, &causal, &inputs);
    }
    hold(FP16, &device, &causal, &Attend::inputs(sizes([37, 37, 4, 2, 32, 32])));
}

/// Queries, keys and values that are cut out of one array are read where they are.
#[test]
fn attention_of_views() {
    struct Views;

    impl OperatorTrial for Views {
        fn run<B: Kernels>(&self, inputs: Vec<Array<B>>) -> Vec<Array<B>> {
            let [all, grad] = [0, 1].map(|index| inputs[index].clone());
            let [q, k, v] = [0..4, 4..6, 6..8].map(|heads| all.narrow(2, heads));
            let visibility = KeyVisibility { mask: AttentionMask::Causal, ..KeyVisibility::FULL };
            let of_heads = q.narrow(0, 0..1).narrow(1, 0..1).narrow(3, 0..1).flatten();
            Attend::plain(visibility).run(vec![q, k, v, grad.swap_dims(1, 2), of_heads])
        }
    }

    let Some(device) = device() else { return };
    hold(FP32, &device, &Views, &[random(&[2, 33, 8, 16], 1), random(&[2, 4, 33, 16], 2)]);
}

/// Elements stay in order, whatever dimensions of one element stand between those that were exchanged.
#[test]
fn exchanged_dimensions_take_any_shape() {
    struct Exchanged([usize; 2], &'static [usize]);

    impl OperatorTrial for Exchanged {
        fn run<B: Kernels>(&self, inputs: Vec<Array<B>>) -> Vec<Array<B>> {
            let [a, b] = self.0;
            vec![inputs[0].clone().swap_dims(a, b).reshape(self.1)]
        }
    }

    let Some(device) = device() else { return };
    for (shape, dims, new) in [
        (&[2, 6, 3, 1][..], [1, 2], &[2, 3, 2, 3, 1][..]),
        (&[2, 6, 3, 1], [1, 2], &[2, 3, 6, 1, 1]),
        (&[4, 1, 6, 5], [0, 2], &[3, 2, 1, 4, 5]),
        (&[1, 6, 4, 5], [1, 2], &[1, 2, 2, 6, 5]),
        (&[1, 6, 4], [1, 2], &[1, 2, 2, 6]),
        (&[6, 4, 1], [0, 1], &[2, 2, 6, 1]),
        (&[3, 4, 10], [0, 1], &[12, 2, 5]),
        (&[3, 1, 10], [0, 1], &[3, 2, 5]),
        (&[2, 4, 15], [0, 1], &[4, 6, 5]),
    ] {
        hold(FP32, &device, &Exchanged(dims, new), &[random(shape, 1)]);
    }
}
