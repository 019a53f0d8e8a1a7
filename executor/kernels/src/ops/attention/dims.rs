//! Sizes of an attention, and the shapes of its products.

use std::ops::Range;

use super::visibility::Block;
use crate::array::Array;
use crate::ops::BasicKernels;

/// Sizes of queries, keys and values.
pub(in crate::ops) struct Dims {
    pub(in crate::ops) batch: usize,
    pub(in crate::ops) queries: usize,
    pub(in crate::ops) keys: usize,
    pub(in crate::ops) heads: usize,
    pub(in crate::ops) kv_heads: usize,
    pub(in crate::ops) features: usize,
    pub(in crate::ops) value_features: usize,
}

impl Dims {
    pub(in crate::ops) fn new<B: BasicKernels>(q: &Array<B>, k: &Array<B>, v: &Array<B>) -> Self {
        let (q, k, v) = (q.shape(), k.shape(), v.shape());
        assert!(q[0] == k[0] && q[3] == k[3], "queries {q:?} do not fit keys {k:?}");
        assert!(k[..3] == v[..3], "keys {k:?} do not fit values {v:?}");
        assert!(q[2].is_multiple_of(k[2]), "{} heads do not share {} key-value heads", q[2], k[2]);
        Self {
            batch: q[0],
            queries: q[1],
            keys: k[1],
            heads: q[2],
            kv_heads: k[2],
            features: q[3],
            value_features: v[3],
        }
    }

    /// Number of query heads that share a key-value head.
    pub(super) fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// `[b, s, heads, d]` as `[b, kv_heads, group, s, d]`.
    pub(super) fn by_group<B: BasicKernels>(&self, x: Array<B>) -> Array<B> {
        let (rows, features) = (x.size(1), x.size(3));
        x.reshape(&[self.batch, rows, self.kv_heads, self.group(), features])
            .permute(&[0, 2, 3, 1, 4])
    }

    /// Rows `queries` of `[b, kv_heads, group, s, d]` as `[b, kv_heads, group queries, d]`, so that one
    /// product with the keys serves all heads that share them.
    pub(super) fn rows<B: BasicKernels>(&self, x: &Array<B>, queries: &Range<usize>) -> Array<B> {
        let shape = [self.batch, self.kv_heads, self.group() * queries.len(), x.size(4)];
        B::contiguous(x.narrow(3, queries.clone())).reshape(&shape)
    }

    /// `[b, kv_heads, group rows, d]` as `[b, rows, heads, d]`.
    #[expect(clippy::wrong_self_convention, reason = "it is the array that is converted")]
    pub(super) fn from_groups<B: BasicKernels>(&self, x: Array<B>, rows: usize) -> Array<B> {
        let features = x.size(3);
        B::contiguous(x.reshape(&[self.batch, self.heads, rows, features]).swap_dims(1, 2))
    }

    /// The products of queries, which are scaled already, with the keys of a block, `[b, kv_heads, group queries,
    /// keys]`, fp32 at least. Hidden keys are included.
    pub(super) fn products<B: BasicKernels>(
        &self,
        q: &Array<B>,
        k: &Array<B>,
        block: &Block,
    ) -> Array<B> {
        let keys = k.narrow(2, block.keys.clone()).transpose();
        B::matmul(self.rows(q, &block.queries), keys).widened()
    }
}

/// `[b, t, heads, d]` as `[b, heads, t, d]`, and back.
pub(super) fn by_head<B: BasicKernels>(x: Array<B>) -> Array<B> {
    x.swap_dims(1, 2)
}
