//! Kernels of our own, in fp32 and fp16, against the compositions of burn's operations that compute fp64 on the CPU.
//! Sizes are no multiples of tiles, planes or cubes.

use burn::tensor::FloatDType;
use burn_flex::FlexDevice;
use burn_wgpu::WgpuDevice;
use executor::array::{Array, Element};
use executor::ops::activation::{Function, gated_forward, gated_input_grad};
use executor::ops::attention::{self, Bias, Scoring, Visibility};
use executor::ops::rotary::{Rotary, frequencies};
use executor::ops::{BasicKernels, Kernels};
use executor::ops::{loss, norm};
use executor::optimizer::AdamW;
use executor::wgpu::Wgpu;
use ir::graph::{AttentionMask, NormKind, RotaryPairs, RotaryScaling};

use super::device;
use crate::ops::{Plain, assert_close, random, random_indices};

/// Rows and their width.
const SHAPE: [usize; 2] = [37, 1003];

/// What is held against each other: in what, and how near it comes.
#[derive(Clone, Copy)]
struct Check {
    element: Element,
    tolerance: f64,
}

const FP32: Check = Check { element: FloatDType::F32, tolerance: 5e-6 };
const FP16: Check = Check { element: FloatDType::F16, tolerance: 4e-3 };

/// Holds what an expression gives on the device against what it gives in fp64 on the CPU, from the same numbers.
macro_rules! hold {
    ($check:expr, $device:expr, $inputs:expr, $names:pat => $outputs:expr) => {{
        let rounded = $inputs.map(|input: Plain| input.cast($check.element));
        let $names = rounded.each_ref().map(|input| to_device(input, $device));
        let outputs: Vec<Array<Wgpu>> = $outputs;
        let $names = rounded.map(|input| input.cast(FloatDType::F64));
        let exact: Vec<Plain> = $outputs;
        for (actual, expected) in outputs.iter().zip(&exact) {
            assert_close(&to_host(actual), expected, $check.tolerance);
        }
    }};
}

fn to_device(x: &Plain, device: &WgpuDevice) -> Array<Wgpu> {
    Array::from_data(x.clone().into_data(), device)
}

fn to_host(x: &Array<Wgpu>) -> Plain {
    Array::from_f64(x.to_f64(), &x.shape(), FloatDType::F64, &FlexDevice)
}

#[test]
fn activations() {
    use Function as F;
    let Some(device) = device() else { return };
    let [x, value, grad] = [1, 2, 3].map(|seed| random(&SHAPE, seed));
    let x = x.scale(5.0);
    for function in [F::Gelu, F::GeluTanh, F::QuickGelu, F::Relu, F::Silu, F::Tanh, F::Sigmoid] {
        for check in [FP32, FP16] {
            hold!(check, &device, [x.clone(), value.clone(), grad.clone()], [x, value, grad] => {
                let (gate_grad, value_grad) =
                    gated_input_grad(function, x.clone(), value.clone(), grad.clone());
                vec![
                    function.forward(x.clone()),
                    function.input_grad(x.clone(), grad),
                    gated_forward(function, x, value),
                    gate_grad,
                    value_grad,
                ]
            });
        }
    }
}

/// A gate and a value that are halves of one array are read where they are.
#[test]
fn activations_of_views() {
    let Some(device) = device() else { return };
    hold!(FP32, &device, [random(&[37, 202], 1)], [both] => {
        let (gate, value) = (both.narrow(1, 0..101), both.narrow(1, 101..202));
        let turned = both.transpose().narrow(0, 3..70);
        vec![gated_forward(Function::Silu, gate, value), Function::Silu.forward(turned)]
    });
}

