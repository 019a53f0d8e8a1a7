//! Kernels with one unit for each vector of elements: activations, rotations, updates, and cross-entropy gradients.

use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use cubecl::std::tensor::layout::linear::LinearView;

use super::launch::{
    Grid, launch, len, like, owned, rows_and_width, shared_vector_size, vector_size,
};
use crate::ops::composed::activation::{Function, GELU_CUBE, QUICK_GELU, SQRT_2_OVER_PI};
use crate::ops::composed::adamw::AdamW;

/// `f(x)`, or `f(x) value` where there is a value.
pub(super) fn activation<R: CubeRuntime>(
    function: Function,
    x: CubeTensor<R>,
    value: Option<CubeTensor<R>>,
) -> CubeTensor<R> {
    let y = like(&x);
    if len(&y) > 0 {
        let has_value = value.is_some();
        // An absent value is not read: any array will do.
        let value = value.unwrap_or_else(|| x.clone());
        let (size, dtype) = (vector_size(&[&x, &value]), x.dtype.into());
        let grid = Grid::of_units(&[&x, &value, &y], len(&y) / size);
        let [x, value] = [x, value].map(CubeTensor::into_linear_view);
        let out = y.clone().into_array_arg();
        launch!(activation_kernel, grid, size, x, value, out, function, has_value, dtype);
    }
    y
}

/// The gradient of the function's input, from the saved input or output.
pub(super) fn activation_grad<R: CubeRuntime>(
    function: Function,
    kept: CubeTensor<R>,
    grad: CubeTensor<R>,
) -> CubeTensor<R> {
    let input_grad = like(&kept);
    if len(&input_grad) > 0 {
        let (size, dtype) = (vector_size(&[&kept, &grad]), kept.dtype.into());
        let grid = Grid::of_units(&[&kept, &grad], len(&input_grad) / size);
        let [kept, grad] = [kept, grad].map(CubeTensor::into_linear_view);
        let out = input_grad.clone().into_array_arg();
        launch!(activation_grad_kernel, grid, size, kept, grad, out, function, dtype);
    }
    input_grad
}

/// The gradients of gate and value.
pub(super) fn gated_grad<R: CubeRuntime>(
    function: Function,
    gate: CubeTensor<R>,
    value: CubeTensor<R>,
    grad: CubeTensor<R>,
) -> [CubeTensor<R>; 2] {
    let grads = [like(&gate), like(&gate)];
    if len(&gate) > 0 {
        let (size, dtype) = (vector_size(&[&gate, &value, &grad]), gate.dtype.into());
        let grid = Grid::of_units(&[&gate, &value, &grad], len(&gate) / size);
        let [gate, value, grad] = [gate, value, grad].map(CubeTensor::into_linear_view);
        let [of_gate, of_value] = grads.clone().map(CubeTensor::into_array_arg);
        launch!(
            gated_grad_kernel,
            grid,
            size,
            gate,
            value,
            grad,
            of_gate,
            of_value,
            function,
            dtype
        );
    }
    grads
}

/// Features `i` and `i + n` of `[b, s, .., d]` rotated by the angle of the position, `[s, n]`.
pub(super) fn rotate<R: CubeRuntime>(
    x: CubeTensor<R>,
    cos: CubeTensor<R>,
    sin: CubeTensor<R>,
) -> CubeTensor<R> {
    let y = like(&x);
    if len(&y) > 0 {
        let (element, table_element) = (x.dtype.into(), cos.dtype.into());
        let shape = x.meta.shape();
        let width = shape[shape.len() - 1];
        let rows_of_position = shape[2..shape.len() - 1].iter().product::<usize>();
        // The two features of a pair are `pairs` apart.
        let pairs = cos.meta.shape()[1];
        let size = shared_vector_size(&[&x], &[pairs]);
        launch!(
            rotate_kernel,
            Grid::of_units(&[&x, &y], len(&y) / size),
            size,
            x.into_linear_view(),
            into_contiguous(cos).into_tensor_arg(),
            into_contiguous(sin).into_tensor_arg(),
            y.clone().into_array_arg(),
            width,
            rows_of_position,
            element,
            table_element,
        );
    }
    y
}

