//! One unit for each element: activations, rotations, updates, and the gradient of the cross entropy.

use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use cubecl::std::tensor::layout::linear::LinearView;

use super::launch::{addresses, by_element, len, like, owned};
use crate::ops::composed::activation::{Function, GELU_CUBE, QUICK_GELU, SQRT_2_OVER_PI};
use crate::ops::composed::adamw::AdamW;

pub(super) fn activation<R: CubeRuntime>(function: Function, x: CubeTensor<R>) -> CubeTensor<R> {
    let (client, dtype, y) = (x.client.clone(), x.dtype, like(&x));
    if len(&y) > 0 {
        let (count, dim) = by_element(&client, len(&y));
        activation_kernel::launch(
            &client,
            count,
            dim,
            addresses(&[&x, &y]),
            x.into_linear_view(),
            y.clone().into_array_arg(),
            function,
            dtype.into(),
        );
    }
    y
}

/// The gradient of what went in, from what was kept.
pub(super) fn activation_grad<R: CubeRuntime>(
    function: Function,
    kept: CubeTensor<R>,
    grad: CubeTensor<R>,
) -> CubeTensor<R> {
    let (client, dtype, input_grad) = (kept.client.clone(), kept.dtype, like(&kept));
    if len(&input_grad) > 0 {
        let (count, dim) = by_element(&client, len(&input_grad));
        activation_grad_kernel::launch(
            &client,
            count,
            dim,
            addresses(&[&kept, &grad]),
            kept.into_linear_view(),
            grad.into_linear_view(),
            input_grad.clone().into_array_arg(),
            function,
            dtype.into(),
        );
    }
    input_grad
}

/// `f(gate) value`.
pub(super) fn gated<R: CubeRuntime>(
    function: Function,
    gate: CubeTensor<R>,
    value: CubeTensor<R>,
) -> CubeTensor<R> {
    let (client, dtype, y) = (gate.client.clone(), gate.dtype, like(&gate));
    if len(&y) > 0 {
        let (count, dim) = by_element(&client, len(&y));
        gated_kernel::launch(
            &client,
            count,
            dim,
            addresses(&[&gate, &value, &y]),
            gate.into_linear_view(),
            value.into_linear_view(),
            y.clone().into_array_arg(),
            function,
            dtype.into(),
        );
    }
    y
}

/// The gradients of gate and value.
pub(super) fn gated_grad<R: CubeRuntime>(
    function: Function,
    gate: CubeTensor<R>,
    value: CubeTensor<R>,
    grad: CubeTensor<R>,
) -> (CubeTensor<R>, CubeTensor<R>) {
    let (client, dtype) = (gate.client.clone(), gate.dtype);
    let (gate_grad, value_grad) = (like(&gate), like(&gate));
    if len(&gate) > 0 {
        let (count, dim) = by_element(&client, len(&gate));
        gated_grad_kernel::launch(
            &client,
            count,
            dim,
            addresses(&[&gate, &value, &grad]),
            gate.into_linear_view(),
            value.into_linear_view(),
            grad.into_linear_view(),
            gate_grad.clone().into_array_arg(),
            value_grad.clone().into_array_arg(),
            function,
            dtype.into(),
        );
    }
    (gate_grad, value_grad)
}

/// Features `i` and `i + n` of `[b, s, .., d]` turned by the angle of the position, `[s, n]`.
pub(super) fn rotate<R: CubeRuntime>(
    x: CubeTensor<R>,
    cos: CubeTensor<R>,
    sin: CubeTensor<R>,
) -> CubeTensor<R> {
    let (client, y) = (x.client.clone(), like(&x));
    let (element, table_element) = (x.dtype, cos.dtype);
    if len(&y) > 0 {
        let shape = x.meta.shape();
        let width = shape[shape.len() - 1];
        let rows_of_position = shape[2..shape.len() - 1].iter().product::<usize>();
        let (count, dim) = by_element(&client, len(&y));
        rotate_kernel::launch(
            &client,
            count,
            dim,
            addresses(&[&x, &y]),
            x.into_linear_view(),
            into_contiguous(cos).into_tensor_arg(),
            into_contiguous(sin).into_tensor_arg(),
            y.clone().into_array_arg(),
            width,
            rows_of_position,
            element.into(),
            table_element.into(),
        );
    }
    y
}

