//! Operators that a backend may compute faster than by burn's operations one after another.
//!
//! Each of burn's operations passes over memory once and, on the CPU, mostly uses one thread and processes one number
//! at a time. Where several operations make up one operator that does little work on each element, a backend can
//! compute the operator in one pass. The functions of [`ops`](super) are the interface to these operators.

mod cpu;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod cube;

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::DType;
use burn::tensor::backend::Backend;
use ir::graph::NormKind;

use super::composed;
use super::composed::activation::Function;
use super::composed::adamw::AdamW;
use super::composed::experts::{ExpertChoices, ExpertCounts, RoutingRule, Sorted};
use super::composed::norm::Statistics;
use crate::array::{Array, Indices};
use crate::clock::DeviceClock;

/// A backend with the kernels that operators are composed of.
///
/// Every method has a composition of burn's operations as its default, so a backend needs no more than
/// `impl BasicKernels for ..`.
pub trait BasicKernels: Backend {
    /// The clock of a device that works asynchronously; none where the host's clock shows when work is done, or where
    /// the device's clock cannot be read.
    ///
    /// # Errors
    ///
    /// The message of its driver.
    fn clock(_device: &Self::Device) -> Result<Option<Arc<dyn DeviceClock>>, String> {
        Ok(None)
    }

    /// The array, made contiguous in row-major order if the backend gains by that.
    fn contiguous(x: Array<Self>) -> Array<Self> {
        x
    }

    /// [`Array::matmul`].
    fn matmul(left: Array<Self>, right: Array<Self>) -> Array<Self> {
        left.matmul(right)
    }

    /// `left right + addend`, of the addend's shape `[rows, n]`.
    fn matmul_plus(left: Array<Self>, right: Array<Self>, addend: Array<Self>) -> Array<Self> {
        Self::matmul(left, right) + addend
    }

    /// Writes `left right`, `[m, k]` by `[k, n]`, to a flat array from element `start` on, or adds it there, even if
    /// other arrays share that memory. Returns false, and does nothing, where a backend only makes new arrays.
    fn matmul_into(
        _flat: &Array<Self>,
        _start: usize,
        _factors: [&Array<Self>; 2],
        _adds: bool,
    ) -> bool {
        false
    }

    /// Returns whether the kernels that compute products also add them to an array, so that [`Self::matmul_plus`] and
    /// [`Self::matmul_into`] save work.
    fn adds_products() -> bool {
        false
    }

    /// The rows of `[n, width]` at `indices`, in their order.
    fn select_rows(x: &Array<Self>, indices: &Indices<Self>) -> Array<Self> {
        x.select(0, indices)
    }

    /// A table `[num_rows, width]`, in fp32 at least, with row `i` of `rows` added to row `targets[i]`.
    fn sum_rows(rows: Array<Self>, targets: &[u32], num_rows: usize) -> Array<Self> {
        composed::embedding::sum_rows(rows, targets, num_rows)
    }

    /// [`experts::choose`](super::experts::choose).
    fn choose_experts(
        probabilities: &Array<Self>,
        correction: Option<&Array<Self>>,
        rule: &RoutingRule,
    ) -> ExpertChoices<Self> {
        composed::experts::choose(probabilities, correction, rule)
    }

    /// Number of times that each of `num_experts` experts occurs in the choices `[rows, top_k]`, `[experts]`.
    fn count_choices(experts: &Indices<Self>, num_experts: usize) -> Indices<Self> {
        composed::experts::count(experts, num_experts)
    }

    /// [`experts::sort`](super::experts::sort).
    fn sort_choices(experts: &Indices<Self>, num_experts: usize) -> Sorted<Self> {
        composed::experts::sort(experts, num_experts)
    }

