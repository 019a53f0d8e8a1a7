//! Updates of parameters from gradients.

use executor_kernels::array::Array;
use executor_kernels::ops::AdamW;
use executor_kernels::ops::Kernels;
use ir::graph::ShapeCounts;
use ir::plan::Optimizer;

use crate::settings::OptimizerSettings;

/// Supported optimizers: those that update each parameter by itself.
pub(crate) const RUN: [Optimizer; 3] = [Optimizer::AdamW, Optimizer::Momentum, Optimizer::Sgd];

/// Number of moments that an optimizer of [`RUN`] holds for each parameter.
pub(crate) const fn num_moments(kind: Optimizer) -> usize {
    kind.num_moments(
        1,
        ShapeCounts { outside_matrices: 0, rows_and_columns: 0, iteration_flops: 0 },
    ) as usize
}

/// Weights and moments after update `update`, counting from 1; gradients are multiplied by `factor`.
///
/// ```text
/// momentum:  m = b1 m + g    w = w (1 - r d) - r m
/// SGD:                       w = w (1 - r d) - r g
/// ```
///
/// AdamW is [`Kernels::adamw`]. The first momentum is the gradient itself, as in PyTorch.
pub(crate) fn update<B: Kernels>(
    settings: &OptimizerSettings,
    [rate, factor]: [f64; 2],
    update: u64,
    weights: Array<B>,
    mut moments: Vec<Array<B>>,
    gradient: Array<B>,
) -> (Array<B>, Vec<Array<B>>) {
    let OptimizerSettings { kind, beta1, beta2, epsilon, weight_decay } = *settings;
    // AdamW reads gradients in their own precision.
    let gradient =
        if kind == Optimizer::AdamW { gradient } else { gradient.cast(weights.element()) };
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
        other => unreachable!("a program with {other} is refused"),
    }
}
