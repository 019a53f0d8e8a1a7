//! Operators on the CPU in fp32: one pass over memory, vectorised, on all threads. Other element types use burn's
//! operations.

#![expect(
    clippy::inline_always,
    reason = "code is vectorised as its caller is only where it is inlined"
)]

mod elementwise;
mod math;
mod memory;
mod rows;

use std::ops::Range;

use burn_flex::Flex;
use ir::graph::NormKind;

use super::{BasicKernels, are_fp32};
use crate::array::Array;
use crate::ops::Kernels;
use crate::ops::composed;
use crate::ops::composed::activation::Function;
use crate::ops::composed::adamw::AdamW;
use crate::ops::composed::norm::Statistics;

impl Kernels for Flex {}

impl BasicKernels for Flex {
    fn contiguous(x: Array<Self>) -> Array<Self> {
        if are_fp32([&x]) { memory::contiguous(x) } else { x }
    }

    fn add_at(x: Array<Self>, dim: usize, start: usize, part: Array<Self>) -> Array<Self> {
        if are_fp32([&x, &part]) {
            memory::add_at(x, dim, start, &part)
        } else {
            x.add_at(dim, start, part)
        }
    }

    fn activation(function: Function, x: Array<Self>) -> Array<Self> {
        if are_fp32([&x]) && elementwise::covers(function) {
            elementwise::forward(function, &x)
        } else {
            composed::activation::forward(function, x)
        }
    }

    fn activation_grad(function: Function, kept: Array<Self>, grad: Array<Self>) -> Array<Self> {
        if are_fp32([&kept, &grad]) && elementwise::covers(function) {
            elementwise::input_grad(function, &kept, grad)
        } else {
            composed::activation::input_grad(function, kept, grad)
        }
    }

    fn gated(function: Function, gate: Array<Self>, value: Array<Self>) -> Array<Self> {
        if are_fp32([&gate, &value]) && elementwise::covers(function) {
            elementwise::gated_forward(function, &gate, &value)
        } else {
            composed::activation::gated_forward(function, gate, value)
        }
    }

    fn gated_grad(
        function: Function,
        gate: Array<Self>,
        value: Array<Self>,
        grad: Array<Self>,
    ) -> (Array<Self>, Array<Self>) {
        if are_fp32([&gate, &value, &grad]) && elementwise::covers(function) {
            elementwise::gated_input_grad(function, &gate, &value, grad)
        } else {
            composed::activation::gated_input_grad(function, gate, value, grad)
        }
    }

    fn norm(
        kind: NormKind,
        x: Array<Self>,
        weight: Option<Array<Self>>,
        bias: Option<Array<Self>>,
        epsilon: f64,
    ) -> (Array<Self>, Statistics<Self>) {
        if are_fp32([&x].into_iter().chain(&weight).chain(&bias)) {
            rows::norm(kind, &x, weight.as_ref(), bias.as_ref(), epsilon as f32)
        } else {
            composed::norm::forward(kind, x, weight, bias, epsilon)
        }
    }

    fn norm_input_grad(
        x: Array<Self>,
        statistics: &Statistics<Self>,
        weight: Option<Array<Self>>,
        grad: Array<Self>,
    ) -> Array<Self> {
        if are_fp32([&x, &grad].into_iter().chain(&weight)) {
            rows::norm_input_grad(&x, statistics, weight.as_ref(), grad)
        } else {
            composed::norm::input_grad(x, statistics, weight, grad)
        }
    }

    fn norm_weight_grad(
        x: Array<Self>,
        statistics: &Statistics<Self>,
        grad: Array<Self>,
    ) -> (Array<Self>, Array<Self>) {
        if are_fp32([&x, &grad]) {
            rows::norm_weight_grad(&x, statistics, &grad)
        } else {
            composed::norm::weight_grad(x, statistics, grad)
        }
    }

    fn rotate(x: Array<Self>, cos: &Array<Self>, sin: &Array<Self>) -> Array<Self> {
        if are_fp32([&x, cos, sin]) {
            rows::rotate(x, cos, sin)
        } else {
            composed::rotary::rotate(x, cos, sin)
        }
    }

    fn attention_softmax(scores: Array<Self>, seen: &[Range<usize>]) -> (Array<Self>, Array<Self>) {
        if are_fp32([&scores]) {
            rows::softmax(scores, seen)
        } else {
            composed::attention::softmax(scores, seen)
        }
    }

    fn attention_probabilities(
        scores: Array<Self>,
        log_sum_exp: Array<Self>,
        seen: &[Range<usize>],
    ) -> Array<Self> {
        if are_fp32([&scores, &log_sum_exp]) {
            rows::probabilities(scores, &log_sum_exp, seen)
        } else {
            composed::attention::probabilities(scores, log_sum_exp, seen)
        }
    }

    fn attention_score_grad(
        probabilities: Array<Self>,
        probability_grad: Array<Self>,
        delta: Array<Self>,
    ) -> Array<Self> {
        if are_fp32([&probabilities, &probability_grad, &delta]) {
            rows::score_grad(&probabilities, probability_grad, &delta)
        } else {
            probabilities * (probability_grad - delta)
        }
    }

    fn adamw(
        rates: &AdamW,
        weights: Array<Self>,
        [first, second]: [Array<Self>; 2],
        gradient: Array<Self>,
    ) -> (Array<Self>, [Array<Self>; 2]) {
        let gradient = gradient.cast(weights.element());
        if are_fp32([&weights, &first, &second, &gradient]) {
            elementwise::adamw(rates, weights, [first, second], &gradient)
        } else {
            composed::adamw::adamw(rates, weights, [first, second], gradient)
        }
    }

    fn exponentials(logits: Array<Self>, max: Array<Self>) -> (Array<Self>, Array<Self>) {
        if are_fp32([&logits, &max]) {
            rows::exponentials(logits, &max)
        } else {
            composed::loss::exponentials(logits, max)
        }
    }

    fn cross_entropy_grad(
        exponentials: Array<Self>,
        sum: Array<Self>,
        targets: &[u32],
        first_class: usize,
        scale: f64,
    ) -> Array<Self> {
        if are_fp32([&exponentials, &sum]) {
            rows::cross_entropy_grad(exponentials, &sum, targets, first_class, scale as f32)
        } else {
            composed::loss::input_grad(exponentials, sum, targets, first_class, scale)
        }
    }
}