/// Weights and moments after an update, in their own memory where nobody else holds it.
pub(super) fn adamw<R: CubeRuntime>(
    rates: &AdamW,
    weights: CubeTensor<R>,
    moments: [CubeTensor<R>; 2],
    gradient: CubeTensor<R>,
) -> (CubeTensor<R>, [CubeTensor<R>; 2]) {
    let (weights, [first, second]) = (owned(weights), moments.map(owned));
    if len(&weights) > 0 {
        let client = weights.client.clone();
        let (count, dim) = by_element(&client, len(&weights));
        adamw_kernel::launch(
            &client,
            count,
            dim,
            addresses(&[&weights, &gradient]),
            weights.clone().into_array_arg(),
            first.clone().into_array_arg(),
            second.clone().into_array_arg(),
            gradient.into_linear_view(),
            rates.factor as f32,
            rates.beta1 as f32,
            (1.0 - rates.beta1) as f32,
            rates.beta2 as f32,
            (1.0 - rates.beta2) as f32,
            rates.kept_share as f32,
            rates.step as f32,
            rates.root_scale as f32,
            rates.epsilon as f32,
        );
    }
    (weights, [first, second])
}

/// `scale (e / sum - onehot)` of rows `e`, in their own memory where nobody else holds it; `classes` has the column
/// of each row's target, or one that is none.
pub(super) fn cross_entropy_grad<R: CubeRuntime>(
    exponentials: CubeTensor<R>,
    sum: CubeTensor<R>,
    classes: CubeTensor<R>,
    scale: f32,
) -> CubeTensor<R> {
    let grad = owned(exponentials);
    if len(&grad) > 0 {
        let (client, width) = (grad.client.clone(), grad.meta.shape()[1]);
        let (count, dim) = by_element(&client, len(&grad));
        cross_entropy_grad_kernel::launch(
            &client,
            count,
            dim,
            addresses(&[&grad]),
            grad.clone().into_array_arg(),
            into_contiguous(sum).into_array_arg(),
            into_contiguous(classes).into_array_arg(),
            width,
            scale,
        );
    }
    grad
}

/// `scale (e^(logit - max) / sum - onehot)` in the logits' type, with `classes` as for [`cross_entropy_grad`].
pub(super) fn cross_entropy_grad_of_logits<R: CubeRuntime>(
    logits: CubeTensor<R>,
    [max, sum]: [CubeTensor<R>; 2],
    classes: CubeTensor<R>,
    scale: f32,
) -> CubeTensor<R> {
    let (dtype, grad) = (logits.dtype, owned(logits));
    if len(&grad) > 0 {
        let (client, width) = (grad.client.clone(), grad.meta.shape()[1]);
        let (count, dim) = by_element(&client, len(&grad));
        cross_entropy_grad_of_logits_kernel::launch(
            &client,
            count,
            dim,
            addresses(&[&grad]),
            grad.clone().into_array_arg(),
            into_contiguous(max).into_array_arg(),
            into_contiguous(sum).into_array_arg(),
            into_contiguous(classes).into_array_arg(),
            width,
            scale,
            dtype.into(),
        );
    }
    grad
}

#[cube(launch, address_type = "dynamic")]
fn activation_kernel<F: Float>(
    x: &LinearView<F>,
    y: &mut Array<F>,
    #[comptime] function: Function,
    #[define(F)] _element: StorageType,
) {
    if ABSOLUTE_POS < y.len() {
        y[ABSOLUTE_POS] = F::cast_from(value_at(f32::cast_from(x[ABSOLUTE_POS]), function));
    }
}

#[cube(launch, address_type = "dynamic")]
fn activation_grad_kernel<F: Float>(
    kept: &LinearView<F>,
    grad: &LinearView<F>,
    input_grad: &mut Array<F>,
    #[comptime] function: Function,
    #[define(F)] _element: StorageType,
) {
    if ABSOLUTE_POS < input_grad.len() {
        let kept = f32::cast_from(kept[ABSOLUTE_POS]);
        let slope = slope_of_kept(kept, function);
        input_grad[ABSOLUTE_POS] = F::cast_from(slope * f32::cast_from(grad[ABSOLUTE_POS]));
    }
}