    /// For each row, the sum of the returned rows of its choices, weighted by `[rows, top_k]` if there are weights:
    /// `[rows, width]`. `places`, `[rows, top_k]`, gives the row of `sent`, `[sent, width]`, for each choice. A place
    /// past the last row means a choice that was not sent, and adds nothing.
    fn gather_sent(
        sent: Array<Self>,
        places: &Indices<Self>,
        weights: Option<&Array<Self>>,
    ) -> Array<Self> {
        composed::experts::gather(sent, places, weights)
    }

    /// For each choice, the dot product of its returned row, found as in [`Self::gather_sent`], and its row of `grad`,
    /// `[rows, width]`: `[rows, top_k]` in fp32 at least.
    fn choice_products(
        sent: Array<Self>,
        places: &Indices<Self>,
        grad: Array<Self>,
    ) -> Array<Self> {
        composed::experts::products(sent, places, grad)
    }

    /// [`experts::probability_grad`](super::experts::probability_grad).
    fn probability_grad(
        probabilities: &Array<Self>,
        choices: &ExpertChoices<Self>,
        weight_grad: Array<Self>,
        rule: &RoutingRule,
    ) -> Array<Self> {
        composed::experts::probability_grad(probabilities, choices, weight_grad, rule)
    }

    /// The rows of each expert, consecutive in `x` `[rows, in]`, times the expert's matrix of `[experts, in, out]`;
    /// none where a backend instead computes one product for each expert, which needs the counts on the host.
    fn grouped_matmul(
        _x: &Array<Self>,
        _counts: &ExpertCounts<Self>,
        _weight: &Array<Self>,
    ) -> Option<Array<Self>> {
        None
    }

    /// The transposed rows of each expert times its rows of `grad`, `[rows, out]`: `[experts, in, out]`, or none.
    fn grouped_outer(
        _x: &Array<Self>,
        _counts: &ExpertCounts<Self>,
        _grad: &Array<Self>,
    ) -> Option<Array<Self>> {
        None
    }

    /// `rowsum(a b)` in fp32 at least, `[b, heads, s]`, of `[b, s, heads, d]`.
    fn row_products(a: Array<Self>, b: Array<Self>) -> Array<Self> {
        composed::attention::row_products(a, b)
    }

    /// [`Array::add_at`].
    fn add_at(x: Array<Self>, dim: usize, start: usize, part: Array<Self>) -> Array<Self> {
        x.add_at(dim, start, part)
    }

    /// [`Function::forward`].
    fn activation(function: Function, x: Array<Self>) -> Array<Self> {
        composed::activation::forward(function, x)
    }

    /// [`Function::input_grad`].
    fn activation_grad(function: Function, kept: Array<Self>, grad: Array<Self>) -> Array<Self> {
        composed::activation::input_grad(function, kept, grad)
    }

    /// [`activation::gated_forward`](super::activation::gated_forward).
    fn gated(function: Function, gate: Array<Self>, value: Array<Self>) -> Array<Self> {
        composed::activation::gated_forward(function, gate, value)
    }

    /// [`activation::gated_input_grad`](super::activation::gated_input_grad).
    fn gated_grad(
        function: Function,
        gate: Array<Self>,
        value: Array<Self>,
        grad: Array<Self>,
    ) -> (Array<Self>, Array<Self>) {
        composed::activation::gated_input_grad(function, gate, value, grad)
    }

    /// [`norm::forward`](super::norm::forward).
    fn norm(
        kind: NormKind,
        x: Array<Self>,
        weight: Option<Array<Self>>,
        bias: Option<Array<Self>>,
        epsilon: f64,
    ) -> (Array<Self>, Statistics<Self>) {
        composed::norm::forward(kind, x, weight, bias, epsilon)
    }

    /// [`norm::input_grad`](super::norm::input_grad).
    fn norm_input_grad(
        x: Array<Self>,
        statistics: &Statistics<Self>,
        weight: Option<Array<Self>>,
        grad: Array<Self>,
    ) -> Array<Self> {
        composed::norm::input_grad(x, statistics, weight, grad)
    }

