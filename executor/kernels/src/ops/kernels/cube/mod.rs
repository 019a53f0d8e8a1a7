//! Operators on GPUs, each in one kernel or two, written once for all devices that cubecl compiles for: those of CUDA
//! and of wgpu. The kernels read fp32 and 16-bit types and compute in fp32; other element types use burn's operations.
//!
//! # Source
//!
//! cubecl's book, <https://burn.dev/books/cubecl>, for the language that kernels are written in.

#![expect(
    clippy::fn_params_excessive_bools,
    clippy::trivially_copy_pass_by_ref,
    clippy::used_underscore_binding,
    reason = "what kernels take is for the compiler of kernels, which generates one for each choice"
)]

mod attention;
mod columns;
mod elementwise;
mod experts;
mod fragments;
mod launch;
mod rows;
mod sums;
mod table;
mod vendor;

use std::sync::Arc;

use burn::tensor::DType;
use burn::tensor::backend::Backend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{BoolElement, CubeBackend};
use ir::graph::NormKind;

use self::attention::Problem;
use self::rows::Measured;
use self::vendor::Vendor;
use super::{BasicKernels, are_fp32};
use crate::array::{Array, Element, Indices};
use crate::clock::{DeviceClock, WaitingClock};
use crate::ops::Kernels;
use crate::ops::attention::dims::Dims;
use crate::ops::attention::{Bias, Grads, KeyVisibility, Scoring, blocks};
use crate::ops::composed;
use crate::ops::composed::activation::Function;
use crate::ops::composed::adamw::AdamW;
use crate::ops::composed::experts::{ExpertChoices, ExpertCounts, RoutingRule, Sorted};
use crate::ops::composed::norm::{Statistics, has_mean};

/// burn's backend on a runtime of cubecl's.
type Cube<R, T> = CubeBackend<R, f32, i32, T>;

impl<R: Vendor, T: BoolElement> Kernels for Cube<R, T> {
    fn attention_forward(
        q: Array<Self>,
        k: Array<Self>,
        v: Array<Self>,
        scoring: &Scoring<Self>,
        visibility: KeyVisibility,
    ) -> (Array<Self>, Array<Self>) {
        let fused = problem(&q, &k, &v, scoring, visibility).and_then(|problem| {
            let [q, k, v] = [&q, &k, &v].map(|x| x.clone().primitive());
            attention::forward(&problem, [&q, &k, &v])
        });
        match fused {
            Some(outputs) => outputs.map(wrapped).into(),
            None => blocks::forward(q, k, v, scoring, visibility),
        }
    }

    fn attention_input_grad(
        q: Array<Self>,
        k: Array<Self>,
        v: Array<Self>,
        out: Array<Self>,
        log_sum_exp: Array<Self>,
        grad: Array<Self>,
        scoring: &Scoring<Self>,
        visibility: KeyVisibility,
    ) -> Grads<Self> {
        let is_alike = grad.dtype() == q.dtype();
        let problem = problem(&q, &k, &v, scoring, visibility).filter(|_| is_alike);
        let fused = problem.and_then(|problem| {
            let delta = Self::row_products(grad.clone(), out.clone());
            let given = [log_sum_exp.clone(), delta, grad.clone()].map(Array::primitive);
            let [q, k, v] = [&q, &k, &v].map(|x| x.clone().primitive());
            attention::input_grad(&problem, [&q, &k, &v], &given)
        });
        match fused.map(|grads| grads.map(wrapped)) {
            Some([query, key, value]) => Grads { query, key, value, table: None },
            None => blocks::input_grad(q, k, v, out, log_sum_exp, grad, scoring, visibility),
        }
    }
}

impl<R: Vendor, T: BoolElement> BasicKernels for Cube<R, T> {
    fn clock(device: &R::Device) -> Result<Option<Arc<dyn DeviceClock>>, String> {
        let waiting = || Arc::new(WaitingClock::<Self>(device.clone())) as Arc<dyn DeviceClock>;
        Ok(Some(R::clock(device)?.unwrap_or_else(waiting)))
    }

