//! Rotary position embeddings.

use burn::tensor::backend::Backend;

use crate::array::Array;

/// The first `2 n` features of each row rotated by its position, from cosines and sines `[positions, n]`.
pub(in crate::ops) fn rotate<B: Backend>(x: Array<B>, cos: &Array<B>, sin: &Array<B>) -> Array<B> {
    let (shape, element) = (x.shape(), x.element());
    let (rank, last, half) = (shape.len(), shape.len() - 1, cos.size(1));
    let mut table = vec![1; rank];
    (table[1], table[last]) = (shape[1], half);
    let (cos, sin) = (cos.clone().reshape(&table), sin.clone().reshape(&table));
    let working = cos.element();
    let part = |range| x.narrow(last, range).cast(working);
    let (first, second) = (part(0..half), part(half..2 * half));
    let mut parts = vec![
        (first.clone() * cos.clone() - second.clone() * sin.clone()).cast(element),
        (second * cos + first * sin).cast(element),
    ];
    if 2 * half < shape[last] {
        parts.push(x.narrow(last, 2 * half..shape[last]));
    }
    Array::concat(parts, last)
}
