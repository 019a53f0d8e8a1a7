//! Accuracy of predictions.

use serde::Serialize;

/// Errors of predictions, relative to measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Accuracy {
    /// Number of pairs.
    pub count: usize,
    /// Mean absolute relative error.
    pub mape: f64,
    /// Median absolute relative error.
    pub median_ape: f64,
    /// Largest absolute relative error.
    pub worst_ape: f64,
    /// Mean relative error: positive where predictions are too large.
    pub bias: f64,
    /// Spearman's rank correlation; `None` for fewer than three pairs.
    pub spearman: Option<f64>,
}

impl Accuracy {
    /// The accuracy over pairs of measured and predicted values; measured ones are positive.
    pub fn of(pairs: &[[f64; 2]]) -> Self {
        let mut errors: Vec<f64> =
            pairs.iter().map(|[measured, predicted]| predicted / measured - 1.0).collect();
        let count = errors.len();
        if count == 0 {
            return Self::default();
        }
        let bias = errors.iter().sum::<f64>() / count as f64;
        for error in &mut errors {
            *error = error.abs();
        }
        errors.sort_by(f64::total_cmp);
        Self {
            count,
            mape: errors.iter().sum::<f64>() / count as f64,
            median_ape: f64::midpoint(errors[(count - 1) / 2], errors[count / 2]),
            worst_ape: errors[count - 1],
            bias,
            spearman: spearman(pairs),
        }
    }
}

/// Pearson's correlation of ranks; equal values share the mean of their ranks.
fn spearman(pairs: &[[f64; 2]]) -> Option<f64> {
    if pairs.len() < 3 {
        return None;
    }
    let [measured, predicted] = [0, 1].map(|which| {
        let values: Vec<f64> = pairs.iter().map(|pair| pair[which]).collect();
        ranks(&values)
    });
    let mean = f64::midpoint(pairs.len() as f64, 1.0);
    let sum = |a: &[f64], b: &[f64]| -> f64 {
        a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum()
    };
    let spread = (sum(&measured, &measured) * sum(&predicted, &predicted)).sqrt();
    (spread > 0.0).then(|| sum(&measured, &predicted) / spread)
}

fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut first = 0;
    for equal in order.chunk_by(|a, b| values[*a].total_cmp(&values[*b]).is_eq()) {
        let rank = first as f64 + f64::midpoint(equal.len() as f64, 1.0);
        for place in equal {
            ranks[*place] = rank;
        }
        first += equal.len();
    }
    ranks
}
