//! Operators on GPUs, each in one kernel or two, written once for all devices that cubecl compiles for: CUDA's, and
//! those of wgpu. They read fp32 and 16 bits and calculate in fp32; other element types take burn's operations.
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

use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime};
use ir::graph::NormKind;

use self::attention::Problem;
use self::launch::{are_alike, are_covered, are_fp32};
use self::rows::Measured;
use self::vendor::Vendor;
use super::BasicKernels;
use crate::array::{Array, Element, Indices};
use crate::clock::{DeviceClock, WaitingClock};
use crate::ops::Kernels;
use crate::ops::attention::dims::Dims;
use crate::ops::attention::{Bias, Grads, Scoring, Visibility, blocks};
use crate::ops::composed;
use crate::ops::composed::activation::Function;
use crate::ops::composed::adamw::AdamW;
use crate::ops::composed::experts::{Choices, Counts, Rule, Sorted};
use crate::ops::composed::norm::{Statistics, has_mean};

/// burn's backend on a runtime of cubecl's.
type Cube<R, T> = CubeBackend<R, f32, i32, T>;

impl<R: Vendor, T: BoolElement> Kernels for Cube<R, T> {
    fn attention_forward(
        q: Array<Self>,
        k: Array<Self>,
        v: Array<Self>,
        scoring: &Scoring<Self>,
        visibility: Visibility,
    ) -> (Array<Self>, Array<Self>) {
        let fused = problem(&q, &k, &v, scoring, visibility).and_then(|problem| {
            let [q, k, v] = [&q, &k, &v].map(|x| x.clone().primitive());
            attention::forward(&problem, [&q, &k, &v])
        });
        match fused {
            Some([out, log_sum_exp]) => {
                (Array::from_primitive(out), Array::from_primitive(log_sum_exp))
            }
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
        visibility: Visibility,
    ) -> Grads<Self> {
        let is_alike = grad.dtype() == q.dtype();
        let problem = problem(&q, &k, &v, scoring, visibility).filter(|_| is_alike);
        let fused = problem.and_then(|problem| {
            let delta = Self::row_products(grad.clone(), out.clone());
            let given = [log_sum_exp.clone(), delta, grad.clone()].map(Array::primitive);
            let [q, k, v] = [&q, &k, &v].map(|x| x.clone().primitive());
            attention::input_grad(&problem, [&q, &k, &v], &given)
        });
        match fused.map(|grads| grads.map(Array::from_primitive)) {
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
        // Of some arrays whose dimensions were exchanged burn's reshape makes another order of elements.
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
        let tensor = x.clone().primitive();
        if x.is_empty() || !table::is_table(&tensor) {
            return x.select(0, indices);
        }
        Array::from_primitive(table::select(tensor, indices.clone().primitive()))
    }

    fn sum_rows(rows: Array<Self>, targets: &[u32], num_rows: usize) -> Array<Self> {
        let (width, device) = (rows.size(1), rows.device());
        let sums = Array::zeros(&[num_rows, width], Element::F32, &device);
        let (lists, rows) = (table::Lists::new(targets), rows.primitive());
        if !table::is_table(&rows) {
            let indices = Indices::new(targets, &[targets.len()], &device);
            return sums.select_add(0, &indices, Array::from_primitive(rows).widened());
        }
        let flat = lists.flat();
        let sent = Indices::<Self>::new(&flat, &[flat.len()], &device).primitive();
        let sums = sums.primitive();
        table::sum_into(&sums, rows, sent, lists.num_targets());
        Array::from_primitive(sums)
    }

    fn choose_experts(
        probabilities: &Array<Self>,
        correction: Option<&Array<Self>>,
        rule: &Rule,
    ) -> Choices<Self> {
        let tensor = probabilities.clone().primitive();
        let correction = correction.map(|correction| correction.clone().widened().primitive());
        let is_covered = are_fp32(&[&tensor])
            && correction.iter().all(|it| are_fp32(&[it]))
            && probabilities.size(1) <= experts::most_experts(&tensor.client);
        if !is_covered {
            let correction = correction.map(Array::from_primitive);
            return composed::experts::choose(probabilities, correction.as_ref(), rule);
        }
        let [experts, weights] = experts::choose(tensor, correction, rule);
        let experts = Indices::from_primitive(experts);
        Choices { experts, weights: Array::from_primitive(weights) }
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
        Sorted { choices, rows, places, counts: Counts::counted(counts) }
    }

    fn gather_sent(
        sent: Array<Self>,
        places: &Indices<Self>,
        weights: Option<&Array<Self>>,
    ) -> Array<Self> {
        let tensor = sent.clone().primitive();
        let of_weights = weights.map(|weights| weights.clone().primitive());
        if !are_covered([&tensor])
            || sent.is_empty()
            || !of_weights.iter().all(|it| are_fp32(&[it]))
        {
            return composed::experts::gather(sent, places, weights);
        }
        Array::from_primitive(experts::gather(tensor, places.clone().primitive(), of_weights))
    }

    fn choice_products(
        sent: Array<Self>,
        places: &Indices<Self>,
        grad: Array<Self>,
    ) -> Array<Self> {
        let [tensor, of_grad] = [&sent, &grad].map(|array| array.clone().primitive());
        if sent.is_empty() || !are_alike(&[&tensor, &of_grad]) {
            return composed::experts::products(sent, places, grad);
        }
        let places = places.clone().primitive();
        Array::from_primitive(experts::choice_products(tensor, places, of_grad))
    }

    fn probability_grad(
        probabilities: &Array<Self>,
        choices: &Choices<Self>,
        weight_grad: Array<Self>,
        rule: &Rule,
    ) -> Array<Self> {
        let tensor = probabilities.clone().primitive();
        let [weights, of_weights] = [choices.weights.clone(), weight_grad].map(Array::primitive);
        if !are_fp32(&[&tensor, &weights, &of_weights]) {
            let of_weights = Array::from_primitive(of_weights);
            return composed::experts::probability_grad(probabilities, choices, of_weights, rule);
        }
        let given = [choices.experts.clone().primitive(), weights, of_weights];
        let (scaling, is_normalised) = (rule.scaling as f32, rule.normalise);
        let grad = experts::probability_grad(tensor, given, scaling, is_normalised);
        Array::from_primitive(grad)
    }

    fn grouped_matmul(
        x: &Array<Self>,
        counts: &Counts<Self>,
        weight: &Array<Self>,
    ) -> Option<Array<Self>> {
        let width = weight.size(2);
        grouped::<R, T>(x, weight, counts, width).then(|| {
            let [x, weight] = [x, weight].map(|array| array.clone().primitive());
            let counts = counts.on_device().clone().primitive();
            Array::from_primitive(experts::matmul(x, counts, weight))
        })
    }

    fn grouped_outer(
        x: &Array<Self>,
        counts: &Counts<Self>,
        grad: &Array<Self>,
    ) -> Option<Array<Self>> {
        (!x.is_empty() && grouped::<R, T>(x, grad, counts, grad.size(1))).then(|| {
            let [x, grad] = [x, grad].map(|array| array.clone().primitive());
            let counts = counts.on_device().clone().primitive();
            Array::from_primitive(experts::outer(x, counts, grad))
        })
    }

    fn row_products(a: Array<Self>, b: Array<Self>) -> Array<Self> {
        let [a, b] = [a, b].map(Array::primitive);
        if are_alike(&[&a, &b]) {
            Array::from_primitive(rows::row_products(a, b))
        } else {
            let [a, b] = [a, b].map(Array::from_primitive);
            composed::attention::row_products(a, b)
        }
    }

    fn activation(function: Function, x: Array<Self>) -> Array<Self> {
        let x = x.primitive();
        if are_covered([&x]) {
            Array::from_primitive(elementwise::activation(function, x))
        } else {
            composed::activation::forward(function, Array::from_primitive(x))
        }
    }

    fn activation_grad(function: Function, kept: Array<Self>, grad: Array<Self>) -> Array<Self> {
        let [kept, grad] = [kept, grad].map(Array::primitive);
        if are_alike(&[&kept, &grad]) {
            Array::from_primitive(elementwise::activation_grad(function, kept, grad))
        } else {
            let [kept, grad] = [kept, grad].map(Array::from_primitive);
            composed::activation::input_grad(function, kept, grad)
        }
    }

    fn gated(function: Function, gate: Array<Self>, value: Array<Self>) -> Array<Self> {
        let [gate, value] = [gate, value].map(Array::primitive);
        if are_alike(&[&gate, &value]) {
            Array::from_primitive(elementwise::gated(function, gate, value))
        } else {
            let [gate, value] = [gate, value].map(Array::from_primitive);
            composed::activation::gated_forward(function, gate, value)
        }
    }

    fn gated_grad(
        function: Function,
        gate: Array<Self>,
        value: Array<Self>,
        grad: Array<Self>,
    ) -> (Array<Self>, Array<Self>) {
        let [gate, value, grad] = [gate, value, grad].map(Array::primitive);
        if are_alike(&[&gate, &value, &grad]) {
            let (gate, value) = elementwise::gated_grad(function, gate, value, grad);
            (Array::from_primitive(gate), Array::from_primitive(value))
        } else {
            let [gate, value, grad] = [gate, value, grad].map(Array::from_primitive);
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
        let x = x.primitive();
        let [weight, bias] = [weight, bias].map(|parameter| parameter.map(Array::primitive));
        let all: Vec<_> = [&x].into_iter().chain(&weight).chain(&bias).collect();
        if are_alike(&all) {
            let (y, measured) = rows::norm(x, weight, bias, epsilon as f32, has_mean(kind));
            (Array::from_primitive(y), measured.into())
        } else {
            let [weight, bias] =
                [weight, bias].map(|parameter| parameter.map(Array::from_primitive));
            composed::norm::forward(kind, Array::from_primitive(x), weight, bias, epsilon)
        }
    }

    fn norm_input_grad(
        x: Array<Self>,
        statistics: &Statistics<Self>,
        weight: Option<Array<Self>>,
        grad: Array<Self>,
    ) -> Array<Self> {
        let ([x, grad], weight) = ([x, grad].map(Array::primitive), weight.map(Array::primitive));
        let all: Vec<_> = [&x, &grad].into_iter().chain(&weight).collect();
        if are_alike(&all) {
            Array::from_primitive(rows::norm_input_grad(x, statistics.into(), weight, grad))
        } else {
            let [x, grad] = [x, grad].map(Array::from_primitive);
            composed::norm::input_grad(x, statistics, weight.map(Array::from_primitive), grad)
        }
    }

    fn norm_weight_grad(
        x: Array<Self>,
        statistics: &Statistics<Self>,
        grad: Array<Self>,
    ) -> (Array<Self>, Array<Self>) {
        let [x, grad] = [x, grad].map(Array::primitive);
        if are_alike(&[&x, &grad]) {
            let (scale, shift) = columns::norm_weight_grad(x, statistics.into(), grad);
            (Array::from_primitive(scale), Array::from_primitive(shift))
        } else {
            let [x, grad] = [x, grad].map(Array::from_primitive);
            composed::norm::weight_grad(x, statistics, grad)
        }
    }

    fn rotate(x: Array<Self>, cos: &Array<Self>, sin: &Array<Self>) -> Array<Self> {
        let [x, cos, sin] = [x, cos.clone(), sin.clone()].map(Array::primitive);
        if are_covered([&x]) && are_alike(&[&cos, &sin]) {
            Array::from_primitive(elementwise::rotate(x, cos, sin))
        } else {
            let [x, cos, sin] = [x, cos, sin].map(Array::from_primitive);
            composed::rotary::rotate(x, &cos, &sin)
        }
    }

    fn exponentials(logits: Array<Self>, max: Array<Self>) -> (Array<Self>, Array<Self>) {
        let [logits, max] = [logits, max].map(Array::primitive);
        if are_covered([&logits]) && are_fp32(&[&max]) {
            let (exponentials, sum) = rows::exponentials(logits, max);
            (Array::from_primitive(exponentials), Array::from_primitive(sum))
        } else {
            let [logits, max] = [logits, max].map(Array::from_primitive);
            composed::loss::exponentials(logits, max)
        }
    }

    fn row_measures(logits: &Array<Self>) -> Option<[Array<Self>; 2]> {
        let logits = logits.clone().primitive();
        // Of fp32 the exponentials take no more memory than the logits.
        let is_covered = are_covered([&logits]) && !are_fp32(&[&logits]);
        is_covered.then(|| rows::measures(logits).map(Array::from_primitive))
    }

    fn sum_of_squares(x: Array<Self>) -> Array<Self> {
        let x = x.primitive();
        if are_covered([&x]) && x.meta.num_elements() > 0 {
            Array::from_primitive(sums::of_squares(x))
        } else {
            Array::<Self>::from_primitive(x).widened().square().sum()
        }
    }

    fn cross_entropy_grad_of_logits(
        logits: Array<Self>,
        statistics: [Array<Self>; 2],
        targets: &[u32],
        first_class: usize,
        scale: f64,
    ) -> Array<Self> {
        let columns = columns_of(targets, first_class, &logits);
        let (logits, [max, sum]) = (logits.primitive(), statistics.map(Array::primitive));
        let grad = elementwise::cross_entropy_grad_of_logits(
            logits,
            [max, sum],
            columns.primitive(),
            scale as f32,
        );
        Array::from_primitive(grad)
    }

    fn adamw(
        rates: &AdamW,
        weights: Array<Self>,
        moments: [Array<Self>; 2],
        gradient: Array<Self>,
    ) -> (Array<Self>, [Array<Self>; 2]) {
        let [weights, gradient] = [weights, gradient].map(Array::primitive);
        let moments = moments.map(Array::primitive);
        if are_fp32(&[&weights, &moments[0], &moments[1]]) && are_covered([&gradient]) {
            let (weights, moments) = elementwise::adamw(rates, weights, moments, gradient);
            (Array::from_primitive(weights), moments.map(Array::from_primitive))
        } else {
            let [weights, gradient] = [weights, gradient].map(Array::from_primitive);
            composed::adamw::adamw(rates, weights, moments.map(Array::from_primitive), gradient)
        }
    }

    fn cross_entropy_grad(
        exponentials: Array<Self>,
        sum: Array<Self>,
        targets: &[u32],
        first_class: usize,
        scale: f64,
    ) -> Array<Self> {
        let columns = columns_of(targets, first_class, &exponentials).primitive();
        let [exponentials, sum] = [exponentials, sum].map(Array::primitive);
        if are_fp32(&[&exponentials, &sum]) {
            let scale = scale as f32;
            let grad = elementwise::cross_entropy_grad(exponentials, sum, columns, scale);
            Array::from_primitive(grad)
        } else {
            let [exponentials, sum] = [exponentials, sum].map(Array::from_primitive);
            composed::loss::input_grad(exponentials, sum, targets, first_class, scale)
        }
    }
}

/// Operations of an expert's product from which on the library of the GPU's maker gains more by its product than it costs
/// to wait for counts and to start one kernel for each expert: some 10 us of an H100.
const LARGE: usize = 1 << 32;

/// Whether the products of experts, rows `[rows, depth]` times what is `width` wide, are one kernel.
fn grouped<R: Vendor, T: BoolElement>(
    x: &Array<Cube<R, T>>,
    other: &Array<Cube<R, T>>,
    counts: &Counts<Cube<R, T>>,
    width: usize,
) -> bool {
    let [left, right] = [x, other].map(|array| array.clone().primitive());
    let rows_of_expert = x.size(0) / counts.num_experts();
    let is_large = 2 * rows_of_expert * x.size(1) * width >= LARGE;
    are_alike(&[&left, &right]) && !(is_large && R::adds_products())
}

/// The column of each row's target in a shard of classes, or one that is none where it is in another.
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

/// What the kernels of attention are asked for; none where they do not cover it.
fn problem<R: Vendor, T: BoolElement>(
    q: &Array<Cube<R, T>>,
    k: &Array<Cube<R, T>>,
    v: &Array<Cube<R, T>>,
    scoring: &Scoring<Cube<R, T>>,
    visibility: Visibility,
) -> Option<Problem<R>> {
    let slopes = match &scoring.bias {
        Bias::None => None,
        Bias::Slopes(slopes) => Some(slopes.clone().widened().primitive()),
        Bias::Rounded { .. } | Bias::Table(..) => return None,
    };
    let dims = Dims::new(q, k, v);
    let [q, k, v] = [q, k, v].map(|x| x.clone().primitive());
    let is_covered = scoring.dropout.is_none() && are_alike(&[&q, &k, &v]);
    let problem = Problem {
        dims,
        scale: scoring.scale,
        soft_cap: scoring.soft_cap,
        slopes: slopes.map(into_contiguous),
        visibility,
    };
    (is_covered && problem.is_countable(&q.client)).then_some(problem)
}

impl<R: CubeRuntime, T: BoolElement> From<Measured<R>> for Statistics<Cube<R, T>> {
    fn from(measured: Measured<R>) -> Self {
        Self {
            mean: measured.mean.map(Array::from_primitive),
            inverse_deviation: Array::from_primitive(measured.inverse_deviation),
        }
    }
}

impl<R: CubeRuntime, T: BoolElement> From<&Statistics<Cube<R, T>>> for Measured<R> {
    fn from(statistics: &Statistics<Cube<R, T>>) -> Self {
        let primitive = |array: &Array<Cube<R, T>>| -> CubeTensor<R> { array.clone().primitive() };
        Self {
            mean: statistics.mean.as_ref().map(primitive),
            inverse_deviation: primitive(&statistics.inverse_deviation),
        }
    }
}