/// Weights and moments after an AdamW update, in place where no other tensor shares their memory.
pub(super) fn adamw<R: CubeRuntime>(
    rates: &AdamW,
    weights: CubeTensor<R>,
    moments: [CubeTensor<R>; 2],
    gradient: CubeTensor<R>,
) -> (CubeTensor<R>, [CubeTensor<R>; 2]) {
    let (weights, [first, second]) = (owned(weights), moments.map(owned));
    if len(&weights) > 0 {
        let element = gradient.dtype.into();
        let size = vector_size(&[&weights, &first, &second, &gradient]);
        launch!(
            adamw_kernel,
            Grid::of_units(&[&weights, &gradient], len(&weights) / size),
            size,
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
            element,
        );
    }
    (weights, [first, second])
}

/// `scale (p - onehot)` in the type of `rows`, in place if no other tensor shares their memory. `p` is the softmax. If
/// there are maxima, `rows` are logits and `p = e^(logit - max) / sum`; else `rows` are exponentials and `p = e / sum`.
/// `classes` is the column of each row's target, or `width` if the target is in another shard.
pub(super) fn cross_entropy_grad<R: CubeRuntime>(
    rows: CubeTensor<R>,
    max: Option<CubeTensor<R>>,
    sum: CubeTensor<R>,
    classes: CubeTensor<R>,
    scale: f32,
) -> CubeTensor<R> {
    let grad = owned(rows);
    if len(&grad) > 0 {
        let (size, [_, width]) = (vector_size(&[&grad]), rows_and_width(&grad));
        let are_logits = max.is_some();
        // Absent maxima are not read: any array will do.
        let max = max.unwrap_or_else(|| sum.clone());
        launch!(
            cross_entropy_grad_kernel,
            Grid::of_units(&[&grad], len(&grad) / size),
            size,
            grad.clone().into_array_arg(),
            into_contiguous(max).into_array_arg(),
            into_contiguous(sum).into_array_arg(),
            into_contiguous(classes).into_array_arg(),
            width,
            scale,
            are_logits,
            grad.dtype.into(),
        );
    }
    grad
}

#[cube(launch, address_type = "dynamic")]
fn activation_kernel<F: Float, N: Size>(
    x: &LinearView<Vector<F, N>>,
    value: &LinearView<Vector<F, N>>,
    y: &mut Array<Vector<F, N>>,
    #[comptime] function: Function,
    #[comptime] has_value: bool,
    #[define(F)] _element: StorageType,
) {
    let place = ABSOLUTE_POS;
    if place < y.len() {
        let mut values = Vector::<f32, N>::cast_from(x[place]);
        #[unroll]
        for i in 0..values.vector_size() {
            values[i] = value_at(values[i], function);
        }
        if has_value {
            values *= Vector::<f32, N>::cast_from(value[place]);
        }
        y[place] = Vector::<F, N>::cast_from(values);
    }
}

#[cube(launch, address_type = "dynamic")]
fn activation_grad_kernel<F: Float, N: Size>(
    kept: &LinearView<Vector<F, N>>,
    grad: &LinearView<Vector<F, N>>,
    input_grad: &mut Array<Vector<F, N>>,
    #[comptime] function: Function,
    #[define(F)] _element: StorageType,
) {
    let place = ABSOLUTE_POS;
    if place < input_grad.len() {
        let mut slopes = Vector::<f32, N>::cast_from(kept[place]);
        #[unroll]
        for i in 0..slopes.vector_size() {
            slopes[i] = slope_of_kept(slopes[i], function);
        }
        let grad = Vector::<f32, N>::cast_from(grad[place]);
        input_grad[place] = Vector::<F, N>::cast_from(slopes * grad);
    }
}

#[cube(launch, address_type = "dynamic")]
fn gated_grad_kernel<F: Float, N: Size>(
    gate: &LinearView<Vector<F, N>>,
    value: &LinearView<Vector<F, N>>,
    grad: &LinearView<Vector<F, N>>,
    gate_grad: &mut Array<Vector<F, N>>,
    value_grad: &mut Array<Vector<F, N>>,
    #[comptime] function: Function,
    #[define(F)] _element: StorageType,
) {
    let place = ABSOLUTE_POS;
    if place < gate_grad.len() {
        let gate = Vector::<f32, N>::cast_from(gate[place]);
        let value = Vector::<f32, N>::cast_from(value[place]);
        let grad = Vector::<f32, N>::cast_from(grad[place]);
        let mut of_gate = grad * value;
        let mut of_value = grad;
        #[unroll]
        for i in 0..gate.vector_size() {
            let opened = value_at(gate[i], function);
            let kept = if comptime!(function.keeps_output()) { opened } else { gate[i] };
            of_gate[i] = of_gate[i] * slope_of_kept(kept, function);
            of_value[i] = of_value[i] * opened;
        }
        gate_grad[place] = Vector::<F, N>::cast_from(of_gate);
        value_grad[place] = Vector::<F, N>::cast_from(of_value);
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
        Function::SquaredRelu => {
            let positive = max(x, f32::new(0.0));
            positive * positive
        }
        Function::Silu => x * sigmoid(x),
        Function::Tanh => f32::tanh(x),
        Function::Sigmoid => sigmoid(x),
    }
}

