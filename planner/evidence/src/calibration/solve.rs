//! Least squares with a normal prior, for a few unknowns.

/// Number of standard deviations at which a residual gets half its weight.
const LONG_TAILS: f64 = 2.0;

/// Number of reweighted iterations.
const WEIGHINGS: usize = 10;

/// Posterior distribution of the unknowns.
pub(super) struct Posterior {
    /// The most likely values.
    pub found: Vec<f64>,
    /// Standard deviation of each.
    pub spreads: Vec<f64>,
}

/// The most likely unknowns, with a normal prior about 0 of standard deviations `spreads`. Each row is linearized about
/// `at`: its slopes, and its residual there. Rows have errors of standard deviation `noise`, with long tails.
pub(super) fn posterior(
    rows: &[(Vec<f64>, f64)],
    at: &[f64],
    spreads: &[f64],
    noise: f64,
) -> Posterior {
    let count = at.len();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mut found = at.to_vec();
    let mut precision = Vec::new();
    for _ in 0..WEIGHINGS {
        let mut left: Vec<Vec<f64>> = vec![vec![0.0; count]; count];
        let mut right = vec![0.0; count];
        for (index, spread) in spreads.iter().enumerate() {
            left[index][index] = spread.powi(-2);
        }
        for (slopes, residual) in rows {
            let target = residual + dot(slopes, at);
            let off = (target - dot(slopes, &found)) / noise;
            let weight = noise.powi(-2) / (1.0 + (off / LONG_TAILS).powi(2));
            for (row, slope) in slopes.iter().enumerate() {
                right[row] += weight * slope * target;
                for (column, other) in slopes.iter().enumerate() {
                    left[row][column] += weight * slope * other;
                }
            }
        }
        found = cholesky(left.clone(), right);
        precision = left;
    }
    let unit = |place| (0..count).map(|it| f64::from(u8::from(it == place))).collect();
    let variance = |place| cholesky(precision.clone(), unit(place))[place];
    Posterior { spreads: (0..count).map(|place| variance(place).sqrt()).collect(), found }
}

/// Logarithm of the marginal likelihood of rows over all unknowns, up to a constant that depends on the number of rows.
/// Rows have slopes, and residuals at unknowns of 0.
pub(super) fn log_evidence(rows: &[(Vec<f64>, f64)], spreads: &[f64], noise: f64) -> f64 {
    let covariance = |(one, (slopes, _)): (usize, &(Vec<f64>, f64))| {
        let with = rows.iter().enumerate().map(|(other, (others, _))| {
            let shared = slopes.iter().zip(others).zip(spreads);
            let shared: f64 = shared.map(|((a, b), spread)| a * b * spread * spread).sum();
            shared + if one == other { noise * noise } else { 0.0 }
        });
        with.collect()
    };
    let factor = factored(rows.iter().enumerate().map(covariance).collect());
    let left: Vec<f64> = rows.iter().map(|(_, left)| *left).collect();
    let solved = substituted(&factor, left.clone());
    let square: f64 = left.iter().zip(solved).map(|(a, b)| a * b).sum();
    let log_determinant: f64 = (0..rows.len()).map(|row| 2.0 * factor[row][row].ln()).sum();
    -0.5 * (square + log_determinant)
}

/// Solves a symmetric positive definite system.
fn cholesky(left: Vec<Vec<f64>>, right: Vec<f64>) -> Vec<f64> {
    substituted(&factored(left), right)
}

/// Cholesky factor: the lower triangle with the diagonal.
fn factored(mut left: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    for row in 0..left.len() {
        for column in 0..=row {
            let known: f64 = (0..column).map(|it| left[row][it] * left[column][it]).sum();
            let rest = left[row][column] - known;
            left[row][column] = if row == column {
                rest.max(f64::MIN_POSITIVE).sqrt()
            } else {
                rest / left[column][column]
            };
        }
    }
    left
}

fn substituted(factor: &[Vec<f64>], mut right: Vec<f64>) -> Vec<f64> {
    let count = right.len();
    for row in 0..count {
        let known: f64 = (0..row).map(|it| factor[row][it] * right[it]).sum();
        right[row] = (right[row] - known) / factor[row][row];
    }
    for row in (0..count).rev() {
        let known: f64 = (row + 1..count).map(|it| factor[it][row] * right[it]).sum();
        right[row] = (right[row] - known) / factor[row][row];
    }
    right
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_is_solved() {
        let left = vec![vec![4.0, 2.0, 0.6], vec![2.0, 5.0, 1.0], vec![0.6, 1.0, 3.0]];
        let expected = [1.0, -2.0, 0.5];
        let right =
            left.iter().map(|row| row.iter().zip(expected).map(|(a, b)| a * b).sum()).collect();
        for (found, expected) in cholesky(left, right).into_iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12);
        }
    }

    /// One unknown and one row: the result is their mean, weighted by the inverse of their variances.
    #[test]
    fn a_row_and_a_prior_share_what_is_found() {
        let Posterior { found, spreads } = posterior(&[(vec![1.0], 0.01)], &[0.0], &[0.1], 0.05);
        let weight = 0.05_f64.powi(-2) / (1.0 + ((0.01 - found[0]) / 0.1).powi(2));
        let expected = 0.01 * weight / (weight + 100.0);
        assert!((found[0] - expected).abs() < 1e-6, "{found:?}");
        assert!((spreads[0] - (weight + 100.0).powf(-0.5)).abs() < 1e-6, "{spreads:?}");
    }

    /// One row: its variance is the sum of its unknown's variance and its noise.
    #[test]
    fn how_likely_a_row_is() {
        let found = log_evidence(&[(vec![2.0], 0.3)], &[0.1], 0.05);
        let variance = 0.2_f64.powi(2) + 0.05_f64.powi(2);
        let expected = -0.5 * (0.09 / variance + variance.ln());
        assert!((found - expected).abs() < 1e-12, "{found}");
    }
}
