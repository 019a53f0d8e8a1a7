//! Elementwise functions of one array, or of a gate and a value.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use burn::tensor::backend::Backend;

use crate::array::Array;

/// `sqrt(2 / pi)`.
pub(in crate::ops) const SQRT_2_OVER_PI: f64 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;

/// `1 / sqrt(2 pi)`.
const INVERSE_SQRT_2_PI: f64 = 0.5 * SQRT_2_OVER_PI;

/// The coefficient of the cube in the approximation of the Gaussian error linear unit.
///
/// # Source
///
/// Hendrycks and Gimpel 2016, *Gaussian Error Linear Units*, section 2, <https://arxiv.org/abs/1606.08415>.
pub(in crate::ops) const GELU_CUBE: f64 = 0.044_715;

/// Factor of the logistic function's argument that approximates the normal distribution.
///
/// # Source
///
/// Hendrycks and Gimpel 2016, section 2.
pub(in crate::ops) const QUICK_GELU: f64 = 1.702;

/// An elementwise function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function {
    /// `x Phi(x)` with the normal distribution `Phi`.
    Gelu,
    /// `x Phi(x)` with `Phi` approximated by a hyperbolic tangent.
    GeluTanh,
    /// `x / (1 + e^(-1.702 x))`.
    QuickGelu,
    /// `max(x, 0)`.
    Relu,
    /// `max(x, 0)^2`.
    SquaredRelu,
    /// `x / (1 + e^-x)`.
    Silu,
    /// Hyperbolic tangent.
    Tanh,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
}

impl Function {
    /// Returns whether the backward pass needs the function's output instead of its input.
    pub fn keeps_output(self) -> bool {
        matches!(self, Self::Relu | Self::Tanh | Self::Sigmoid)
    }
}

pub(in crate::ops) fn forward<B: Backend>(function: Function, x: Array<B>) -> Array<B> {
    let element = x.element();
    evaluate(function, x.widened()).cast(element)
}

pub(in crate::ops) fn input_grad<B: Backend>(
    function: Function,
    kept: Array<B>,
    grad: Array<B>,
) -> Array<B> {
    let element = grad.element();
    chain(function, kept.widened(), grad.widened()).cast(element)
}

pub(in crate::ops) fn gated_forward<B: Backend>(
    function: Function,
    gate: Array<B>,
    value: Array<B>,
) -> Array<B> {
    let element = value.element();
    (evaluate(function, gate.widened()) * value.widened()).cast(element)
}

pub(in crate::ops) fn gated_input_grad<B: Backend>(
    function: Function,
    gate: Array<B>,
    value: Array<B>,
    grad: Array<B>,
) -> (Array<B>, Array<B>) {
    let element = grad.element();
    let (gate, grad) = (gate.widened(), grad.widened());
    let opened = evaluate(function, gate.clone());
    let kept = if function.keeps_output() { opened.clone() } else { gate };
    let gate_grad = chain(function, kept, grad.clone() * value.widened());
    (gate_grad.cast(element), (opened * grad).cast(element))
}

fn evaluate<B: Backend>(function: Function, x: Array<B>) -> Array<B> {
    match function {
        Function::Gelu => x.clone() * normal_distribution(x),
        Function::GeluTanh => {
            let tanh = gelu_argument(x.clone()).tanh();
            x * tanh.shift(1.0).scale(0.5)
        }
        Function::QuickGelu => x.clone() * x.scale(QUICK_GELU).sigmoid(),
        Function::Relu => x.relu(),
        Function::SquaredRelu => x.relu().square(),
        Function::Silu => x.clone() * x.sigmoid(),
        Function::Tanh => x.tanh(),
        Function::Sigmoid => x.sigmoid(),
    }
}

/// `f' grad`, with the slope `f'` at the input `kept`, or from the output `kept`.
fn chain<B: Backend>(function: Function, kept: Array<B>, grad: Array<B>) -> Array<B> {
    let x = kept;
    match function {
        Function::Gelu => {
            let density = x.clone().square().scale(-0.5).exp().scale(INVERSE_SQRT_2_PI);
            (normal_distribution(x.clone()) + x * density) * grad
        }
        Function::GeluTanh => {
            let tanh = gelu_argument(x.clone()).tanh();
            let inner = x.clone().square().scale(3.0 * GELU_CUBE).shift(1.0).scale(SQRT_2_OVER_PI);
            let rise = tanh.clone().square().scale(-1.0).shift(1.0) * inner;
            (tanh.shift(1.0) + x * rise).scale(0.5) * grad
        }
        Function::QuickGelu => quick_gelu_slope(x) * grad,
        Function::Relu => x.where_positive(grad),
        Function::SquaredRelu => x.relu().scale(2.0) * grad,
        Function::Silu => {
            let sigmoid = x.clone().sigmoid();
            let rest = x * sigmoid.clone().scale(-1.0).shift(1.0);
            sigmoid * rest.shift(1.0) * grad
        }
        Function::Tanh => x.square().scale(-1.0).shift(1.0) * grad,
        Function::Sigmoid => x.clone() * x.scale(-1.0).shift(1.0) * grad,
    }
}

/// The slope of `x sigmoid(1.702 x)`.
pub(in crate::ops) fn quick_gelu_slope<B: Backend>(x: Array<B>) -> Array<B> {
    let sigmoid = x.clone().scale(QUICK_GELU).sigmoid();
    let rest = x.scale(QUICK_GELU) * sigmoid.clone().scale(-1.0).shift(1.0);
    sigmoid * rest.shift(1.0)
}

/// `Phi(x)`, the normal distribution's probability below `x`.
fn normal_distribution<B: Backend>(x: Array<B>) -> Array<B> {
    x.scale(FRAC_1_SQRT_2).erf().shift(1.0).scale(0.5)
}

/// `sqrt(2 / pi) (x + 0.044715 x^3)`.
fn gelu_argument<B: Backend>(x: Array<B>) -> Array<B> {
    x.clone().square().scale(GELU_CUBE).shift(1.0).scale(SQRT_2_OVER_PI) * x
}
