//! Elementwise functions of one array, or of a gate and a value.

use super::Kernels;
pub use super::composed::activation::Function;
use super::composed::activation::{QUICK_GELU, quick_gelu_slope};
use crate::array::Array;

impl Function {
    /// `f(x)`.
    pub fn forward<B: Kernels>(self, x: Array<B>) -> Array<B> {
        B::activation(self, x)
    }

    /// The gradient of the input. `kept` is the output where [`Self::keeps_output`] is true, else the input.
    pub fn input_grad<B: Kernels>(self, kept: Array<B>, grad: Array<B>) -> Array<B> {
        B::activation_grad(self, kept, grad)
    }
}

/// `f(gate) value`.
pub fn gated_forward<B: Kernels>(function: Function, gate: Array<B>, value: Array<B>) -> Array<B> {
    B::gated(function, gate, value)
}

/// The gradients of the gate and of the value, from the inputs.
pub fn gated_input_grad<B: Kernels>(
    function: Function,
    gate: Array<B>,
    value: Array<B>,
    grad: Array<B>,
) -> (Array<B>, Array<B>) {
    B::gated_grad(function, gate, value, grad)
}

/// `(value + 1) gate sigmoid(1.702 gate)`, the gate clamped above at `limit`, the value on both sides.
///
/// # Source
///
/// OpenAI 2025, gpt-oss; `GptOssExperts` of Hugging Face transformers.
pub fn clamped_swiglu<B: Kernels>(gate: Array<B>, value: Array<B>, limit: f64) -> Array<B> {
    let element = value.element();
    let gate = at_most(gate.widened(), limit);
    let value = clamp(value.widened(), limit).shift(1.0);
    (Function::QuickGelu.forward(gate) * value).cast(element)
}

/// The partial derivatives of [`clamped_swiglu`] with respect to the gate and to the value.
pub fn clamped_swiglu_slopes<B: Kernels>(
    gate: Array<B>,
    value: Array<B>,
    limit: f64,
) -> [Array<B>; 2] {
    let element = value.element();
    let (gate, value) = (gate.widened(), value.widened());
    let below = at_most(gate.clone(), limit);
    let opened = below.clone() * below.clone().scale(QUICK_GELU).sigmoid();
    let ones = |like: &Array<B>| Array::ones(&like.shape(), like.element(), &like.device());
    // One where the gate was not clamped.
    let passes = gate.scale(-1.0).shift(limit).where_positive(ones(&below));
    let of_gate = quick_gelu_slope(below) * clamp(value.clone(), limit).shift(1.0) * passes;
    let of_value = clamp_grad(value, opened, limit);
    [of_gate, of_value].map(|slope| slope.cast(element))
}

/// `cap tanh(x / cap)`.
pub fn soft_cap<B: Kernels>(x: Array<B>, cap: f64) -> Array<B> {
    let element = x.element();
    x.widened().scale(1.0 / cap).tanh().scale(cap).cast(element)
}

/// The gradient of the input of [`soft_cap`], from its output.
pub fn soft_cap_grad<B: Kernels>(y: Array<B>, grad: Array<B>, cap: f64) -> Array<B> {
    let element = grad.element();
    let slope = y.widened().scale(1.0 / cap).square().scale(-1.0).shift(1.0);
    (slope * grad.widened()).cast(element)
}

/// The elements clamped to `-limit..=limit`.
pub fn clamp<B: Kernels>(x: Array<B>, limit: f64) -> Array<B> {
    at_most(x, limit).at_least(-limit)
}

/// The gradient of the input of [`clamp`], from that input.
pub fn clamp_grad<B: Kernels>(x: Array<B>, grad: Array<B>, limit: f64) -> Array<B> {
    let below = x.clone().scale(-1.0).shift(limit);
    let above = x.shift(limit);
    below.where_positive(above.where_positive(grad))
}

fn at_most<B: Kernels>(x: Array<B>, limit: f64) -> Array<B> {
    x.scale(-1.0).at_least(-limit).scale(-1.0)
}