#[test]
fn norms() {
    let Some(device) = device() else { return };
    let [weight, bias] = [3, 4].map(|seed| random(&[SHAPE[1]], seed));
    let [x, grad] = [1, 2].map(|seed| random(&SHAPE, seed));
    for kind in [NormKind::LayerNorm, NormKind::RmsNorm] {
        for check in [FP32, FP16] {
            let inputs = [x.clone(), grad.clone(), weight.clone(), bias.clone()];
            hold!(check, &device, inputs, [x, grad, weight, bias] => {
                let (y, statistics) =
                    norm::forward(kind, x.clone(), Some(weight.clone()), Some(bias), 1e-5);
                let (plain, _) = norm::forward(kind, x.clone(), None, None, 1e-5);
                let input_grad =
                    norm::input_grad(kind, x.clone(), &statistics, Some(weight), grad.clone());
                let plain_grad = norm::input_grad(kind, x.clone(), &statistics, None, grad.clone());
                let (scale, shift) = norm::weight_grad(kind, x, &statistics, grad);
                let per_row = 1.0 / SHAPE[0] as f64;
                let (scale, shift) = (scale.scale(per_row), shift.scale(per_row));
                vec![y, plain, input_grad, plain_grad, scale, shift, statistics.inverse_deviation]
            });
        }
    }
}

#[test]
fn rotations() {
    let Some(device) = device() else { return };
    let (heads, flat) = (random(&[3, 41, 5, 24], 1), random(&[3, 41, 24], 2));
    let positions: Vec<u32> = (3..44).collect();
    let (angles, _) = frequencies(20, 10_000.0, &RotaryScaling::None, 1);
    for pairs in [RotaryPairs::Halves, RotaryPairs::Neighbours] {
        for check in [FP32, FP16] {
            hold!(check, &device, [heads.clone(), flat.clone()], [heads, flat] => {
                let (element, device) = (heads.element(), heads.device());
                let rotary = Rotary::new(&positions, pairs, &angles, 1.2, element, &device);
                let part = heads.narrow(2, 1..4);
                vec![
                    rotary.apply(heads.clone()),
                    rotary.apply_inverse(heads),
                    rotary.apply(part),
                    rotary.apply(flat),
                ]
            });
        }
    }
}

#[test]
fn cross_entropies() {
    let Some(device) = device() else { return };
    let targets = random_indices(SHAPE[0], 2000, 1);
    for check in [FP32, FP16] {
        hold!(check, &device, [random(&SHAPE, 1).scale(10.0)], [logits] => {
            let max = loss::row_max(&logits);
            let target = loss::target_logits(&logits, &targets, 500, max.clone());
            let (exponentials, sum) = loss::exponentials(logits, max);
            let gradient = loss::input_grad(exponentials.clone(), sum.clone(), &targets, 500, 0.7);
            vec![exponentials, loss::losses(sum, target), gradient]
        });
    }
}

#[test]
fn updates() {
    let Some(device) = device() else { return };
    let rates = AdamW {
        factor: 0.5,
        beta1: 0.9,
        beta2: 0.95,
        kept_share: 0.999,
        step: 0.01,
        root_scale: 1.5,
        epsilon: 1e-8,
    };
    let [weights, first, second, grad] = [1, 2, 3, 4].map(|seed| random(&SHAPE, seed));
    let second = second.square();
    hold!(FP32, &device, [weights, first, second, grad], [weights, first, second, grad] => {
        let (new, [m, v]) =
            BasicKernels::adamw(&rates, weights.clone(), [first, second.clone()], grad);
        // What somebody else holds did not change.
        vec![new, m, v, weights, second]
    });
}

/// Output, log-sum-exp and gradients, of scores with or without a cap and slopes.
fn attend<B: Kernels>(
    [q, k, v, grad, slopes]: [Array<B>; 5],
    soft_cap: Option<f64>,
    has_slopes: bool,
    visibility: Visibility,
) -> Vec<Array<B>> {
    let bias = if has_slopes { Bias::Slopes(slopes) } else { Bias::None };
    let scale = 1.0 / (q.size(3) as f64).sqrt();
    let scoring = Scoring { soft_cap, bias, ..Scoring::plain(scale) };
    let (out, lse) = attention::forward(q.clone(), k.clone(), v.clone(), &scoring, visibility);
    let (kept, known) = (out.clone(), lse.clone());
    let grads = attention::input_grad(q, k, v, kept, known, grad, &scoring, visibility);
    vec![out, lse, grads.query, grads.key, grads.value]
}