#[cube(launch, address_type = "dynamic")]
fn gated_kernel<F: Float>(
    gate: &LinearView<F>,
    value: &LinearView<F>,
    y: &mut Array<F>,
    #[comptime] function: Function,
    #[define(F)] _element: StorageType,
) {
    if ABSOLUTE_POS < y.len() {
        let opened = value_at(f32::cast_from(gate[ABSOLUTE_POS]), function);
        y[ABSOLUTE_POS] = F::cast_from(opened * f32::cast_from(value[ABSOLUTE_POS]));
    }
}

#[cube(launch, address_type = "dynamic")]
fn gated_grad_kernel<F: Float>(
    gate: &LinearView<F>,
    value: &LinearView<F>,
    grad: &LinearView<F>,
    gate_grad: &mut Array<F>,
    value_grad: &mut Array<F>,
    #[comptime] function: Function,
    #[define(F)] _element: StorageType,
) {
    if ABSOLUTE_POS < gate_grad.len() {
        let gate = f32::cast_from(gate[ABSOLUTE_POS]);
        let value = f32::cast_from(value[ABSOLUTE_POS]);
        let grad = f32::cast_from(grad[ABSOLUTE_POS]);
        let opened = value_at(gate, function);
        let kept = if comptime!(function.keeps_output()) { opened } else { gate };
        gate_grad[ABSOLUTE_POS] = F::cast_from(grad * value * slope_of_kept(kept, function));
        value_grad[ABSOLUTE_POS] = F::cast_from(grad * opened);
    }
}

/// `f(x)`.
#[cube]
fn value_at(x: f32, #[comptime] function: Function) -> f32 {
    match function {
        Function::Gelu => x * normal_distribution::<f32>(x),
        Function::GeluTanh => x * sigmoid(gelu_argument(x)),
        Function::QuickGelu => x * sigmoid(f32::new(comptime!(QUICK_GELU as f32)) * x),
        Function::Relu => max(x, f32::new(0.0)),
        Function::Silu => x * sigmoid(x),
        Function::Tanh => f32::tanh(x),
        Function::Sigmoid => sigmoid(x),
    }
}

/// The slope where `x` was kept: the output if the function keeps it, otherwise the input.
#[cube]
fn slope_of_kept(x: f32, #[comptime] function: Function) -> f32 {
    match function {
        Function::Gelu => {
            let density = f32::exp(-0.5 * x * x) * f32::new(comptime!(SQRT_2_OVER_PI as f32 / 2.0));
            normal_distribution::<f32>(x) + x * density
        }
        Function::GeluTanh => {
            let rise = f32::new(comptime!(2.0 * SQRT_2_OVER_PI as f32))
                * (1.0 + f32::new(comptime!(3.0 * GELU_CUBE as f32)) * x * x);
            let share = sigmoid(gelu_argument(x));
            share * (1.0 + x * (1.0 - share) * rise)
        }
        Function::QuickGelu => {
            let scaled = f32::new(comptime!(QUICK_GELU as f32)) * x;
            let share = sigmoid(scaled);
            share * (1.0 + scaled * (1.0 - share))
        }
        Function::Relu => {
            if x > 0.0 {
                f32::new(1.0)
            } else {
                f32::new(0.0)
            }
        }
        Function::Silu => {
            let share = sigmoid(x);
            share * (1.0 + x * (1.0 - share))
        }
        Function::Tanh => 1.0 - x * x,
        Function::Sigmoid => x * (1.0 - x),
    }
}

/// `1 / (1 + e^-x)`.
#[cube]
fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + f32::exp(-x))
}

/// The share of a normal distribution below `x`. It is generic as Rust may come to have an `f32::erf` of its own.
#[cube]
fn normal_distribution<F: Float>(x: F) -> F {
    let scaled = x * F::new(comptime!(std::f32::consts::FRAC_1_SQRT_2));
    (F::erf(scaled) + F::new(1.0)) * F::new(0.5)
}

