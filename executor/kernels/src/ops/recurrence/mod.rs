//! Recurrences over the sequence, computed chunk by chunk: within a chunk by products of matrices, between chunks by a
//! state.
//!
//! Arrays of a chunk of `c` positions are `[outer, heads, c, features]`. The outer dimension is that of the sequences
//! and, where there are any, of the groups of heads.

mod chunks;
pub mod delta_rule;
pub mod state_space;

use super::Kernels;
use crate::array::Array;

/// `log(1 + e^x)`.
fn softplus<B: Kernels>(x: Array<B>) -> Array<B> {
    let positive = x.clone().relu();
    let magnitude = positive.clone() + (-x).relu();
    positive + (-magnitude).exp().log_1p()
}

/// `[b, s, outer, heads, features]` as `[b outer, heads, s, features]`.
fn by_head<B: Kernels>(x: Array<B>) -> Array<B> {
    let shape = x.shape();
    let [batch, length, outer, heads, features] = shape[..] else {
        panic!("an input of a recurrence has five dimensions, not {shape:?}")
    };
    x.permute(&[0, 2, 3, 1, 4]).reshape(&[batch * outer, heads, length, features])
}

/// The inverse of [`by_head`].
fn by_position<B: Kernels>(x: Array<B>, batch: usize) -> Array<B> {
    let [all, heads, length, features] = [0, 1, 2, 3].map(|dim| x.size(dim));
    let x = x.reshape(&[batch, all / batch, heads, length, features]);
    x.permute(&[0, 3, 1, 2, 4])
}

/// A parameter `[outer, heads]` as `[b outer, heads, 1, 1]`.
fn of_heads<B: Kernels>(parameter: Array<B>, batch: usize) -> Array<B> {
    let [outer, heads] = [parameter.size(0), parameter.size(1)];
    let repeated = parameter.widened().reshape(&[1, outer, heads]).expand(&[batch, outer, heads]);
    repeated.reshape(&[batch * outer, heads, 1, 1])
}

/// The gradient of a parameter of heads from that of each position, `[b outer, heads, s, 1]`.
fn summed_by_head<B: Kernels>(x: Array<B>, batch: usize, like: &Array<B>) -> Array<B> {
    let [all, heads] = [x.size(0), x.size(1)];
    let by_sequence = x.sum_dim(2).reshape(&[batch, all / batch * heads]);
    by_sequence.sum_dim(0).reshape(&like.shape()).cast(like.element())
}

/// Sums over the features of each position, `[.., c, 1]`.
fn row_sums<B: Kernels>(x: Array<B>) -> Array<B> {
    let last = x.rank() - 1;
    x.sum_dim(last)
}

/// The sum over positions and features, `[.., 1, 1]`.
fn matrix_sums<B: Kernels>(x: Array<B>) -> Array<B> {
    row_sums(x).sum_dim(2)
}

/// Gradients of all positions from those of each chunk, the last chunk first.
fn joined<B: Kernels, const N: usize>(parts: Vec<[Array<B>; N]>) -> [Array<B>; N] {
    let mut all = [const { Vec::new() }; N];
    for part in parts.into_iter().rev() {
        all.iter_mut().zip(part).for_each(|(all, one)| all.push(one));
    }
    all.map(|parts| Array::concat(parts, 2))
}

/// An array of states `[outer, heads, rows, columns]` before the first position.
fn no_state<B: Kernels>(like: &Array<B>, rows: usize, columns: usize) -> Array<B> {
    let shape = [like.size(0), like.size(1), rows, columns];
    Array::zeros(&shape, like.element(), &like.device())
}