/// Queries, keys, values, a gradient of the output, and slopes.
fn attention_inputs(
    [queries, keys, heads, kv_heads, width, value_width]: [usize; 6],
) -> [Plain; 5] {
    [
        random(&[2, queries, heads, width], 1),
        random(&[2, keys, kv_heads, width], 2),
        random(&[2, keys, kv_heads, value_width], 3),
        random(&[2, queries, heads, value_width], 4),
        random(&[heads], 5).scale(0.1),
    ]
}

/// More than one tile, of which the last is not full; keys that are a part of a ring's, seen by all queries, by some
/// and by none.
#[test]
fn attention_in_tiles() {
    let Some(device) = device() else { return };
    let inputs = attention_inputs([75, 85, 4, 2, 20, 20]);
    let masks =
        [AttentionMask::Full, AttentionMask::Causal, AttentionMask::SlidingWindow { window: 33 }];
    for mask in masks {
        for (query_start, key_start) in [(0, 0), (20, 0), (20, 60), (60, 10), (0, 200), (200, 0)] {
            let visibility = Visibility { mask, query_start, key_start };
            hold!(FP32, &device, inputs.clone(), inputs => attend(inputs, None, false, visibility));
        }
    }
}

#[test]
fn attention_with_caps_and_slopes() {
    let Some(device) = device() else { return };
    let inputs = attention_inputs([40, 40, 3, 1, 24, 24]);
    let visibility = Visibility { mask: AttentionMask::Causal, query_start: 7, key_start: 2 };
    for (cap, has_slopes) in [(Some(0.7), false), (None, true), (Some(0.7), true)] {
        hold!(FP32, &device, inputs.clone(), inputs => attend(inputs, cap, has_slopes, visibility));
    }
}

/// Heads from tiny to more than shared memory holds, values of another width than keys, and 16 bits.
#[test]
fn attention_of_any_width() {
    let Some(device) = device() else { return };
    let visibility = Visibility { mask: AttentionMask::Causal, query_start: 0, key_start: 0 };
    for (width, value_width) in [(1, 3), (64, 64), (96, 64), (128, 128), (320, 320)] {
        let inputs = attention_inputs([37, 37, 2, 2, width, value_width]);
        hold!(FP32, &device, inputs, inputs => attend(inputs, None, false, visibility));
    }
    let inputs = attention_inputs([37, 37, 4, 2, 32, 32]);
    hold!(FP16, &device, inputs, inputs => attend(inputs, None, false, visibility));
}

/// Queries, keys and values that are cut out of one array are read where they are.
#[test]
fn attention_of_views() {
    let Some(device) = device() else { return };
    hold!(FP32, &device, [random(&[2, 33, 8, 16], 1), random(&[2, 4, 33, 16], 2)], [all, grad] => {
        let [q, k, v] = [0..4, 4..6, 6..8].map(|heads| all.narrow(2, heads));
        let visibility = Visibility { mask: AttentionMask::Causal, ..Visibility::FULL };
        let slopes = q.narrow(0, 0..1).narrow(1, 0..1).narrow(3, 0..1).flatten();
        attend([q, k, v, grad.swap_dims(1, 2), slopes], None, false, visibility)
    });
}

/// Elements stay in order, whatever dimensions of one element stand between those that were exchanged.
#[test]
fn exchanged_dimensions_take_any_shape() {
    let Some(device) = device() else { return };
    for (shape, [a, b], new) in [
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
        hold!(FP32, &device, [random(shape, 1)], [x] => {
            vec![x.swap_dims(a, b).reshape(new)]
        });
    }
}
