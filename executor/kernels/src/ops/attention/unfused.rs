//! Attention whose scores and probabilities `[b, heads, s, t]` are stored.

use super::dims::{Dims, by_head};
use crate::array::Array;
use crate::ops::BasicKernels;
use crate::ops::composed::attention::LOWEST;

/// `scale Q K^T`, `[b, heads, s, t]`. Keys that a query must not see are masked by
/// [`Visibility::hide`](super::Visibility::hide).
pub fn scores<B: BasicKernels>(q: Array<B>, k: Array<B>, scale: f64) -> Array<B> {
    let dims = Dims::new(&q, &k, &k);
    let q = dims.all_rows(q.scale(scale));
    let scores = B::matmul(q, by_head(k).transpose());
    scores.reshape(&[dims.batch, dims.heads, dims.queries, dims.keys])
}

/// The gradients of queries and keys from the gradient of the scores.
pub fn scores_grad<B: BasicKernels>(
    q: Array<B>,
    k: Array<B>,
    grad: Array<B>,
    scale: f64,
) -> (Array<B>, Array<B>) {
    let dims = Dims::new(&q, &k, &k);
    let grad = dims.joined(grad.scale(scale));
    let q_grad = dims.from_groups(B::matmul(grad.clone(), by_head(k)), dims.queries);
    (q_grad, by_head(B::matmul(grad.transpose(), dims.all_rows(q))))
}

/// `P V`, `[b, s, heads, dv]`, from probabilities `[b, heads, s, t]`.
pub fn values<B: BasicKernels>(p: Array<B>, v: Array<B>) -> Array<B> {
    let dims = Dims::of_probabilities(&p, &v);
    dims.from_groups(B::matmul(dims.joined(p), by_head(v)), dims.queries)
}

/// The gradients of probabilities and values from the gradient of the output.
pub fn values_grad<B: BasicKernels>(
    p: Array<B>,
    v: Array<B>,
    grad: Array<B>,
) -> (Array<B>, Array<B>) {
    let dims = Dims::of_probabilities(&p, &v);
    let (shape, grad) = (p.shape(), dims.all_rows(grad));
    let v_grad = B::matmul(dims.joined(p).transpose(), grad.clone());
    (B::matmul(grad, by_head(v).transpose()).reshape(&shape), by_head(v_grad))
}

/// `e^x / sum(e^x)` along dimension `dim`; zeros where all of `x` is minus infinity.
pub fn softmax<B: BasicKernels>(x: Array<B>, dim: usize) -> Array<B> {
    let element = x.element();
    let x = x.widened();
    let exponentials = (x.clone() - x.max_dim(dim).at_least(LOWEST)).exp();
    // The largest alone adds one to the sum, unless all are minus infinity.
    let sum = exponentials.clone().sum_dim(dim).at_least(1.0);
    (exponentials / sum).cast(element)
}

/// The gradient of the input of a softmax from its output `y`: `y (grad - sum(y grad))`.
pub fn softmax_grad<B: BasicKernels>(y: Array<B>, grad: Array<B>, dim: usize) -> Array<B> {
    let element = grad.element();
    let (y, grad) = (y.widened(), grad.widened());
    let along = (y.clone() * grad.clone()).sum_dim(dim);
    (y * (grad - along)).cast(element)
}

impl Dims {
    fn of_probabilities<B: BasicKernels>(p: &Array<B>, v: &Array<B>) -> Self {
        let (p, v) = (p.shape(), v.shape());
        assert!(p[0] == v[0] && p[3] == v[1], "probabilities {p:?} do not fit values {v:?}");
        assert!(p[1].is_multiple_of(v[2]), "{} heads do not share {} key-value heads", p[1], v[2]);
        Self {
            batch: p[0],
            queries: p[2],
            keys: p[3],
            heads: p[1],
            kv_heads: v[2],
            features: v[3],
            value_features: v[3],
        }
    }

    /// `[b, s, heads, d]` as `[b, kv_heads, group s, d]`.
    fn all_rows<B: BasicKernels>(&self, x: Array<B>) -> Array<B> {
        self.rows(&self.by_group(x), &(0..self.queries))
    }

    /// `[b, heads, s, t]` as `[b, kv_heads, group s, t]`.
    fn joined<B: BasicKernels>(&self, x: Array<B>) -> Array<B> {
        x.reshape(&[self.batch, self.kv_heads, self.group() * self.queries, self.keys])
    }
}
