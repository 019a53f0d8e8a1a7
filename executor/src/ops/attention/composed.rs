//! Softmaxes over the keys that are seen, in burn's operations.

use std::ops::Range;

use super::LOWEST;
use super::visibility::bias;
use crate::array::Array;
use crate::ops::Kernels;

/// What [`Kernels::attention_softmax`] gives.
pub(in crate::ops) fn softmax<B: Kernels>(
    scores: Array<B>,
    seen: &[Range<usize>],
) -> (Array<B>, Array<B>) {
    let scores = hide(scores, seen);
    let dim = scores.rank() - 1;
    let max = scores.clone().max_dim(dim).at_least(LOWEST);
    let exponentials = (scores - max.clone()).exp();
    let sum = exponentials.clone().sum_dim(dim);
    // The largest score alone adds one to the sum of a row that sees a key.
    let probabilities = exponentials / sum.clone().at_least(1.0);
    (probabilities, max + sum.log())
}

/// What [`Kernels::attention_probabilities`] gives.
pub(in crate::ops) fn probabilities<B: Kernels>(
    scores: Array<B>,
    log_sum_exp: Array<B>,
    seen: &[Range<usize>],
) -> Array<B> {
    (hide(scores, seen) - log_sum_exp).exp()
}

/// Scores `[.., rows, keys]` with minus infinity where row `i` does not see the key.
fn hide<B: Kernels>(scores: Array<B>, seen: &[Range<usize>]) -> Array<B> {
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
