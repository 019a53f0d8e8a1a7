//! Attention by products of matrices, one block of queries at a time; supports every scoring.

use super::dims::{Dims, by_head};
use super::{KeyVisibility, Scoring};
use crate::array::{Array, ElementExt};
use crate::ops::BasicKernels;
use crate::ops::composed::attention::LOWEST;

/// [`attention::forward`](super::forward).
pub(in crate::ops) fn forward<B: BasicKernels>(
    q: Array<B>,
    k: Array<B>,
    v: Array<B>,
    scoring: &Scoring<B>,
    visibility: KeyVisibility,
) -> (Array<B>, Array<B>) {
    let (element, statistics, device) = (q.element(), q.element().widened(), q.device());
    let dims = Dims::new(&q, &k, &v);
    let (q, k, v) = (dims.by_group(q.scale(scoring.scale)), by_head(k), by_head(v));
    let (mut outputs, mut log_sum_exps) = (Vec::new(), Vec::new());
    for block in visibility.blocks(dims.queries, dims.keys) {
        let rows = block.queries.len();
        let (output, log_sum_exp) = if block.keys.is_empty() {
            let shape = [dims.batch, rows, dims.heads, dims.value_features];
            let nothing = Array::zeros(&[dims.batch, dims.heads, rows], statistics, &device);
            (Array::zeros(&shape, element, &device), nothing.shift(f64::NEG_INFINITY))
        } else {
            let products = dims.products(&q, &k, &block);
            let (scores, _) = scoring.scores(products, &dims, &visibility, &block);
            let (probabilities, log_sum_exp) = B::attention_softmax(scores, &block.seen);
            let mask = scoring.dropout_mask(&dims, &visibility, &block, &probabilities);
            let probabilities = dropped(probabilities, mask.as_ref());
            let values = v.narrow(2, block.keys.clone());
            let output = dims.from_groups(B::matmul(probabilities.cast(element), values), rows);
            (output, log_sum_exp.reshape(&[dims.batch, dims.heads, rows]))
        };
        outputs.push(output);
        log_sum_exps.push(log_sum_exp);
    }
    (Array::concat(outputs, 1), Array::concat(log_sum_exps, 2))
}

/// [`attention::input_grad`](super::input_grad).
#[expect(
    clippy::too_many_arguments,
    reason = "what the forward was given, put out, and the gradient"
)]
pub(in crate::ops) fn input_grad<B: BasicKernels>(
    q: Array<B>,
    k: Array<B>,
    v: Array<B>,
    out: Array<B>,
    log_sum_exp: Array<B>,
    grad: Array<B>,
    scoring: &Scoring<B>,
    visibility: KeyVisibility,
) -> Grads<B> {
    let (element, device) = (q.element(), q.device());
    let dims = Dims::new(&q, &k, &v);
    // In row-major order, [b, heads, s] is [b, kv_heads, group, s].
    let grouped = |rows: Array<B>| {
        let shape = [dims.batch, dims.kv_heads, dims.group(), dims.queries, 1];
        B::contiguous(rows).reshape(&shape)
    };
    let delta = B::row_products(grad.clone(), out);
    let (delta, log_sum_exp) = (grouped(delta), grouped(log_sum_exp.at_least(LOWEST)));
    let (q, grad) = (dims.by_group(q.scale(scoring.scale)), dims.by_group(grad));
    let (k, v) = (by_head(k), by_head(v));
    let mut table_grad = None;
    let mut q_grads = Vec::new();
    let mut k_grad = Array::zeros(&k.shape(), element.widened(), &device);
    let mut v_grad = Array::zeros(&v.shape(), element.widened(), &device);
    for block in visibility.blocks(dims.queries, dims.keys) {
        let rows = block.queries.len();
        if block.keys.is_empty() {
            let shape = [dims.batch, rows, dims.heads, dims.features];
            q_grads.push(Array::zeros(&shape, element, &device));
            continue;
        }
        let of_block = |x: &Array<B>| dims.rows(x, &block.queries);
        let products = dims.products(&q, &k, &block);
        let (scores, slope) = scoring.scores(products, &dims, &visibility, &block);
        let log_sum_exp = of_block(&log_sum_exp);
        let probabilities = B::attention_probabilities(scores, log_sum_exp, &block.seen);
        let (q, grad) = (of_block(&q), of_block(&grad));
        let (k, v) = (k.narrow(2, block.keys.clone()), v.narrow(2, block.keys.clone()));
        let mask = scoring.dropout_mask(&dims, &visibility, &block, &probabilities);
        let weights = dropped(probabilities.clone(), mask.as_ref());
        let v_part = B::matmul(weights.cast(element).transpose(), grad.clone());
        let probability_grad = dropped(B::matmul(grad, v.transpose()).widened(), mask.as_ref());
        let delta = of_block(&delta);
        let score_grad = B::attention_score_grad(probabilities, probability_grad, delta);
        table_grad = scoring.with_table_grad(table_grad, &score_grad, &dims, &visibility, &block);
        let score_grad = match slope {
            Some(slope) => score_grad * slope,
            None => score_grad,
        };
        let score_grad = score_grad.cast(element);
        let k_part = B::matmul(score_grad.clone().transpose(), q);
        q_grads.push(dims.from_groups(B::matmul(score_grad, k).scale(scoring.scale), rows));
        k_grad = B::add_at(k_grad, 2, block.keys.start, k_part.widened());
        v_grad = B::add_at(v_grad, 2, block.keys.start, v_part.widened());
    }
    let [k_grad, v_grad] = [k_grad, v_grad].map(|x| B::contiguous(by_head(x)).cast(element));
    let table = table_grad.map(|grad| grad.cast(element));
    Grads { query: Array::concat(q_grads, 1), key: k_grad, value: v_grad, table }
}

/// `x` times the dropout mask, where there is one.
fn dropped<B: BasicKernels>(x: Array<B>, mask: Option<&Array<B>>) -> Array<B> {
    match mask {
        Some(mask) => x * mask.clone(),
        None => x,
    }
}

/// Gradients of the inputs of attention.
#[derive(Clone, Debug)]
pub struct Grads<B: BasicKernels> {
    /// Gradient of the queries.
    pub query: Array<B>,
    /// Gradient of the keys.
    pub key: Array<B>,
    /// Gradient of the values.
    pub value: Array<B>,
    /// Gradient of the table of biases.
    pub table: Option<Array<B>>,
}
