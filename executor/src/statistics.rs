//! Fits of measured times, and what stands for many of them.

/// The middle of sorted times.
pub(crate) const MEDIAN: f64 = 0.5;

/// Where sorted times stand that other programs on the machine did not disturb, as long as these run for
/// less than three quarters of the time.
pub(crate) const LOWER_QUARTILE: f64 = 0.25;

/// The value below which a share of `values` lies; 0 where there are none.
pub(crate) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let index = (sorted.len().saturating_sub(1) as f64 * share).round() as usize;
    sorted.get(index).copied().unwrap_or(0.0)
}

/// The mean of the middle half of `values`; 0 where there are none. What a whole takes is the sum of the means of
/// its parts, not of their medians or quartiles; and the outer quarters are where other programs disturbed.
pub(crate) fn middle_mean(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let outer = sorted.len() / 4;
    let middle = &sorted[outer..sorted.len() - outer];
    middle.iter().sum::<f64>() / middle.len().max(1) as f64
}

/// A time and what it grows with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    /// Quantities, each of which takes its share of the time.
    pub(crate) quantities: Vec<f64>,
    /// Seconds.
    pub(crate) time: f64,
}

/// What the quantities of samples cost.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fit {
    /// Seconds for one of each quantity; none is negative.
    pub(crate) costs: Vec<f64>,
    /// The mean of the absolute relative errors.
    pub(crate) mean_error: f64,
}

/// Errors beyond this many times the median error count as much as their size, not its square.
///
/// # Source
///
/// Huber 1981, *Robust Statistics*: 1.345 standard deviations, which are 1.4826 median errors.
const HUBER: f64 = 1.345 * 1.4826;

/// Rounds of weights; errors have settled by then.
const ROUNDS: usize = 12;

/// Samples of less than no time at all are not.
const LEAST_TIME: f64 = 1e-9;

/// The costs, none negative, with which the sum of the samples' relative errors, squared but for
/// outliers, is least. With `k` quantities it solves `2^k` small systems.
///
/// ```text
/// minimise  sum w_i ((q_i . c) / t_i - 1)^2,   c >= 0,   w_i = min(1, 2 m / |e_i|),   m: median of |e|
/// ```
pub(crate) fn fit(samples: &[Sample]) -> Fit {
    let width = samples.first().map_or(0, |sample| sample.quantities.len());
    let relative = |sample: &Sample| -> Vec<f64> {
        sample.quantities.iter().map(|it| it / sample.time.max(LEAST_TIME)).collect()
    };
    let rows: Vec<Vec<f64>> = samples.iter().map(relative).collect();
    let mut weights = vec![1.0; rows.len()];
    let mut fit = Fit { costs: vec![0.0; width], mean_error: 0.0 };
    for _ in 0..ROUNDS {
        fit.costs = not_negative(&rows, &weights, width);
        let errors: Vec<f64> = rows.iter().map(|row| (dot(row, &fit.costs) - 1.0).abs()).collect();
        let bound = (quantile(&errors, MEDIAN) * HUBER).max(f64::EPSILON);
        fit.mean_error = errors.iter().sum::<f64>() / errors.len().max(1) as f64;
        weights = errors.iter().map(|error| (bound / error.max(bound)).min(1.0)).collect();
    }
    fit
}

/// The best costs for one set of weights: that of the subsets of quantities that cost anything.
fn not_negative(rows: &[Vec<f64>], weights: &[f64], width: usize) -> Vec<f64> {
    let mut best = (f64::INFINITY, vec![0.0; width]);
    for subset in 0u32..1 << width {
        let chosen: Vec<usize> = (0..width).filter(|it| subset >> it & 1 == 1).collect();
        let Some(solved) = solve(rows, weights, &chosen) else { continue };
        if solved.iter().any(|cost| *cost < 0.0) {
            continue;
        }
        let mut costs = vec![0.0; width];
        chosen.iter().zip(&solved).for_each(|(index, cost)| costs[*index] = *cost);
        let loss = |(row, weight): (&Vec<f64>, &f64)| weight * (dot(row, &costs) - 1.0).powi(2);
        let loss: f64 = rows.iter().zip(weights).map(loss).sum();
        if loss < best.0 {
            best = (loss, costs);
        }
    }
    best.1
}

/// The least squares of the chosen quantities by their normal equations, scaled so that their sizes do not
/// matter; none where they do not determine their costs.
fn solve(rows: &[Vec<f64>], weights: &[f64], chosen: &[usize]) -> Option<Vec<f64>> {
    let n = chosen.len();
    let size = |index: &usize| rows.iter().map(|row| row[*index] * row[*index]).sum::<f64>().sqrt();
    let sizes: Vec<f64> = chosen.iter().map(size).collect();
    if sizes.iter().any(|size| *size <= 0.0) {
        return None;
    }
    let mut system = vec![vec![0.0; n + 1]; n];
    for (row, weight) in rows.iter().zip(weights) {
        let scaled: Vec<f64> =
            chosen.iter().zip(&sizes).map(|(it, size)| row[*it] / size).collect();
        for i in 0..n {
            for j in 0..n {
                system[i][j] += weight * scaled[i] * scaled[j];
            }
            system[i][n] += weight * scaled[i];
        }
    }
    for pivot in 0..n {
        let largest = (pivot..n)
            .max_by(|a, b| system[*a][pivot].abs().total_cmp(&system[*b][pivot].abs()))?;
        system.swap(pivot, largest);
        let divisor = system[pivot][pivot];
        if divisor.abs() < 1e-12 {
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

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(costs: [f64; 2], disturbed: Option<usize>) -> Vec<Sample> {
        let sample = |index: usize| {
            let bytes = f64::from(1u32 << index);
            let time = costs[0] + costs[1] * bytes;
            let time = if disturbed == Some(index) { time * 10.0 } else { time };
            Sample { quantities: vec![1.0, bytes], time }
        };
        (0..20).map(sample).collect()
    }

    #[test]
    fn a_line_is_found_again() {
        let fit = fit(&samples([2e-5, 1e-9], None));
        assert!((fit.costs[0] / 2e-5 - 1.0).abs() < 1e-6, "{fit:?}");
        assert!((fit.costs[1] / 1e-9 - 1.0).abs() < 1e-6, "{fit:?}");
        assert!(fit.mean_error < 1e-6, "{fit:?}");
    }

    #[test]
    fn an_outlier_moves_it_little() {
        for disturbed in 0..20 {
            let fit = fit(&samples([2e-5, 1e-9], Some(disturbed)));
            assert!((fit.costs[0] / 2e-5 - 1.0).abs() < 0.02, "{disturbed}: {fit:?}");
        }
    }

    #[test]
    fn nothing_costs_less_than_nothing() {
        let sample = |x: f64| Sample { quantities: vec![1.0, x], time: 10.0 - x };
        let fit = fit(&[1.0, 2.0, 3.0, 4.0].map(sample));
        assert!(fit.costs.iter().all(|cost| *cost >= 0.0) && fit.costs[1] == 0.0, "{fit:?}");
    }
}
