//! Elementwise functions of one array, or of a gate and a value.

use super::Kernels;
pub use super::composed::activation::Function;
use crate::array::Array;

impl Function {
    /// `f(x)`.
    pub fn forward<B: Kernels>(self, x: Array<B>) -> Array<B> {
        B::activation(self, x)
    }

    /// The gradient of the input. `kept` is the output where [`Self::keeps_output`] says so, else the input.
    pub fn input_grad<B: Kernels>(self, kept: Array<B>, grad: Array<B>) -> Array<B> {
        B::activation_grad(self, kept, grad)
    }
}

/// `f(gate) value`.
pub fn gated_forward<B: Kernels>(function: Function, gate: Array<B>, value: Array<B>) -> Array<B> {
    B::gated(function, gate, value)
}

/// The gradients of the gate and of the value, from what went in.
pub fn gated_input_grad<B: Kernels>(
    function: Function,
    gate: Array<B>,
    value: Array<B>,
    grad: Array<B>,
) -> (Array<B>, Array<B>) {
    B::gated_grad(function, gate, value, grad)
}
