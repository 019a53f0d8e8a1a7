//! Normalisations over rows `[rows, width]`, and over the channels of images `[b, c, h, w]`.
//!
//! ```text
//! x^ = (x - mean) / sqrt(variance + epsilon)
//! y  = x^ weight + bias
//! dx = (g - mean(g) - x^ mean(g x^)) / sqrt(variance + epsilon),   g = dy weight
//! ```
//!
//! A root-mean-square norm has no mean to subtract, so the terms `mean` and `mean(g)` are absent.

use ir::graph::NormKind;

use super::Kernels;
pub use super::composed::norm::{Statistics, normalise, sum_of_squares};
use super::composed::norm::{has_mean, through_deviation, weighted};
use crate::array::Array;

/// The normalised rows, and their statistics. `weight` and `bias` are `[width]`.
pub fn forward<B: Kernels>(
    kind: NormKind,
    x: Array<B>,
    weight: Option<Array<B>>,
    bias: Option<Array<B>>,
    epsilon: f64,
) -> (Array<B>, Statistics<B>) {
    B::norm(kind, x, weight, bias, epsilon)
}

/// The gradient of the rows.
pub fn input_grad<B: Kernels>(
    kind: NormKind,
    x: Array<B>,
    statistics: &Statistics<B>,
    weight: Option<Array<B>>,
    grad: Array<B>,
) -> Array<B> {
    assert_eq!(statistics.mean.is_some(), has_mean(kind), "statistics of another norm");
    B::norm_input_grad(x, statistics, weight, grad)
}

/// The gradients of scale and shift, `[width]` each.
pub fn weight_grad<B: Kernels>(
    kind: NormKind,
    x: Array<B>,
    statistics: &Statistics<B>,
    grad: Array<B>,
) -> (Array<B>, Array<B>) {
    assert_eq!(statistics.mean.is_some(), has_mean(kind), "statistics of another norm");
    B::norm_weight_grad(x, statistics, grad)
}

/// `sum(g x^)` of each row, `[rows, 1]`. Ranks whose rows are parts of longer rows add it up for
/// [`input_grad_of_projection`].
pub fn projection<B: Kernels>(
    x: Array<B>,
    statistics: &Statistics<B>,
    weight: Option<Array<B>>,
    grad: Array<B>,
) -> Array<B> {
    (weighted(grad, weight) * statistics.normalised(x)).sum_dim(1)
}

/// The gradient of parts of rows of `width` features under a root-mean-square norm, from the projection
/// of the whole rows.
pub fn input_grad_of_projection<B: Kernels>(
    x: Array<B>,
    statistics: &Statistics<B>,
    weight: Option<Array<B>>,
    grad: Array<B>,
    projection: Array<B>,
    width: usize,
) -> Array<B> {
    let element = grad.element();
    let grad = weighted(grad, weight);
    through_deviation(grad, statistics.normalised(x), projection, width, statistics).cast(element)
}

/// Each channel of images `[b, c, h, w]` normalised over batch and space, and its statistics, `[c, 1]`. `weight` and
/// `bias` are `[c]`.
pub fn batch_norm_forward<B: Kernels>(
    x: Array<B>,
    weight: Option<Array<B>>,
    bias: Option<Array<B>>,
    epsilon: f64,
) -> (Array<B>, Statistics<B>) {
    let (shape, element) = (x.shape(), x.element());
    let x = channel_rows(x);
    let (y, statistics) = forward(NormKind::LayerNorm, x, None, None, epsilon);
    let mut y = y.widened();
    if let Some(weight) = weight {
        y = y * as_column(weight);
    }
    if let Some(bias) = bias {
        y = y + as_column(bias);
    }
    (images(y, &shape).cast(element), statistics)
}

/// The gradient of the input of [`batch_norm_forward`].
pub fn batch_norm_input_grad<B: Kernels>(
    x: Array<B>,
    statistics: &Statistics<B>,
    weight: Option<Array<B>>,
    grad: Array<B>,
) -> Array<B> {
    let shape = x.shape();
    let mut grad = channel_rows(grad);
    if let Some(weight) = weight {
        let element = grad.element();
        grad = (grad.widened() * as_column(weight)).cast(element);
    }
    images(input_grad(NormKind::LayerNorm, channel_rows(x), statistics, None, grad), &shape)
}

/// The gradients of scale and shift of each channel, `[c]`.
pub fn batch_norm_weight_grad<B: Kernels>(
    x: Array<B>,
    statistics: &Statistics<B>,
    grad: Array<B>,
) -> (Array<B>, Array<B>) {
    let element = grad.element();
    let grad = channel_rows(grad).widened();
    let scale = (grad.clone() * statistics.normalised(channel_rows(x))).sum_dim(1).flatten();
    (scale.cast(element), grad.sum_dim(1).flatten().cast(element))
}

fn as_column<B: Kernels>(parameter: Array<B>) -> Array<B> {
    let width = parameter.num_elements();
    parameter.reshape(&[width, 1]).widened()
}

/// Images `[b, c, h, w]` as rows `[c, b h w]`.
fn channel_rows<B: Kernels>(x: Array<B>) -> Array<B> {
    let channels = x.size(1);
    let width = x.num_elements() / channels;
    x.swap_dims(0, 1).reshape(&[channels, width])
}

/// The inverse of [`channel_rows`].
fn images<B: Kernels>(rows: Array<B>, shape: &[usize]) -> Array<B> {
    rows.reshape(&[shape[1], shape[0], shape[2], shape[3]]).swap_dims(0, 1)
}