/// `u` in `(1 + tanh(u / 2)) / 2 = sigmoid(u)`, by which the distribution is approximated.
#[cube]
fn gelu_argument(x: f32) -> f32 {
    let cube = f32::new(comptime!(GELU_CUBE as f32));
    f32::new(comptime!(2.0 * SQRT_2_OVER_PI as f32)) * x * (1.0 + cube * x * x)
}

#[cube(launch, address_type = "dynamic")]
#[expect(clippy::too_many_arguments, reason = "a kernel has no other way to be told")]
fn rotate_kernel<F: Float, T: Float>(
    x: &LinearView<F>,
    cos: &Tensor<T>,
    sin: &Tensor<T>,
    y: &mut Array<F>,
    width: usize,
    rows_of_position: usize,
    #[define(F)] _element: StorageType,
    #[define(T)] _table_element: StorageType,
) {
    let place = ABSOLUTE_POS;
    if place < y.len() {
        let positions = cos.shape(0);
        let pairs = cos.shape(1);
        let feature = place % width;
        let position = (place / (width * rows_of_position)) % positions;
        if feature < 2 * pairs {
            let angle = position * pairs + feature % pairs;
            let (cos, sin) = (f32::cast_from(cos[angle]), f32::cast_from(sin[angle]));
            let own = f32::cast_from(x[place]) * cos;
            let turned = if feature < pairs {
                own - f32::cast_from(x[place + pairs]) * sin
            } else {
                own + f32::cast_from(x[place - pairs]) * sin
            };
            y[place] = F::cast_from(turned);
        } else {
            y[place] = x[place];
        }
    }
}

#[cube(launch, address_type = "dynamic")]
#[expect(clippy::too_many_arguments, reason = "a kernel has no other way to be told")]
fn adamw_kernel(
    weights: &mut Array<f32>,
    first: &mut Array<f32>,
    second: &mut Array<f32>,
    gradient: &LinearView<f32>,
    factor: f32,
    beta1: f32,
    new1: f32,
    beta2: f32,
    new2: f32,
    kept_share: f32,
    step: f32,
    root_scale: f32,
    epsilon: f32,
) {
    if ABSOLUTE_POS < weights.len() {
        let gradient = gradient[ABSOLUTE_POS] * factor;
        let m = first[ABSOLUTE_POS] * beta1 + gradient * new1;
        let v = second[ABSOLUTE_POS] * beta2 + gradient * gradient * new2;
        let root = f32::sqrt(v) * root_scale + epsilon;
        first[ABSOLUTE_POS] = m;
        second[ABSOLUTE_POS] = v;
        weights[ABSOLUTE_POS] = weights[ABSOLUTE_POS] * kept_share - m / root * step;
    }
}

#[cube(launch, address_type = "dynamic")]
fn cross_entropy_grad_kernel(
    grad: &mut Array<f32>,
    sum: &Array<f32>,
    classes: &Array<i32>,
    width: usize,
    scale: f32,
) {
    if ABSOLUTE_POS < grad.len() {
        let row = ABSOLUTE_POS / width;
        let mut probability = grad[ABSOLUTE_POS] / sum[row];
        if i32::cast_from(ABSOLUTE_POS % width) == classes[row] {
            probability -= 1.0;
        }
        grad[ABSOLUTE_POS] = probability * scale;
    }
}

#[cube(launch, address_type = "dynamic")]
fn cross_entropy_grad_of_logits_kernel<F: Float>(
    grad: &mut Array<F>,
    max: &Array<f32>,
    sum: &Array<f32>,
    classes: &Array<i32>,
    width: usize,
    scale: f32,
    #[define(F)] _element: StorageType,
) {
    if ABSOLUTE_POS < grad.len() {
        let row = ABSOLUTE_POS / width;
        let logit = f32::cast_from(grad[ABSOLUTE_POS]);
        let mut probability = f32::exp(logit - max[row]) / sum[row];
        if i32::cast_from(ABSOLUTE_POS % width) == classes[row] {
            probability -= 1.0;
        }
        grad[ABSOLUTE_POS] = F::cast_from(probability * scale);
    }
}
