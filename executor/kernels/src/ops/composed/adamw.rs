//! Updates by AdamW.

use burn::tensor::backend::Backend;

use crate::array::Array;

/// Rates and factors of one AdamW update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Factor of the gradients, applied first.
    pub factor: f64,
    /// Decay of the first moment, `b1`.
    pub beta1: f64,
    /// Decay of the second moment, `b2`.
    pub beta2: f64,
    /// Factor of the weights by weight decay: `1 - r d`.
    pub kept_share: f64,
    /// `r / (1 - b1^t)`.
    pub step: f64,
    /// `1 / sqrt(1 - b2^t)`.
    pub root_scale: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
}

/// Weights and moments after an update; gradients may be of another type.
///
/// ```text
/// m = b1 m + (1 - b1) g    v = b2 v + (1 - b2) g^2
/// w = w (1 - r d) - r / (1 - b1^t) m / (sqrt(v / (1 - b2^t)) + e)
/// ```
///
/// # Source
///
/// Loshchilov and Hutter 2019 (arXiv 1711.05101), in the order in which PyTorch computes it.
pub(in crate::ops) fn adamw<B: Backend>(
    rates: &AdamW,
    weights: Array<B>,
    [first, second]: [Array<B>; 2],
    gradient: Array<B>,
) -> (Array<B>, [Array<B>; 2]) {
    let gradient = gradient.cast(weights.element()).scale(rates.factor);
    let first = first.scale(rates.beta1) + gradient.clone().scale(1.0 - rates.beta1);
    let second = second.scale(rates.beta2) + gradient.square().scale(1.0 - rates.beta2);
    let root = second.clone().sqrt().scale(rates.root_scale).shift(rates.epsilon);
    let change = (first.clone() / root).scale(rates.step);
    (weights.scale(rates.kept_share) - change, [first, second])
}
