//! Statistics of measured times: quantiles, means, and linear fits.

/// Share of sorted times below the median.
pub const MEDIAN: f64 = 0.5;

/// Share of sorted times below the lower quartile, which other programs on the machine do not disturb as long as they
/// run for less than three quarters of the time.
pub const LOWER_QUARTILE: f64 = 0.25;

/// The value below which a share of `values` lies; 0 where there are none.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let sorted = sorted(values);
    let index = (sorted.len().saturating_sub(1) as f64 * share).round() as usize;
    sorted.get(index).copied().unwrap_or(0.0)
}

/// Mean of the middle half of `values`; 0 where there are none. The time of a whole is the sum of the means of its
/// parts, not of their medians or quartiles; and disturbances by other programs are in the outer quarters.
pub fn middle_mean(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    let outer = sorted.len() / 4;
    let middle = &sorted[outer..sorted.len() - outer];
    middle.iter().sum::<f64>() / middle.len().max(1) as f64
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// A time, and the quantities on which it depends linearly.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample<const N: usize> {
    /// Quantities, each with its own cost.
    pub quantities: [f64; N],
    /// Part of the time that is known, in seconds.
    pub known: f64,
    /// Time in seconds.
    pub time: f64,
}

/// Fitted costs of the quantities of samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit<const N: usize> {
    /// Seconds per unit of each quantity; not negative.
    pub costs: [f64; N],
    /// Mean absolute relative error.
    pub mean_error: f64,
}

/// Number of median errors beyond which an error counts linearly, not squared.
///
/// # Source
///
/// Huber 1981, *Robust Statistics*: 1.345 standard deviations, each of which is 1.4826 median errors.
const HUBER: f64 = 1.345 * 1.4826;

/// Number of reweighting rounds; errors have settled by then.
const ROUNDS: usize = 12;

/// Least time of a sample, in seconds.
const LEAST_TIME: f64 = 1e-9;

/// Pivot below which quantities count as linearly dependent.
const LEAST_PIVOT: f64 = 1e-12;

/// Nonnegative costs that minimise the sum of squared relative errors of the samples, with less weight for outliers. Of
/// linearly dependent quantities, the first takes the whole cost. With `N` quantities it solves `2^N` small systems.
///
/// ```text
/// minimise  sum w_i ((q_i . c + known_i) / t_i - 1)^2,   c >= 0,   w_i = min(1, 2 m / |e_i|),   m: median of |e|
/// ```
pub fn fit<const N: usize>(samples: &[Sample<N>]) -> Fit<N> {
    let rows: Vec<Row<N>> = samples.iter().map(Row::of).collect();
    let mut weights = vec![1.0; rows.len()];
    let mut fit = Fit { costs: [0.0; N], mean_error: 0.0 };
    for _ in 0..ROUNDS {
        fit.costs = not_negative(&rows, &weights);
        let errors: Vec<f64> = rows.iter().map(|row| row.error(&fit.costs).abs()).collect();
        let bound = (quantile(&errors, MEDIAN) * HUBER).max(f64::EPSILON);
        fit.mean_error = errors.iter().sum::<f64>() / errors.len().max(1) as f64;
        weights = errors.iter().map(|error| (bound / error.max(bound)).min(1.0)).collect();
    }
    fit
}

/// A sample relative to its time: quantities, and the unknown share.
struct Row<const N: usize> {
    quantities: [f64; N],
    rest: f64,
}

impl<const N: usize> Row<N> {
    fn of(sample: &Sample<N>) -> Self {
        let time = sample.time.max(LEAST_TIME);
        Self { quantities: sample.quantities.map(|it| it / time), rest: 1.0 - sample.known / time }
    }

    /// Relative error of costs.
    fn error(&self, costs: &[f64; N]) -> f64 {
        self.quantities.iter().zip(costs).map(|(a, b)| a * b).sum::<f64>() - self.rest
    }
}