    fn contiguous(x: Array<Self>) -> Array<Self> {
        // burn's reshape changes the order of elements of some arrays whose dimensions were exchanged.
        if x.is_bytes() { x } else { Array::from_primitive(into_contiguous(x.primitive())) }
    }

    fn matmul(left: Array<Self>, right: Array<Self>) -> Array<Self> {
        if left.is_empty() || right.is_empty() {
            return left.matmul(right);
        }
        let [left, right] = [left, right].map(Array::primitive);
        match R::matmul(&left, &right) {
            Some(product) => Array::from_primitive(product),
            None => Array::from_primitive(left).matmul(Array::from_primitive(right)),
        }
    }

    fn matmul_plus(left: Array<Self>, right: Array<Self>, addend: Array<Self>) -> Array<Self> {
        if left.is_empty() || right.is_empty() {
            return Self::matmul(left, right) + addend;
        }
        let [left, right, addend] = [left, right, addend].map(Array::primitive);
        if let Some(sum) = R::matmul_plus(&left, &right, &addend) {
            return Array::from_primitive(sum);
        }
        let [left, right, addend] = [left, right, addend].map(Array::from_primitive);
        Self::matmul(left, right) + addend
    }

    fn matmul_into(
        flat: &Array<Self>,
        start: usize,
        factors: [&Array<Self>; 2],
        adds: bool,
    ) -> bool {
        if !R::adds_products() || factors.iter().any(|factor| factor.is_empty()) {
            return false;
        }
        let [left, right] = factors.map(|factor| factor.clone().primitive());
        R::matmul_into(&flat.clone().primitive(), start, [&left, &right], adds)
    }

    fn adds_products() -> bool {
        R::adds_products()
    }

    fn select_rows(x: &Array<Self>, indices: &Indices<Self>) -> Array<Self> {
        if x.is_empty() || x.rank() != 2 || !are_alike(&[x]) {
            return x.select(0, indices);
        }
        wrapped(table::select(x.clone().primitive(), indices.clone().primitive()))
    }

    fn sum_rows(rows: Array<Self>, targets: &[u32], num_rows: usize) -> Array<Self> {
        if !are_alike(&[&rows]) {
            return composed::embedding::sum_rows(rows, targets, num_rows);
        }
        let device = rows.device();
        let lists = table::Lists::new(targets);
        let flat = lists.flat();
        let sent = Indices::<Self>::new(&flat, &[flat.len()], &device).primitive();
        let sums = Array::<Self>::zeros(&[num_rows, rows.size(1)], Element::F32, &device);
        let sums = sums.primitive();
        table::sum_into(&sums, rows.primitive(), sent, lists.num_targets());
        wrapped(sums)
    }

    fn choose_experts(
        probabilities: &Array<Self>,
        correction: Option<&Array<Self>>,
        rule: &RoutingRule,
    ) -> ExpertChoices<Self> {
        let correction = correction.map(|correction| correction.clone().widened());
        let tensor = probabilities.clone().primitive();
        let all = [probabilities].into_iter().chain(&correction);
        if !are_fp32(all) || probabilities.size(1) > experts::most_experts(&tensor.client) {
            return composed::experts::choose(probabilities, correction.as_ref(), rule);
        }
        let correction = correction.map(Array::primitive);
        let [experts, weights] = experts::choose(tensor, correction, rule);
        ExpertChoices { experts: Indices::from_primitive(experts), weights: wrapped(weights) }
    }

    fn count_choices(choices: &Indices<Self>, num_experts: usize) -> Indices<Self> {
        Indices::from_primitive(experts::count(choices.clone().primitive(), num_experts))
    }

