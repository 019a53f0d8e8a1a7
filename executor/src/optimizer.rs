//! Updates of parameters from gradients.

use ir::plan::Optimizer;

use crate::array::Array;
use crate::ops::Kernels;
use crate::settings::OptimizerSettings;

/// Moments that a rule keeps for each parameter.
pub(crate) const fn num_moments(kind: Optimizer) -> usize {
    match kind {
        Optimizer::AdamW => 2,
        Optimizer::Momentum => 1,
        Optimizer::Sgd => 0,
    }
}

/// Weights after the update number `update`, counting from 1, with their moments.
///
/// ```text
/// AdamW:     m = b1 m + (1 - b1) g    v = b2 v + (1 - b2) g^2
///            w = w (1 - r d) - r / (1 - b1^t) m / (sqrt(v / (1 - b2^t)) + e)
/// momentum:  m = b1 m + g             w = w (1 - r d) - r m
/// SGD:                                w = w (1 - r d) - r g
/// ```
///
/// # Source
///
/// Loshchilov and Hutter 2019 (arXiv 1711.05101), as PyTorch computes it. The first momentum is the
/// gradient itself, as there.
pub(crate) fn update<B: Kernels>(
    settings: &OptimizerSettings,
    rate: f64,
    update: u64,
    weights: Array<B>,
    moments: &mut [Array<B>],
    gradient: Array<B>,
) -> Array<B> {
    let OptimizerSettings { kind, beta1, beta2, epsilon, weight_decay } = *settings;
    let weights =
        if weight_decay == 0.0 { weights } else { weights.scale(1.0 - rate * weight_decay) };
    match kind {
        Optimizer::Sgd => weights - gradient.scale(rate),
        Optimizer::Momentum => {
            moments[0] = moments[0].clone().scale(beta1) + gradient;
            weights - moments[0].clone().scale(rate)
        }
        Optimizer::AdamW => {
            let updates = i32::try_from(update).unwrap_or(i32::MAX);
            let (bias1, bias2) = (1.0 - beta1.powi(updates), 1.0 - beta2.powi(updates));
            moments[0] = moments[0].clone().scale(beta1) + gradient.clone().scale(1.0 - beta1);
            moments[1] = moments[1].clone().scale(beta2) + gradient.square().scale(1.0 - beta2);
            let root = moments[1].clone().sqrt().scale(1.0 / bias2.sqrt()).shift(epsilon);
            weights - (moments[0].clone() / root).scale(rate / bias1)
        }
    }
}