    /// [`norm::weight_grad`](super::norm::weight_grad).
    fn norm_weight_grad(
        x: Array<Self>,
        statistics: &Statistics<Self>,
        grad: Array<Self>,
    ) -> (Array<Self>, Array<Self>) {
        composed::norm::weight_grad(x, statistics, grad)
    }

    /// The first `2 n` features of each row rotated by its position, from cosines and sines `[positions, n]`:
    /// [`Rotary::apply`](super::rotary::Rotary::apply).
    fn rotate(x: Array<Self>, cos: &Array<Self>, sin: &Array<Self>) -> Array<Self> {
        composed::rotary::rotate(x, cos, sin)
    }

    /// The softmax of scores `[.., rows, keys]` over the keys that are seen, and the log-sum-exp `[.., rows, 1]`; row
    /// `i` sees the keys `seen[i % seen.len()]`, and hidden keys get zero.
    fn attention_softmax(scores: Array<Self>, seen: &[Range<usize>]) -> (Array<Self>, Array<Self>) {
        composed::attention::softmax(scores, seen)
    }

    /// The softmax from a known log-sum-exp, which may be over more keys.
    fn attention_probabilities(
        scores: Array<Self>,
        log_sum_exp: Array<Self>,
        seen: &[Range<usize>],
    ) -> Array<Self> {
        composed::attention::probabilities(scores, log_sum_exp, seen)
    }

    /// `p (dp - delta)`, the gradient of the scores, with `delta` `[.., rows, 1]`.
    fn attention_score_grad(
        probabilities: Array<Self>,
        probability_grad: Array<Self>,
        delta: Array<Self>,
    ) -> Array<Self> {
        probabilities * (probability_grad - delta)
    }

    /// [`loss::exponentials`](super::loss::exponentials).
    fn exponentials(logits: Array<Self>, max: Array<Self>) -> (Array<Self>, Array<Self>) {
        composed::loss::exponentials(logits, max)
    }

    /// The greatest logit of each row, and the sum of `e^(logit - greatest)` over the row, `[rows, 1]` in fp32. They
    /// are returned where [`Self::cross_entropy_grad_of_logits`] recomputes the exponentials, so that none are saved;
    /// none where a backend saves the exponentials.
    fn row_measures(_logits: &Array<Self>) -> Option<[Array<Self>; 2]> {
        None
    }

    /// The sum of the squares of a flat array, in one element of fp32 at least.
    fn sum_of_squares(x: Array<Self>) -> Array<Self> {
        x.widened().square().sum()
    }

    /// [`loss::input_grad`](super::loss::input_grad) from the logits, in their type, and maxima and sums of their rows.
    fn cross_entropy_grad_of_logits(
        logits: Array<Self>,
        [max, sum]: [Array<Self>; 2],
        targets: &[u32],
        first_class: usize,
        scale: f64,
    ) -> Array<Self> {
        let element = logits.element();
        let (exponentials, _) = Self::exponentials(logits, max);
        Self::cross_entropy_grad(exponentials, sum, targets, first_class, scale).cast(element)
    }

    /// Weights and moments after an update, as defined in `composed/adamw.rs`.
    fn adamw(
        rates: &AdamW,
        weights: Array<Self>,
        moments: [Array<Self>; 2],
        gradient: Array<Self>,
    ) -> (Array<Self>, [Array<Self>; 2]) {
        composed::adamw::adamw(rates, weights, moments, gradient)
    }

    /// [`loss::input_grad`](super::loss::input_grad).
    fn cross_entropy_grad(
        exponentials: Array<Self>,
        sum: Array<Self>,
        targets: &[u32],
        first_class: usize,
        scale: f64,
    ) -> Array<Self> {
        composed::loss::input_grad(exponentials, sum, targets, first_class, scale)
    }
}

/// Returns whether all arrays are in fp32.
fn are_fp32<'a, B: Backend>(arrays: impl IntoIterator<Item = &'a Array<B>>) -> bool {
    arrays.into_iter().all(|array| array.dtype() == DType::F32)
}