/// Best nonnegative costs for one set of weights: the best over all subsets of quantities with positive costs.
fn not_negative<const N: usize>(rows: &[Row<N>], weights: &[f64]) -> [f64; N] {
    let mut best = (f64::INFINITY, [0.0; N]);
    for subset in 1_u32..1 << N {
        let chosen: Vec<usize> = (0..N).filter(|it| subset >> it & 1 == 1).collect();
        let Some(solved) = solve(rows, weights, &chosen) else { continue };
        if solved.iter().any(|cost| *cost < 0.0) {
            continue;
        }
        let mut costs = [0.0; N];
        chosen.iter().zip(&solved).for_each(|(index, cost)| costs[*index] = *cost);
        let loss = |(row, weight): (&Row<N>, &f64)| weight * row.error(&costs).powi(2);
        let loss: f64 = rows.iter().zip(weights).map(loss).sum();
        // Dependent quantities differ by rounding only, as do errors of zero.
        let loss = loss.max(LEAST_PIVOT.powi(2));
        if loss < best.0 * (1.0 - LEAST_PIVOT) {
            best = (loss, costs);
        }
    }
    best.1
}

/// Least squares of the chosen quantities by their normal equations, scaled by the sizes of quantities; `None` where
/// the samples do not determine the costs.
fn solve<const N: usize>(rows: &[Row<N>], weights: &[f64], chosen: &[usize]) -> Option<Vec<f64>> {
    let n = chosen.len();
    let size =
        |index: &usize| rows.iter().map(|row| row.quantities[*index].powi(2)).sum::<f64>().sqrt();
    let sizes: Vec<f64> = chosen.iter().map(size).collect();
    if sizes.iter().any(|size| *size <= 0.0) {
        return None;
    }
    let mut system = vec![vec![0.0; n + 1]; n];
    for (row, weight) in rows.iter().zip(weights) {
        let scaled: Vec<f64> =
            chosen.iter().zip(&sizes).map(|(it, size)| row.quantities[*it] / size).collect();
        for i in 0..n {
            for j in 0..n {
                system[i][j] += weight * scaled[i] * scaled[j];
            }
            system[i][n] += weight * scaled[i] * row.rest;
        }
    }
    for pivot in 0..n {
        let largest = (pivot..n)
            .max_by(|a, b| system[*a][pivot].abs().total_cmp(&system[*b][pivot].abs()))?;
        system.swap(pivot, largest);
        let divisor = system[pivot][pivot];
        if divisor.abs() < LEAST_PIVOT {
            return None;
        }
        let of_pivot = system[pivot].clone();
        for (index, row) in system.iter_mut().enumerate() {
            if index != pivot {
                let factor = row[pivot] / divisor;
                row.iter_mut().zip(&of_pivot).for_each(|(value, other)| *value -= factor * other);
            }
        }
    }
    Some((0..n).map(|i| system[i][n] / system[i][i] / sizes[i]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_through_outliers() {
        for disturbed in 0..=20 {
            let sample = |index: u32| {
                let bytes = f64::from(1_u32 << index);
                let time = 2e-5 + 1e-9 * bytes;
                let time = if disturbed == index { time * 10.0 } else { time };
                Sample { quantities: [1.0, 7.0, bytes], known: 0.0, time }
            };
            let fit = fit(&(0..20).map(sample).collect::<Vec<_>>());
            let most = if disturbed == 20 { 1e-6 } else { 0.02 };
            assert!((fit.costs[0] / 2e-5 - 1.0).abs() < most, "{disturbed}: {fit:?}");
            // Grows in proportion to the first quantity.
            assert!(fit.costs[1] == 0.0, "{disturbed}: {fit:?}");
            assert!((fit.costs[2] / 1e-9 - 1.0).abs() < most, "{disturbed}: {fit:?}");
            assert!(disturbed < 20 || fit.mean_error < 1e-6, "{fit:?}");
        }
    }

    #[test]
    fn nothing_costs_less_than_nothing() {
        let sample = |x: f64| Sample { quantities: [1.0, 0.0, x], known: 0.0, time: 10.0 - x };
        let fit = fit(&[1.0, 2.0, 3.0, 4.0].map(sample));
        assert!(fit.costs.iter().all(|cost| *cost >= 0.0) && fit.costs[2] == 0.0, "{fit:?}");
    }
}
