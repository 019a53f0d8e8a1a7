//! Attention of queries `[b, s, heads, d]` to keys `[b, t, kv_heads, d]` and values
//! `[b, t, kv_heads, dv]`. Consecutive query heads share a key-value head.
//!
//! ```text
//! S = scale Q K^T,   L = log(sum(e^S)),   P = e^(S - L),   O = P V
//! dV = P^T dO,   dS = P (dO V^T - rowsum(dO O)),   dQ = scale dS K,   dK = scale dS^T Q
//! ```
//!
//! With dropout `O = (P M) V`, `dV = (P M)^T dO` and `dO V^T` becomes `M (dO V^T)`, where `M` is zero or the factor
//! that preserves the mean. The row sums are unchanged: `rowsum(P M (dO V^T)) = rowsum(dO O)`.
//!
//! Keys may be a part of all keys: [`forward`] then returns the attention to that part, [`merge`] joins two parts, and
//! [`input_grad`], given output and log-sum-exp over all keys, returns the gradients of the part. That is ring
//! attention.
//!
//! # Source
//!
//! Dao 2023, *FlashAttention-2*, sections 2 and 3, <https://arxiv.org/abs/2307.08691>; Liu et al. 2023,
//! *Ring Attention*, section 3, <https://arxiv.org/abs/2310.01889>.

pub(in crate::ops) mod blocks;
pub(in crate::ops) mod dims;
mod scoring;
mod softmax;
mod visibility;

pub use blocks::Grads;
pub use scoring::{Bias, Buckets, ProbabilityDropout, Scoring, alibi_slopes};
pub use softmax::{softmax, softmax_grad};
pub use visibility::KeyVisibility;

use super::Kernels;
use super::composed::attention::LOWEST;
use crate::array::Array;

/// The output `[b, s, heads, dv]` and the log-sum-exp of each row of scores, `[b, heads, s]`, fp32 at
/// least. A query that sees no key gets zeros and minus infinity.
pub fn forward<B: Kernels>(
    q: Array<B>,
    k: Array<B>,
    v: Array<B>,
    scoring: &Scoring<B>,
    visibility: KeyVisibility,
) -> (Array<B>, Array<B>) {
    B::attention_forward(q, k, v, scoring, visibility)
}

/// The attention to the union of two disjoint sets of keys, from the output and log-sum-exp of each.
pub fn merge<B: Kernels>(
    one: (Array<B>, Array<B>),
    other: (Array<B>, Array<B>),
) -> (Array<B>, Array<B>) {
    let element = one.0.element();
    let max = one.1.clone().maximum(other.1.clone()).at_least(LOWEST);
    let share = |log_sum_exp: Array<B>| (log_sum_exp - max.clone()).exp();
    let (first, second) = (share(one.1), share(other.1));
    let sum = first.clone() + second.clone();
    let log_sum_exp = max.clone() + sum.clone().log();
    // The part with the larger log-sum-exp contributes 1 to the sum, unless no key was seen in either part.
    let sum = sum.at_least(1.0);
    let part = |output: Array<B>, share: Array<B>| output.widened() * by_row(share / sum.clone());
    let output = part(one.0, first) + part(other.0, second);
    (output.cast(element), log_sum_exp)
}

/// The gradients of queries, keys and values, and of the table of biases where there is one, from output and
/// log-sum-exp over all keys. `k` and `v` may be a part of all keys: then the gradients of queries and table are
/// partial sums, which the caller adds up.
#[expect(
    clippy::too_many_arguments,
    reason = "what the forward was given, put out, and the gradient"
)]
pub fn input_grad<B: Kernels>(
    q: Array<B>,
    k: Array<B>,
    v: Array<B>,
    out: Array<B>,
    log_sum_exp: Array<B>,
    grad: Array<B>,
    scoring: &Scoring<B>,
    visibility: KeyVisibility,
) -> Grads<B> {
    B::attention_input_grad(q, k, v, out, log_sum_exp, grad, scoring, visibility)
}

/// Output and log-sum-exp when each head has a sink: a key of score `sinks[head]` and of value zero, which
/// every query sees. `sinks` is `[heads]`.
pub fn with_sinks<B: Kernels>(
    out: Array<B>,
    log_sum_exp: Array<B>,
    sinks: Array<B>,
) -> (Array<B>, Array<B>) {
    let nothing = Array::zeros(&out.shape(), out.element(), &out.device());
    let sinks = sink_scores(sinks, &log_sum_exp);
    merge((out, log_sum_exp), (nothing, sinks))
}

/// The gradient of the sinks, `[heads]`, from output and log-sum-exp with them.
pub fn sinks_grad<B: Kernels>(
    sinks: Array<B>,
    out: Array<B>,
    log_sum_exp: Array<B>,
    grad: Array<B>,
) -> Array<B> {
    let element = sinks.element();
    let delta = B::row_products(grad, out);
    let probabilities = (sink_scores(sinks, &log_sum_exp) - log_sum_exp).exp();
    (-(probabilities * delta)).sum_dim(2).sum_dim(0).flatten().cast(element)
}

/// `[heads]` as `[b, heads, s]`.
fn sink_scores<B: Kernels>(sinks: Array<B>, log_sum_exp: &Array<B>) -> Array<B> {
    let heads = sinks.num_elements();
    sinks.reshape(&[1, heads, 1]).widened().expand(&log_sum_exp.shape())
}

/// `[b, heads, s]` as `[b, s, heads, 1]`.
fn by_row<B: Kernels>(x: Array<B>) -> Array<B> {
    let shape = x.shape();
    x.swap_dims(1, 2).reshape(&[shape[0], shape[2], shape[1], 1])
}

/// The default scale of scores: one over the square root of the number of features of a head.
pub fn scale<B: Kernels>(query: &Array<B>) -> f64 {
    1.0 / (query.size(query.rank() - 1) as f64).sqrt()
}