    fn sort_choices(choices: &Indices<Self>, num_experts: usize) -> Sorted<Self> {
        if choices.shape().contains(&0) {
            return composed::experts::sort(choices, num_experts);
        }
        let counts = Self::count_choices(choices, num_experts);
        let sorted = experts::sort(choices.clone().primitive(), counts.clone().primitive());
        let [choices, rows, places] = sorted.map(Indices::from_primitive);
        Sorted { choices, rows, places, counts: ExpertCounts::counted(counts) }
    }

    fn gather_sent(
        sent: Array<Self>,
        places: &Indices<Self>,
        weights: Option<&Array<Self>>,
    ) -> Array<Self> {
        if sent.is_empty() || !are_alike(&[&sent]) || !are_fp32(weights) {
            return composed::experts::gather(sent, places, weights);
        }
        let weights = weights.map(|weights| weights.clone().primitive());
        wrapped(experts::gather(sent.primitive(), places.clone().primitive(), weights))
    }

    fn choice_products(
        sent: Array<Self>,
        places: &Indices<Self>,
        grad: Array<Self>,
    ) -> Array<Self> {
        if sent.is_empty() || !are_alike(&[&sent, &grad]) {
            return composed::experts::products(sent, places, grad);
        }
        let places = places.clone().primitive();
        wrapped(experts::choice_products(sent.primitive(), places, grad.primitive()))
    }

    fn probability_grad(
        probabilities: &Array<Self>,
        choices: &ExpertChoices<Self>,
        weight_grad: Array<Self>,
        rule: &RoutingRule,
    ) -> Array<Self> {
        if !are_fp32([probabilities, &choices.weights, &weight_grad]) {
            return composed::experts::probability_grad(probabilities, choices, weight_grad, rule);
        }
        let [tensor, weights] = [probabilities, &choices.weights].map(|it| it.clone().primitive());
        let given = [choices.experts.clone().primitive(), weights, weight_grad.primitive()];
        wrapped(experts::probability_grad(tensor, given, rule.scaling as f32, rule.normalise))
    }

    fn grouped_matmul(
        x: &Array<Self>,
        counts: &ExpertCounts<Self>,
        weight: &Array<Self>,
    ) -> Option<Array<Self>> {
        grouped(x, weight, counts, weight.size(2)).then(|| {
            let [x, weight] = [x, weight].map(|array| array.clone().primitive());
            wrapped(experts::matmul(x, counts.on_device().clone().primitive(), weight))
        })
    }

    fn grouped_outer(
        x: &Array<Self>,
        counts: &ExpertCounts<Self>,
        grad: &Array<Self>,
    ) -> Option<Array<Self>> {
        (!x.is_empty() && grouped(x, grad, counts, grad.size(1))).then(|| {
            let [x, grad] = [x, grad].map(|array| array.clone().primitive());
            wrapped(experts::outer(x, counts.on_device().clone().primitive(), grad))
        })
    }

    fn row_products(a: Array<Self>, b: Array<Self>) -> Array<Self> {
        if are_alike(&[&a, &b]) {
            wrapped(rows::row_products(a.primitive(), b.primitive()))
        } else {
            composed::attention::row_products(a, b)
        }
    }

    fn activation(function: Function, x: Array<Self>) -> Array<Self> {
        if are_alike(&[&x]) {
            wrapped(elementwise::activation(function, x.primitive(), None))
        } else {
            composed::activation::forward(function, x)
        }
    }

    fn activation_grad(function: Function, kept: Array<Self>, grad: Array<Self>) -> Array<Self> {
        if are_alike(&[&kept, &grad]) {
            wrapped(elementwise::activation_grad(function, kept.primitive(), grad.primitive()))
        } else {
            composed::activation::input_grad(function, kept, grad)
        }
    }

