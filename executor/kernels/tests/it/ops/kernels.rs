//! The CPU's loops over fp32 against the compositions of burn's operations that compute fp64, on arrays
//! larger than what one thread takes at a time.

use burn::tensor::FloatDType;
use burn_flex::Flex;
use executor_kernels::ops::BasicKernels;
use executor_kernels::ops::activation::{Function, gated_forward, gated_input_grad};
use executor_kernels::ops::attention::{self, KeyVisibility, Scoring};
use executor_kernels::ops::rotary::{Rotary, frequencies};
use executor_kernels::ops::{loss, norm};
use ir::graph::{AttentionMask, NormKind, RotaryPairs, RotaryScaling};

use super::{Plain, check_rounded, random, random_indices};

/// Rows and their width: neither is a multiple of a vector's length.
const SHAPE: [usize; 2] = [37, 1003];

#[track_caller]
fn check_fp32<const N: usize>(inputs: [&Plain; N], function: impl Fn([Plain; N]) -> Vec<Plain>) {
    check_rounded(FloatDType::F32, inputs, 5e-6, function);
}

#[test]
fn activations() {
    let [x, value, grad] = [1, 2, 3].map(|seed| random(&SHAPE, seed));
    let x = x.scale(5.0);
    for function in [Function::Gelu, Function::GeluTanh, Function::Silu] {
        check_fp32([&x, &value, &grad], |[x, value, grad]| {
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

#[test]
fn activations_of_views() {
    let x = random(&SHAPE, 1).transpose().narrow(0, 3..700);
    check_fp32([&x], |[x]| vec![Function::Silu.forward(x.clone().transpose().narrow(0, 1..9))]);
}

/// Elements move, and none is changed.
#[test]
fn what_is_laid_out_anew_is_the_same() {
    let x = random(&[3, 5, 7, 4], 1).cast(FloatDType::F32);
    let views = [
        x.clone(),
        x.clone().swap_dims(1, 2),
        x.clone().permute(&[2, 0, 1, 3]),
        x.clone().transpose(),
        x.narrow(1, 2..4),
        x.narrow(1, 2..2),
        x.narrow(3, 1..3).swap_dims(0, 1),
        x.clone().reshape(&[105, 4]).narrow(0, 7..50),
    ];
    for view in views {
        assert_eq!(Flex::contiguous(view.clone()).to_f64(), view.to_f64());
        assert_eq!(Flex::contiguous(view.clone()).shape(), view.shape());
    }
}

#[test]
fn parts_are_added_where_they_belong() {
    let (x, part) = (random(&[2, 5, 3, 4], 1), random(&[2, 5, 2, 4], 2));
    check_fp32([&x, &part], |[x, part]| vec![Flex::add_at(x, 2, 1, part)]);
}

#[test]
fn arrays_that_are_shared_do_not_change() {
    let x = random(&SHAPE, 1).cast(FloatDType::F32);
    let before = x.to_f64();
    let (exponentials, _) = loss::exponentials(x.clone(), loss::Measures::of(&x).max);
    Function::Silu.input_grad(x.clone(), x.clone());
    assert_eq!(x.to_f64(), before);
    assert_eq!(exponentials.shape(), SHAPE);
}

#[test]
fn norms() {
    let [x, grad] = [1, 2].map(|seed| random(&SHAPE, seed));
    let [weight, bias] = [3, 4].map(|seed| random(&[SHAPE[1]], seed));
    for kind in [NormKind::LayerNorm, NormKind::RmsNorm] {
        check_fp32([&x, &grad, &weight, &bias], |[x, grad, weight, bias]| {
            let (y, statistics) =
                norm::forward(kind, x.clone(), Some(weight.clone()), Some(bias), 1e-5);
            let (plain, _) = norm::forward(kind, x.clone(), None, None, 1e-5);
            let input_grad =
                norm::input_grad(kind, x.clone(), &statistics, Some(weight), grad.clone());
            let (scale, shift) = norm::weight_grad(kind, x, &statistics, grad);
            let scale_of_one = scale.scale(1.0 / SHAPE[0] as f64);
            vec![y, plain, input_grad, scale_of_one, shift, statistics.inverse_deviation]
        });
    }
}

#[test]
fn rotations() {
    let (heads, flat) = (random(&[3, 41, 5, 24], 1), random(&[3, 41, 24], 2));
    check_fp32([&heads, &flat], |[heads, flat]| {
        let (element, device) = (heads.element(), heads.device());
        let positions: Vec<u32> = (3..44).collect();
        let (angles, _) = frequencies(20, 10_000.0, &RotaryScaling::None, 1);
        let pairs = RotaryPairs::Halves;
        let rotary = Rotary::new(&positions, pairs, &angles, 1.2, element, &device);
        vec![rotary.apply(heads.clone()), rotary.apply_inverse(heads), rotary.apply(flat)]
    });
}

#[test]
fn cross_entropies() {
    let logits = random(&SHAPE, 1).scale(10.0);
    let targets = random_indices(SHAPE[0], 2000, 1);
    check_fp32([&logits], |[logits]| {
        let max = loss::Measures::of(&logits).max;
        let target = loss::target_logits(&logits, &targets, 500, max.clone());
        let (exponentials, sum) = loss::exponentials(logits, max);
        let gradient = loss::input_grad(exponentials.clone(), sum.clone(), &targets, 500, 0.7);
        vec![exponentials, loss::losses(sum, target), gradient]
    });
}

#[test]
fn attention_in_blocks() {
    let q = random(&[2, 150, 4, 24], 1);
    let [k, v] = [2, 3].map(|seed| random(&[2, 170, 2, 24], seed));
    let masks =
        [AttentionMask::Full, AttentionMask::Causal, AttentionMask::SlidingWindow { window: 33 }];
    for mask in masks {
        for key_start in [0, 60] {
            let visibility = KeyVisibility { mask, query_start: 20, key_start };
            check_fp32([&q, &k, &v], |[q, k, v]| {
                let scoring = Scoring::plain(0.2);
                let (out, lse) =
                    attention::forward(q.clone(), k.clone(), v.clone(), &scoring, visibility);
                let grads = attention::input_grad(
                    q,
                    k,
                    v,
                    out.clone(),
                    lse.clone(),
                    out.clone(),
                    &scoring,
                    visibility,
                );
                vec![out, lse, grads.query, grads.key, grads.value]
            });
        }
    }
}

#[test]
fn exponentials_are_right_to_two_units_in_the_last_place() {
    let below = (0..8700).map(|hundredths| -f64::from(hundredths) / 100.0);
    let values = below.chain([-88.5, -1e4, f64::NEG_INFINITY]).collect::<Vec<_>>();
    let shape = [1, values.len()];
    let logits = Plain::from_f64(values, &shape, FloatDType::F32, &burn_flex::FlexDevice);
    let (exponentials, _) = loss::exponentials(logits.clone(), loss::Measures::of(&logits).max);
    for (logit, exponential) in logits.to_f64().into_iter().zip(exponentials.to_f64()) {
        let expected = if logit < -88.0 { 0.0 } else { logit.exp() };
        let error = (exponential - expected).abs();
        assert!(
            error <= 2.0 * expected * f64::from(f32::EPSILON),
            "e^{logit} is not {exponential}"
        );
    }
}
