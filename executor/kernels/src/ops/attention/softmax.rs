//! Softmax with its gradient.

use crate::array::Array;
use crate::ops::BasicKernels;
use crate::ops::composed::attention::LOWEST;

/// `e^x / sum(e^x)` along dimension `dim`; zeros where all of `x` is minus infinity.
pub fn softmax<B: BasicKernels>(x: Array<B>, dim: usize) -> Array<B> {
    let element = x.element();
    let x = x.widened();
    let exponentials = (x.clone() - x.max_dim(dim).at_least(LOWEST)).exp();
    // The largest element alone contributes 1 to the sum, unless all are minus infinity.
    let sum = exponentials.clone().sum_dim(dim).at_least(1.0);
    (exponentials / sum).cast(element)
}

/// The gradient of the input of a softmax from its output `y`: `y (grad - sum(y grad))`.
pub fn softmax_grad<B: BasicKernels>(y: Array<B>, grad: Array<B>, dim: usize) -> Array<B> {
    let element = grad.element();
    let (y, grad) = (y.widened(), grad.widened());
    let along = (y.clone() * grad.clone()).sum_dim(dim);
    (y * (grad - along)).cast(element)
}
