//! Elementwise functions.

use burn_flex::Flex;
use rayon::prelude::*;

use super::math::{CHUNK, map2, normal, sigmoid, update, vectorised};
use super::memory::{Read, array, owned};
use crate::array::Array;
use crate::ops::composed::activation::{Function, GELU_CUBE, SQRT_2_OVER_PI};
use crate::ops::composed::adamw::AdamW;

/// Returns whether there is a vectorised loop for a function. The others are cheap or rare.
pub(super) fn covers(function: Function) -> bool {
    matches!(function, Function::Gelu | Function::GeluTanh | Function::Silu)
}

pub(super) fn forward(function: Function, x: &Array<Flex>) -> Array<Flex> {
    let input = Read::new(x);
    let input = input.slice();
    let mut out = vec![0.0; input.len()];
    match function {
        Function::Gelu => map2(&mut out, input, input, |x, _| gelu(x).0),
        Function::GeluTanh => map2(&mut out, input, input, |x, _| gelu_tanh(x).0),
        _ => map2(&mut out, input, input, |x, _| silu(x).0),
    }
    array(out, &x.shape())
}

pub(super) fn input_grad(function: Function, x: &Array<Flex>, grad: Array<Flex>) -> Array<Flex> {
    let input = Read::new(x);
    let mut out = owned(grad);
    match function {
        Function::Gelu => update(&mut out, input.slice(), |grad, x| grad * gelu(x).1),
        Function::GeluTanh => update(&mut out, input.slice(), |grad, x| grad * gelu_tanh(x).1),
        _ => update(&mut out, input.slice(), |grad, x| grad * silu(x).1),
    }
    array(out, &x.shape())
}

pub(super) fn gated_forward(
    function: Function,
    gate: &Array<Flex>,
    value: &Array<Flex>,
) -> Array<Flex> {
    let (gates, values) = (Read::new(gate), Read::new(value));
    let (gates, values) = (gates.slice(), values.slice());
    let mut out = vec![0.0; gates.len()];
    match function {
        Function::Gelu => map2(&mut out, gates, values, |gate, value| gelu(gate).0 * value),
        Function::GeluTanh => {
            map2(&mut out, gates, values, |gate, value| gelu_tanh(gate).0 * value);
        }
        _ => map2(&mut out, gates, values, |gate, value| silu(gate).0 * value),
    }
    array(out, &gate.shape())
}

pub(super) fn gated_input_grad(
    function: Function,
    gate: &Array<Flex>,
    value: &Array<Flex>,
    grad: Array<Flex>,
) -> (Array<Flex>, Array<Flex>) {
    let (gates, values) = (Read::new(gate), Read::new(value));
    let mut grads = owned(grad);
    let inputs = (gates.slice(), values.slice());
    let gate_grads = match function {
        Function::Gelu => both_grads(inputs, &mut grads, gelu),
        Function::GeluTanh => both_grads(inputs, &mut grads, gelu_tanh),
        _ => both_grads(inputs, &mut grads, silu),
    };
    let shape = gate.shape();
    (array(gate_grads, &shape), array(grads, &shape))
}

/// AdamW in one pass over weights, moments and gradients, where burn's operations make a dozen passes.
pub(super) fn adamw(
    rates: &AdamW,
    weights: Array<Flex>,
    [first, second]: [Array<Flex>; 2],
    gradient: &Array<Flex>,
) -> (Array<Flex>, [Array<Flex>; 2]) {
    let shape = weights.shape();
    let gradient = Read::new(gradient);
    let (mut weights, mut first, mut second) = (owned(weights), owned(first), owned(second));
    let [factor, beta1, beta2] = [rates.factor, rates.beta1, rates.beta2].map(|rate| rate as f32);
    let [new1, new2] = [1.0 - rates.beta1, 1.0 - rates.beta2].map(|rate| rate as f32);
    let [kept, step] = [rates.kept_share, rates.step].map(|rate| rate as f32);
    let [root_scale, epsilon] = [rates.root_scale, rates.epsilon].map(|rate| rate as f32);
    let states = weights.par_chunks_mut(CHUNK).zip(first.par_chunks_mut(CHUNK));
    let states = states.zip(second.par_chunks_mut(CHUNK)).zip(gradient.slice().par_chunks(CHUNK));
    states.for_each(|(((weights, first), second), gradient)| {
        vectorised(
            #[inline(always)]
            || {
                let states = weights.iter_mut().zip(first).zip(second).zip(gradient);
                for (((weight, first), second), gradient) in states {
                    let gradient = gradient * factor;
                    *first = *first * beta1 + gradient * new1;
                    *second = *second * beta2 + gradient * gradient * new2;
                    let root = second.sqrt() * root_scale + epsilon;
                    *weight = *weight * kept - *first / root * step;
                }
            },
        );
    });
    (array(weights, &shape), [array(first, &shape), array(second, &shape)])
}

/// Returns the gradients of the gates, and replaces the gradients of the products by those of the values. `function`
/// returns value and slope.
fn both_grads(
    (gates, values): (&[f32], &[f32]),
    grads: &mut [f32],
    function: impl Fn(f32) -> (f32, f32) + Sync,
) -> Vec<f32> {
    let mut gate_grads = vec![0.0; gates.len()];
    let outputs = gate_grads.par_chunks_mut(CHUNK).zip(grads.par_chunks_mut(CHUNK));
    let inputs = gates.par_chunks(CHUNK).zip(values.par_chunks(CHUNK));
    outputs.zip(inputs).for_each(|((gate_grads, grads), (gates, values))| {
        vectorised(
            #[inline(always)]
            || {
                let outputs = gate_grads.iter_mut().zip(grads);
                for ((gate_grad, grad), (gate, value)) in outputs.zip(gates.iter().zip(values)) {
                    let (opened, slope) = function(*gate);
                    *gate_grad = *grad * *value * slope;
                    *grad *= opened;
                }
            },
        );
    });
    gate_grads
}

/// Value and slope of SiLU.
#[inline(always)]
fn silu(x: f32) -> (f32, f32) {
    let sigmoid = sigmoid(x);
    (x * sigmoid, sigmoid * (1.0 + x * (1.0 - sigmoid)))
}

/// Value and slope of GELU.
#[inline(always)]
fn gelu(x: f32) -> (f32, f32) {
    let (share, density) = normal(x);
    (x * share, share + x * density)
}

/// Value and slope of GELU by `(1 + tanh(u)) / 2 = sigmoid(2 u)`.
#[inline(always)]
fn gelu_tanh(x: f32) -> (f32, f32) {
    const TWICE: f32 = 2.0 * SQRT_2_OVER_PI as f32;
    const CUBE: f32 = GELU_CUBE as f32;
    let sigmoid = sigmoid(TWICE * x * (1.0 + CUBE * x * x));
    let rise = TWICE * (1.0 + 3.0 * CUBE * x * x);
    (x * sigmoid, sigmoid * (1.0 + x * (1.0 - sigmoid) * rise))
}