    fn gated(function: Function, gate: Array<Self>, value: Array<Self>) -> Array<Self> {
        if are_alike(&[&gate, &value]) {
            let value = Some(value.primitive());
            wrapped(elementwise::activation(function, gate.primitive(), value))
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
        if are_alike(&[&gate, &value, &grad]) {
            let [gate, value, grad] = [gate, value, grad].map(Array::primitive);
            elementwise::gated_grad(function, gate, value, grad).map(wrapped).into()
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
        let all: Vec<_> = [&x].into_iter().chain(&weight).chain(&bias).collect();
        if are_alike(&all) {
            let [weight, bias] = [weight, bias].map(|parameter| parameter.map(Array::primitive));
            let (epsilon, has_mean) = (epsilon as f32, has_mean(kind));
            let (y, Measured { mean, inverse_deviation }) =
                rows::norm(x.primitive(), weight, bias, epsilon, has_mean);
            let (mean, inverse_deviation) = (mean.map(wrapped), wrapped(inverse_deviation));
            (wrapped(y), Statistics { mean, inverse_deviation })
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
        let all: Vec<_> = [&x, &grad].into_iter().chain(&weight).collect();
        if are_alike(&all) {
            let ([x, grad], weight) =
                ([x, grad].map(Array::primitive), weight.map(Array::primitive));
            wrapped(rows::norm_input_grad(x, measured(statistics), weight, grad))
        } else {
            composed::norm::input_grad(x, statistics, weight, grad)
        }
    }

    fn norm_weight_grad(
        x: Array<Self>,
        statistics: &Statistics<Self>,
        grad: Array<Self>,
    ) -> (Array<Self>, Array<Self>) {
        if are_alike(&[&x, &grad]) {
            let (x, grad) = (x.primitive(), grad.primitive());
            columns::norm_weight_grad(x, measured(statistics), grad).map(wrapped).into()
        } else {
            composed::norm::weight_grad(x, statistics, grad)
        }
    }

    fn rotate(x: Array<Self>, cos: &Array<Self>, sin: &Array<Self>) -> Array<Self> {
        if are_alike(&[&x]) && are_alike(&[cos, sin]) {
            let [cos, sin] = [cos, sin].map(|table| table.clone().primitive());
            wrapped(elementwise::rotate(x.primitive(), cos, sin))
        } else {
            composed::rotary::rotate(x, cos, sin)
        }
    }

    fn exponentials(logits: Array<Self>, max: Array<Self>) -> (Array<Self>, Array<Self>) {
        if are_alike(&[&logits]) && are_fp32([&max]) {
            rows::exponentials(logits.primitive(), max.primitive()).map(wrapped).into()
        } else {
            composed::loss::exponentials(logits, max)
        }
    }

    fn row_measures(logits: &Array<Self>) -> Option<[Array<Self>; 2]> {
        // In fp32 the exponentials take no more memory than the logits.
        let is_covered = are_alike(&[logits]) && !are_fp32([logits]);
        is_covered.then(|| rows::measures(logits.clone().primitive()).map(wrapped))
    }

    fn sum_of_squares(x: Array<Self>) -> Array<Self> {
        if are_alike(&[&x]) && !x.is_empty() {
            wrapped(sums::of_squares(x.primitive()))
        } else {
            x.widened().square().sum()
        }
    }

    fn cross_entropy_grad_of_logits(
        logits: Array<Self>,
        [max, sum]: [Array<Self>; 2],
        targets: &[u32],
        first_class: usize,
        scale: f64,
    ) -> Array<Self> {
        let columns = columns_of(targets, first_class, &logits).primitive();
        let [logits, max, sum] = [logits, max, sum].map(Array::primitive);
        wrapped(elementwise::cross_entropy_grad(logits, Some(max), sum, columns, scale as f32))
    }

    fn adamw(
        rates: &AdamW,
        weights: Array<Self>,
        moments: [Array<Self>; 2],
        gradient: Array<Self>,
    ) -> (Array<Self>, [Array<Self>; 2]) {
        if are_fp32([&weights, &moments[0], &moments[1]]) && are_alike(&[&gradient]) {
            let (weights, moments) = (weights.primitive(), moments.map(Array::primitive));
            let updated = elementwise::adamw(rates, weights, moments, gradient.primitive());
            (wrapped(updated.0), updated.1.map(wrapped))
        } else {
            composed::adamw::adamw(rates, weights, moments, gradient)
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
            let columns = columns_of(targets, first_class, &exponentials).primitive();
            let [exponentials, sum] = [exponentials, sum].map(Array::primitive);
            let scale = scale as f32;
            wrapped(elementwise::cross_entropy_grad(exponentials, None, sum, columns, scale))
        } else {
            composed::loss::input_grad(exponentials, sum, targets, first_class, scale)
        }
    }
}

/// Wraps a tensor.
fn wrapped<R: Vendor, T: BoolElement>(tensor: CubeTensor<R>) -> Array<Cube<R, T>> {
    Array::from_primitive(tensor)
}

/// Returns whether all arrays are of one type that kernels read: fp32 or 16 bits.
fn are_alike<B: Backend>(arrays: &[&Array<B>]) -> bool {
    let first = arrays[0].dtype();
    matches!(first, DType::F32 | DType::F16 | DType::BF16)
        && arrays.iter().all(|array| array.dtype() == first)
}

/// Number of operations of an expert's product above which cuBLASLt is faster, although the host then waits for counts
/// and starts one kernel for each expert. An H100 takes some 10 us for this number.
const LARGE: usize = 1 << 32;

/// Returns whether the products of experts, rows `[rows, depth]` times `width` columns, are one kernel.
fn grouped<R: Vendor, T: BoolElement>(
    x: &Array<Cube<R, T>>,
    other: &Array<Cube<R, T>>,
    counts: &ExpertCounts<Cube<R, T>>,
    width: usize,
) -> bool {
    let rows_of_expert = x.size(0) / counts.num_experts();
    let is_large = 2 * rows_of_expert * x.size(1) * width >= LARGE;
    are_alike(&[x, other]) && !(is_large && R::adds_products())
}

/// The column of each row's target in a shard of classes, or `width` where it is in another shard.
fn columns_of<R: Vendor, T: BoolElement>(
    targets: &[u32],
    first_class: usize,
    shard: &Array<Cube<R, T>>,
) -> Indices<Cube<R, T>> {
    let (rows, width) = (shard.size(0), shard.size(1));
    let column = |target: &u32| {
        let column = (*target as usize).checked_sub(first_class);
        column.filter(|column| *column < width).unwrap_or(width) as u32
    };
    let columns: Vec<u32> = targets.iter().map(column).collect();
    Indices::new(&columns, &[rows], &shard.device())
}

/// The problem of the attention kernels; none where they do not support it.
fn problem<R: Vendor, T: BoolElement>(
    q: &Array<Cube<R, T>>,
    k: &Array<Cube<R, T>>,
    v: &Array<Cube<R, T>>,
    scoring: &Scoring<Cube<R, T>>,
    visibility: KeyVisibility,
) -> Option<Problem<R>> {
    let slopes = match &scoring.bias {
        Bias::None => None,
        Bias::Slopes(slopes) => Some(slopes.clone().widened().primitive()),
        Bias::Rounded { .. } | Bias::Table(..) => return None,
    };
    let is_covered = scoring.dropout.is_none() && are_alike(&[q, k, v]);
    let problem = Problem {
        dims: Dims::new(q, k, v),
        scale: scoring.scale,
        soft_cap: scoring.soft_cap,
        slopes: slopes.map(into_contiguous),
        visibility,
    };
    (is_covered && problem.is_countable(&q.clone().primitive().client)).then_some(problem)
}

/// Statistics of a norm as tensors.
fn measured<R: Vendor, T: BoolElement>(statistics: &Statistics<Cube<R, T>>) -> Measured<R> {
    Measured {
        mean: statistics.mean.clone().map(Array::primitive),
        inverse_deviation: statistics.inverse_deviation.clone().primitive(),
    }
}
