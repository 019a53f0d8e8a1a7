//! Softmaxes over the keys that are seen.

use std::ops::Range;

use burn::tensor::backend::Backend;

use crate::array::{Array, Element};

/// Finite replacement for minus infinity as a log-sum-exp or maximum, where one is subtracted from another. Lower than
/// any score.
pub(in crate::ops) const LOWEST: f64 = -1e30;

/// `rowsum(a b)` in fp32 at least, `[b, heads, s]`, of `[b, s, heads, d]`.
pub(in crate::ops) fn row_products<B: Backend>(a: Array<B>, b: Array<B>) -> Array<B> {
    let sums = (a.widened() * b.widened()).sum_dim(3).swap_dims(1, 2);
    let [batch, heads, length] = [sums.size(0), sums.size(1), sums.size(2)];
    sums.reshape(&[batch, heads, length])
}

/// The softmax of scores `[.., rows, keys]` over the keys that are seen, and the log-sum-exp `[.., rows, 1]`; row `i`
/// sees the keys `seen[i % seen.len()]`, and hidden keys get zero.
pub(in crate::ops) fn softmax<B: Backend>(
    scores: Array<B>,
    seen: &[Range<usize>],
) -> (Array<B>, Array<B>) {
    let scores = hide(scores, seen);
    let dim = scores.rank() - 1;
    let max = scores.clone().max_dim(dim).at_least(LOWEST);
    let exponentials = (scores - max.clone()).exp();
    let sum = exponentials.clone().sum_dim(dim);
    // In a row that sees a key, the largest score alone contributes 1 to the sum.
    let probabilities = exponentials / sum.clone().at_least(1.0);
    (probabilities, max + sum.log())
}

/// The softmax from a known log-sum-exp, which may be over more keys.
pub(in crate::ops) fn probabilities<B: Backend>(
    scores: Array<B>,
    log_sum_exp: Array<B>,
    seen: &[Range<usize>],
) -> Array<B> {
    (hide(scores, seen) - log_sum_exp).exp()
}

/// Scores `[.., rows, keys]` with minus infinity where row `i` does not see the key.
fn hide<B: Backend>(scores: Array<B>, seen: &[Range<usize>]) -> Array<B> {
    let shape = scores.shape();
    let keys = shape[shape.len() - 1];
    if seen.iter().all(|seen| *seen == (0..keys)) {
        return scores;
    }
    let by_query = [scores.num_elements() / (seen.len() * keys), seen.len(), keys];
    let bias = bias(seen, keys, scores.element(), &scores.device());
    let hidden = scores.reshape(&by_query) + bias.reshape(&[1, seen.len(), keys]);
    hidden.reshape(&shape)
}

/// Mask to add to scores, `[queries, keys]`: zero where the key is in `seen[i]` of query `i`, minus infinity elsewhere.
pub(in crate::ops) fn bias<B: Backend>(
    seen: &[Range<usize>],
    keys: usize,
    element: Element,
    device: &B::Device,
) -> Array<B> {
    let of_query = |seen: &Range<usize>| {
        let seen = seen.clone();
        (0..keys).map(move |key| if seen.contains(&key) { 0.0 } else { f64::NEG_INFINITY })
    };
    let values = seen.iter().flat_map(of_query).collect();
    Array::from_f64(values, &[seen.len(), keys], element, device)
}
