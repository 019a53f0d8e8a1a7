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

/// Weights after the update number `update`, counting from 1, with their moments; gradients count
/// `factor` times.
///
/// ```text
/// momentum:  m = b1 m + g    w = w (1 - r d) - r m
/// SGD:                       w = w (1 - r d) - r g
/// ```
///
/// AdamW is [`adamw`]. The first momentum is the gradient itself, as in PyTorch.
pub(crate) fn update<B: Kernels>(
    settings: &OptimizerSettings,
    [rate, factor]: [f64; 2],
    update: u64,
    weights: Array<B>,
    mut moments: Vec<Array<B>>,
    gradient: Array<B>,
) -> (Array<B>, Vec<Array<B>>) {
    let OptimizerSettings { kind, beta1, beta2, epsilon, weight_decay } = *settings;
    let decayed = |weights: Array<B>| {
        if weight_decay == 0.0 { weights } else { weights.scale(1.0 - rate * weight_decay) }
    };
    match kind {
        Optimizer::Sgd => (decayed(weights) - gradient.scale(rate * factor), moments),
        Optimizer::Momentum => {
            let momentum = moments.pop().expect("momentum is kept");
            let momentum = momentum.scale(beta1) + gradient.scale(factor);
            (decayed(weights) - momentum.clone().scale(rate), vec![momentum])
        }
        Optimizer::AdamW => {
            let updates = i32::try_from(update).unwrap_or(i32::MAX);
            let second = moments.pop().expect("a second moment is kept");
            let first = moments.pop().expect("a first moment is kept");
            let rates = AdamW {
                factor,
                beta1,
                beta2,
                kept_share: 1.0 - rate * weight_decay,
                step: rate / (1.0 - beta1.powi(updates)),
                root_scale: 1.0 / (1.0 - beta2.powi(updates)).sqrt(),
                epsilon,
            };
            let (weights, moments) = B::adamw(&rates, weights, [first, second], gradient);
            (weights, moments.into())
        }
    }
}

/// The numbers of one update by AdamW.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// What gradients are multiplied by first.
    pub factor: f64,
    /// How much of the first moment stays.
    pub beta1: f64,
    /// How much of the second moment stays.
    pub beta2: f64,
    /// How much of each weight stays: `1 - r d`.
    pub kept_share: f64,
    /// `r / (1 - b1^t)`.
    pub step: f64,
    /// `1 / sqrt(1 - b2^t)`.
    pub root_scale: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
}

/// Weights and moments after an update.
///
/// ```text
/// m = b1 m + (1 - b1) g    v = b2 v + (1 - b2) g^2
/// w = w (1 - r d) - r / (1 - b1^t) m / (sqrt(v / (1 - b2^t)) + e)
/// ```
///
/// # Source
///
/// Loshchilov and Hutter 2019 (arXiv 1711.05101), in the order in which PyTorch computes it.
pub(crate) fn adamw<B: Kernels>(
    rates: &AdamW,
    weights: Array<B>,
    [first, second]: [Array<B>; 2],
    gradient: Array<B>,
) -> (Array<B>, [Array<B>; 2]) {
    let gradient = gradient.scale(rates.factor);
    let first = first.scale(rates.beta1) + gradient.clone().scale(1.0 - rates.beta1);
    let second = second.scale(rates.beta2) + gradient.square().scale(1.0 - rates.beta2);
    let root = second.clone().sqrt().scale(rates.root_scale).shift(rates.epsilon);
    let change = (first.clone() / root).scale(rates.step);
    (weights.scale(rates.kept_share) - change, [first, second])
}