/// The slope at the saved value `x`: the output if the function keeps it, otherwise the input.
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
        Function::SquaredRelu => 2.0 * max(x, f32::new(0.0)),
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

/// The normal distribution's probability below `x`. It is generic as Rust may get an `f32::erf` itself.
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
fn rotate_kernel<F: Float, T: Float, N: Size>(
    x: &LinearView<Vector<F, N>>,
    cos: &Tensor<T>,
    sin: &Tensor<T>,
    y: &mut Array<Vector<F, N>>,
    width: usize,
    rows_of_position: usize,
    #[define(F)] _element: StorageType,
    #[define(T)] _table_element: StorageType,
) {
    let place = ABSOLUTE_POS;
    if place < y.len() {
        let positions = cos.shape(0);
        let pairs = cos.shape(1);
        let vectors = width / N::value();
        let apart = pairs / N::value();
        let feature = place % vectors * N::value();
        let position = (place / (vectors * rows_of_position)) % positions;
        if feature < 2 * pairs {
            let is_first = feature < pairs;
            let other = if is_first { place + apart } else { place - apart };
            let others = Vector::<f32, N>::cast_from(x[other]);
            let mut turned = Vector::<f32, N>::cast_from(x[place]);
            let first_angle = position * pairs + feature % pairs;
            #[unroll]
            for i in 0..turned.vector_size() {
                let angle = first_angle + i;
                let sin = f32::cast_from(sin[angle]);
                let across = others[i] * select(is_first, -sin, sin);
                turned[i] = turned[i] * f32::cast_from(cos[angle]) + across;
            }
            y[place] = Vector::<F, N>::cast_from(turned);
        } else {
            y[place] = x[place];
        }
    }
}

#[cube(launch, address_type = "dynamic")]
fn adamw_kernel<F: Float, N: Size>(
    weights: &mut Array<Vector<f32, N>>,
    first: &mut Array<Vector<f32, N>>,
    second: &mut Array<Vector<f32, N>>,
    gradient: &LinearView<Vector<F, N>>,
    factor: f32,
    beta1: f32,
    new1: f32,
    beta2: f32,
    new2: f32,
    kept_share: f32,
    step: f32,
    root_scale: f32,
    epsilon: f32,
    #[define(F)] _element: StorageType,
) {
    let place = ABSOLUTE_POS;
    if place < weights.len() {
        let gradients = Vector::<f32, N>::cast_from(gradient[place]);
        let mut m = first[place];
        let mut v = second[place];
        let mut updated = weights[place];
        #[unroll]
        for i in 0..updated.vector_size() {
            let gradient = gradients[i] * factor;
            m[i] = m[i] * beta1 + gradient * new1;
            v[i] = v[i] * beta2 + gradient * gradient * new2;
            let root = f32::sqrt(v[i]) * root_scale + epsilon;
            updated[i] = updated[i] * kept_share - m[i] / root * step;
        }
        first[place] = m;
        second[place] = v;
        weights[place] = updated;
    }
}

#[cube(launch, address_type = "dynamic")]
fn cross_entropy_grad_kernel<F: Float, N: Size>(
    grad: &mut Array<Vector<F, N>>,
    max: &Array<f32>,
    sum: &Array<f32>,
    classes: &Array<i32>,
    width: usize,
    scale: f32,
    #[comptime] are_logits: bool,
    #[define(F)] _element: StorageType,
) {
    let place = ABSOLUTE_POS;
    if place < grad.len() {
        let vectors = width / N::value();
        let row = place / vectors;
        let first = place % vectors * N::value();
        let mut values = Vector::<f32, N>::cast_from(grad[place]);
        #[unroll]
        for i in 0..values.vector_size() {
            let is_target = i32::cast_from(first + i) == classes[row];
            let hit = select(is_target, f32::new(1.0), f32::new(0.0));
            let mut exponential = values[i];
            if are_logits {
                exponential = f32::exp(exponential - max[row]);
            }
            values[i] = (exponential / sum[row] - hit) * scale;
        }
        grad[place] = Vector::<F, N>::cast_from(values);
    }
}
