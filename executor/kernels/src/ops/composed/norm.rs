//! Normalisations over rows `[rows, width]`, with the notation of `ops::norm`.

use burn::tensor::backend::Backend;
use ir::graph::NormKind;

use crate::array::Array;

/// Statistics of a normalisation, `[rows, 1]` each and fp32 at least.
#[derive(Clone, Debug)]
pub struct Statistics<B: Backend> {
    /// The mean of each row; none for a root-mean-square norm.
    pub mean: Option<Array<B>>,
    /// `1 / sqrt(variance + epsilon)`, or of the mean square.
    pub inverse_deviation: Array<B>,
}

impl<B: Backend> Statistics<B> {
    /// The statistics of a root-mean-square norm over `width` features from their sum of squares, which may
    /// come from several ranks.
    pub fn of_sum_of_squares(sum: Array<B>, width: usize, epsilon: f64) -> Self {
        let inverse_deviation = sum.scale(1.0 / width as f64).shift(epsilon).sqrt().recip();
        Self { mean: None, inverse_deviation }
    }

    fn of(kind: NormKind, x: &Array<B>, epsilon: f64) -> Self {
        if !has_mean(kind) {
            return Self::of_sum_of_squares(sum_of_squares(x.clone()), x.size(1), epsilon);
        }
        let x = x.clone().widened();
        let mean = x.clone().mean_dim(1);
        let variance = (x - mean.clone()).square().mean_dim(1);
        Self { mean: Some(mean), inverse_deviation: variance.shift(epsilon).sqrt().recip() }
    }

    /// `x^`, the rows without mean and divided by their deviation.
    pub(in crate::ops) fn normalised(&self, x: Array<B>) -> Array<B> {
        let x = x.widened();
        let centred = match &self.mean {
            Some(mean) => x - mean.clone(),
            None => x,
        };
        centred * self.inverse_deviation.clone()
    }
}

/// The sum of squares of each row, `[rows, 1]`. Ranks whose rows are parts of longer rows add it up.
pub fn sum_of_squares<B: Backend>(x: Array<B>) -> Array<B> {
    x.widened().square().sum_dim(1)
}

/// `x^ weight + bias` from given statistics.
pub fn normalise<B: Backend>(
    x: Array<B>,
    statistics: &Statistics<B>,
    weight: Option<Array<B>>,
    bias: Option<Array<B>>,
) -> Array<B> {
    let element = x.element();
    let mut y = weighted(statistics.normalised(x), weight);
    if let Some(bias) = bias {
        y = y + as_row(bias);
    }
    y.cast(element)
}

pub(in crate::ops) fn forward<B: Backend>(
    kind: NormKind,
    x: Array<B>,
    weight: Option<Array<B>>,
    bias: Option<Array<B>>,
    epsilon: f64,
) -> (Array<B>, Statistics<B>) {
    let statistics = Statistics::of(kind, &x, epsilon);
    (normalise(x, &statistics, weight, bias), statistics)
}

pub(in crate::ops) fn input_grad<B: Backend>(
    x: Array<B>,
    statistics: &Statistics<B>,
    weight: Option<Array<B>>,
    grad: Array<B>,
) -> Array<B> {
    let (width, element) = (x.size(1), grad.element());
    let normalised = statistics.normalised(x);
    let grad = weighted(grad, weight);
    let projection = (grad.clone() * normalised.clone()).sum_dim(1);
    let grad = if statistics.mean.is_some() { grad.clone() - grad.mean_dim(1) } else { grad };
    through_deviation(grad, normalised, projection, width, statistics).cast(element)
}

pub(in crate::ops) fn weight_grad<B: Backend>(
    x: Array<B>,
    statistics: &Statistics<B>,
    grad: Array<B>,
) -> (Array<B>, Array<B>) {
    let element = grad.element();
    let grad = grad.widened();
    let scale = (grad.clone() * statistics.normalised(x)).sum_dim(0).flatten();
    (scale.cast(element), grad.sum_dim(0).flatten().cast(element))
}

/// Returns whether a norm subtracts the mean of rows.
pub(in crate::ops) fn has_mean(kind: NormKind) -> bool {
    match kind {
        NormKind::LayerNorm => true,
        NormKind::RmsNorm => false,
        NormKind::BatchNorm | NormKind::GroupNorm { .. } => {
            unreachable!("statistics of batches and groups are not over rows")
        }
    }
}

/// The gradient through the division by the deviation: `(g - x^ projection / width) / deviation`.
pub(in crate::ops) fn through_deviation<B: Backend>(
    grad: Array<B>,
    normalised: Array<B>,
    projection: Array<B>,
    width: usize,
    statistics: &Statistics<B>,
) -> Array<B> {
    let along = normalised * projection.scale(1.0 / width as f64);
    (grad - along) * statistics.inverse_deviation.clone()
}

/// `x weight` in fp32 at least.
pub(in crate::ops) fn weighted<B: Backend>(x: Array<B>, weight: Option<Array<B>>) -> Array<B> {
    match weight {
        Some(weight) => x.widened() * as_row(weight),
        None => x.widened(),
    }
}

fn as_row<B: Backend>(parameter: Array<B>) -> Array<B> {
    let width = parameter.num_elements();
    parameter.reshape(&[1, width]).widened()
}
