//! Decays within a chunk of positions.

use std::ops::Range;

use super::row_sums;
use crate::array::Array;
use crate::ops::Kernels;

/// Ranges of at most `chunk` positions that cover a sequence, with the triangle of each.
pub(super) struct Chunk<B: Kernels> {
    pub(super) range: Range<usize>,
    pub(super) triangle: Triangle<B>,
}

impl<B: Kernels> Chunk<B> {
    /// The chunks of positions of `like`, `[outer, heads, s, features]`, in order.
    pub(super) fn all(like: &Array<B>, chunk: usize) -> Vec<Self> {
        let (length, chunk) = (like.size(2), chunk.max(1));
        let whole = Triangle::new(chunk.min(length), like);
        let of = |start: usize| {
            let range = start..(start + chunk).min(length);
            let triangle = if range.len() == whole.size() {
                whole.clone()
            } else {
                Triangle::new(range.len(), like)
            };
            Self { range, triangle }
        };
        (0..length).step_by(chunk).map(of).collect()
    }

    /// The chunk's positions of an array `[outer, heads, s, features]`.
    pub(super) fn of(&self, x: &Array<B>) -> Array<B> {
        x.narrow(2, self.range.clone())
    }
}

/// Ones on and below the diagonal, `[c, c]`: the sum over a position and those before it.
#[derive(Clone)]
pub(super) struct Triangle<B: Kernels>(Array<B>);

impl<B: Kernels> Triangle<B> {
    fn new(size: usize, like: &Array<B>) -> Self {
        Self(lower(size, 0, like))
    }

    fn size(&self) -> usize {
        self.0.size(0)
    }

    /// The triangle without its diagonal, `[1, 1, c, c]`.
    pub(super) fn below_diagonal(&self) -> Array<B> {
        let size = self.size();
        lower(size, 1, &self.0).reshape(&[1, 1, size, size])
    }

    /// Sums over each position and those before it, `[.., c, 1]`.
    pub(super) fn sums_to(&self, x: Array<B>) -> Array<B> {
        self.times(x, self.0.clone().transpose())
    }

    /// Sums over each position and those after it, `[.., c, 1]`.
    pub(super) fn sums_from(&self, x: Array<B>) -> Array<B> {
        self.times(x, self.0.clone())
    }

    fn times(&self, x: Array<B>, ones: Array<B>) -> Array<B> {
        let shape = x.shape();
        let rows = x.num_elements() / self.size();
        B::matmul(x.reshape(&[rows, self.size()]), ones).reshape(&shape)
    }
}

/// `[size, size]`: ones at least `distance` below the diagonal, zeros above.
fn lower<B: Kernels>(size: usize, distance: usize, like: &Array<B>) -> Array<B> {
    let row = |i: usize| (0..size).map(move |j| if i >= j + distance { 1.0 } else { 0.0 });
    let values = (0..size).flat_map(row).collect();
    Array::from_f64(values, &[size, size], like.element(), &like.device())
}

/// Factors by which the values that a position wrote have decayed.
pub(super) struct Decays<B: Kernels> {
    /// From the state before the chunk to each position, `[.., c, 1]`.
    pub(super) from_start: Array<B>,
    /// From each position to the state after the chunk, `[.., c, 1]`.
    pub(super) to_end: Array<B>,
    /// From the state before the chunk to the state after it, `[.., 1, 1]`.
    pub(super) across: Array<B>,
    /// From each position (a column) to itself and to each later position (a row), `[.., c, c]`; zero elsewhere.
    pub(super) pairs: Array<B>,
}

impl<B: Kernels> Decays<B> {
    /// The decays of a chunk from their logarithms at each position, `[.., c, 1]`, summed from the chunk's start.
    pub(super) fn new(sums: Array<B>, triangle: &Triangle<B>) -> Self {
        let size = triangle.size();
        let [outer, heads] = [sums.size(0), sums.size(1)];
        let last = sums.narrow(2, size - 1..size);
        let earlier = sums.clone().reshape(&[outer, heads, 1, size]);
        // Sums do not increase with the position. So exponents are positive only above the diagonal, where the
        // exponential could overflow.
        let pairs = (-(earlier - sums.clone()).at_least(0.0)).exp();
        Self {
            pairs: pairs * triangle.0.clone().reshape(&[1, 1, size, size]),
            to_end: (last.clone() - sums.clone()).exp(),
            across: last.exp(),
            from_start: sums.exp(),
        }
    }
}

/// The gradient of the sums of logarithms of decays from the gradient of the logarithms of [`Decays::pairs`].
pub(super) fn pairs_grad<B: Kernels>(grad: Array<B>) -> Array<B> {
    let rows = row_sums(grad.clone());
    let columns = grad.sum_dim(2).reshape(&rows.shape());
    rows - columns
}
