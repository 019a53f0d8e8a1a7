//! Products of matrices in the form that cuBLASLt takes.
//!
//! Arrays are in row-major order and cuBLASLt reads column-major, so it reads an array `[m, n]` as the transposed
//! matrix, `n` by `m`, with the same elements at the same addresses. So `left right` is computed as `rightᵀ leftᵀ`, and
//! no element is moved.

/// Shape and strides of an array, both in elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    pub(super) shape: &'a [usize],
    pub(super) strides: &'a [usize],
}

/// A matrix in memory, column-major.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stored {
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Elements from the start of a column to the start of the next.
    pub(super) leading: usize,
    /// Elements from one matrix of a batch to the next; 0 if the batch uses one matrix throughout.
    pub(super) batch_stride: usize,
}

/// A matrix that is multiplied, possibly transposed as it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Operand {
    pub(super) stored: Stored,
    pub(super) is_transposed: bool,
}

/// `result = first second` for each matrix of a batch, column-major.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Product {
    /// Operand from the right array.
    pub(super) first: Operand,
    /// Operand from the left array.
    pub(super) second: Operand,
    pub(super) result: Stored,
    pub(super) batch: usize,
}

impl Product {
    /// `left right`, `[.., m, k]` by `[.., k, n]` to `[.., m, n]` in row-major order. The arrays have equal numbers of
    /// dimensions; all dimensions but the last two broadcast. None where a matrix is neither row-major nor
    /// column-major, or the matrices of a batch are not equally spaced.
    pub(super) fn of(left: View<'_>, right: View<'_>) -> Option<Self> {
        let rank = left.shape.len();
        let [m, k] = [left.shape[rank - 2], left.shape[rank - 1]];
        let n = right.shape[rank - 1];
        let (mut batch, [left_stride, right_stride]) = batch(left, right)?;
        let mut second = Operand::of(left, left_stride)?;
        let first = Operand::of(right, right_stride)?;
        let mut result = Stored { rows: n, columns: m, leading: n, batch_stride: m * n };
        let rows = &mut second.stored;
        // A batch of left matrices whose rows are consecutive, times one right matrix, is one product.
        let is_one = !second.is_transposed && rows.batch_stride == m * rows.leading;
        if batch > 1 && right_stride == 0 && is_one {
            rows.columns *= batch;
            rows.batch_stride = 0;
            result.columns *= batch;
            batch = 1;
        }
        debug_assert_eq!(first.depth(), k, "the arrays share their inner size");
        Some(Self { first, second, result, batch })
    }
}

impl Operand {
    /// The matrices of an array's last two dimensions. They are transposed because they are read column-major.
    fn of(view: View<'_>, batch_stride: usize) -> Option<Self> {
        let rank = view.shape.len();
        let [rows, columns] = [view.shape[rank - 2], view.shape[rank - 1]];
        let [row_stride, column_stride] = [view.strides[rank - 2], view.strides[rank - 1]];
        // A dimension of size 1 may have any stride.
        let is_by_rows = columns == 1 || column_stride == 1;
        let is_by_columns = rows == 1 || row_stride == 1;
        let leading = |count: usize, stride: usize, least: usize| {
            if count == 1 { Some(least) } else { (stride >= least).then_some(stride) }
        };
        let by_rows = || {
            let leading = leading(rows, row_stride, columns)?;
            let stored = Stored { rows: columns, columns: rows, leading, batch_stride };
            Some(Self { stored, is_transposed: false })
        };
        let by_columns = || {
            let leading = leading(columns, column_stride, rows)?;
            let stored = Stored { rows, columns, leading, batch_stride };
            Some(Self { stored, is_transposed: true })
        };
        is_by_rows.then(by_rows).flatten().or_else(|| is_by_columns.then(by_columns).flatten())
    }

    /// The inner size of the product, where this is the first operand.
    fn depth(&self) -> usize {
        if self.is_transposed { self.stored.rows } else { self.stored.columns }
    }
}

/// Number of matrices in a batch, and their strides in both arrays.
fn batch(left: View<'_>, right: View<'_>) -> Option<(usize, [usize; 2])> {
    let mut count = 1;
    let mut strides = [0, 0];
    for dim in (0..left.shape.len() - 2).rev() {
        let sizes = [left.shape[dim], right.shape[dim]];
        let size = sizes[0].max(sizes[1]);
        if size == 1 {
            continue;
        }
        let here = [(left, sizes[0]), (right, sizes[1])]
            .map(|(view, size)| if size == 1 { 0 } else { view.strides[dim] });
        if count == 1 {
            strides = here;
        } else if (0..2).any(|side| here[side] != strides[side] * count) {
            return None;
        }
        count *= size;
    }
    Some((count, strides))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Operand, Product, Stored, View};

    /// The product by cuBLASLt's documentation.
    fn computed(product: &Product, right: &[f64], left: &[f64]) -> Vec<f64> {
        let Stored { rows, columns, leading, batch_stride } = product.result;
        let at = |operand: &Operand, data: &[f64], batch: usize, row: usize, column: usize| {
            let (row, column) = if operand.is_transposed { (column, row) } else { (row, column) };
            let Stored { rows, columns, leading, batch_stride } = operand.stored;
            assert!(row < rows && column < columns && leading >= rows);
            data[batch * batch_stride + column * leading + row]
        };
        let mut result = vec![f64::NAN; product.batch * rows * columns];
        for batch in 0..product.batch {
            for (row, column) in (0..rows).flat_map(|r| (0..columns).map(move |c| (r, c))) {
                result[batch * batch_stride + column * leading + row] = (0..product.first.depth())
                    .map(|inner| {
                        at(&product.first, right, batch, row, inner)
                            * at(&product.second, left, batch, inner, column)
                    })
                    .sum();
            }
        }
        result
    }

    /// The product of two views, element by element.
    fn expected(left: View<'_>, a: &[f64], right: View<'_>, b: &[f64]) -> Vec<f64> {
        let rank = left.shape.len();
        let mut shape: Vec<usize> =
            left.shape.iter().zip(right.shape).map(|(&l, &r)| l.max(r)).collect();
        shape[rank - 2] = left.shape[rank - 2];
        shape[rank - 1] = right.shape[rank - 1];
        let offset = |view: View<'_>, index: &[usize]| -> usize {
            let sizes = view.shape.iter().zip(view.strides).zip(index);
            sizes.map(|((&size, stride), &at)| if size == 1 { 0 } else { at * stride }).sum()
        };
        (0..shape.iter().product())
            .map(|flat: usize| {
                let mut index = vec![0; rank];
                let mut rest = flat;
                for dim in (0..rank).rev() {
                    index[dim] = rest % shape[dim];
                    rest /= shape[dim];
                }
                (0..left.shape[rank - 1])
                    .map(|inner| {
                        let (mut of_left, mut of_right) = (index.clone(), index.clone());
                        of_left[rank - 1] = inner;
                        of_right[rank - 2] = inner;
                        a[offset(left, &of_left)] * b[offset(right, &of_right)]
                    })
                    .sum()
            })
            .collect()
    }

    /// Strides of an array whose dimensions are stored in a given order, with gaps between rows.
    fn strides(shape: &[usize], order: &[usize], gap: usize) -> Vec<usize> {
        let mut strides = vec![0; shape.len()];
        let mut next = 1;
        for (place, &dim) in order.iter().rev().enumerate() {
            strides[dim] = next;
            next *= shape[dim];
            if place == 0 {
                next += gap;
            }
        }
        strides
    }

    fn values(view: View<'_>) -> Vec<f64> {
        let last: usize = view.shape.iter().zip(view.strides).map(|(n, s)| (n - 1) * s).sum();
        (0..=last).map(|at| ((at * 7 + 3) % 11) as f64).collect()
    }

    /// The order in which dimensions are stored, and a gap.
    fn order(rank: usize) -> impl Strategy<Value = (Vec<usize>, usize)> {
        (Just((0..rank).collect::<Vec<_>>()).prop_shuffle(), 0usize..3)
    }

    fn problems() -> impl Strategy<Value = [(Vec<usize>, Vec<usize>); 2]> {
        prop_oneof![Just(2usize), Just(3), Just(4)].prop_flat_map(|rank| {
            let sizes = prop::collection::vec((1usize..4, any::<bool>(), any::<bool>()), rank - 2);
            let matrix = (1usize..5, 1usize..5, 1usize..5);
            (sizes, matrix, order(rank), order(rank)).prop_map(|(sizes, (m, k, n), left, right)| {
                let mut shapes = [vec![], vec![]];
                for (size, in_left, in_right) in sizes {
                    shapes[0].push(if in_left { size } else { 1 });
                    shapes[1].push(if in_right { size } else { 1 });
                }
                shapes[0].extend([m, k]);
                shapes[1].extend([k, n]);
                let [l, r] = shapes;
                let of = |shape: Vec<usize>, (order, gap): (Vec<usize>, usize)| {
                    let strides = strides(&shape, &order, gap);
                    (shape, strides)
                };
                [of(l, left), of(r, right)]
            })
        })
    }

    proptest! {
        /// Each product for cuBLASLt equals the product of the arrays, in row-major order.
        #[test]
        fn what_is_asked_for_is_the_product(problem in problems()) {
            let [left, right] = &problem;
            let left = View { shape: &left.0, strides: &left.1 };
            let right = View { shape: &right.0, strides: &right.1 };
            let (a, b) = (values(left), values(right));
            if let Some(product) = Product::of(left, right) {
                prop_assert_eq!(computed(&product, &b, &a), expected(left, &a, right, &b));
            }
        }
    }

    /// Products of layers, of their gradients and of heads need no copy.
    #[test]
    fn rows_columns_and_heads_are_read_as_they_lie() {
        let view = |shape: &'static [usize], strides: &'static [usize]| View { shape, strides };
        let weight = view(&[3, 5], &[5, 1]);
        let transposed = view(&[5, 3], &[1, 5]);
        let rows = view(&[4, 3], &[3, 1]);
        let columns = view(&[3, 4], &[1, 3]);
        let gradient = view(&[4, 5], &[5, 1]);
        for (left, right) in [(rows, weight), (gradient, transposed), (columns, gradient)] {
            assert!(Product::of(left, right).is_some(), "{left:?} {right:?}");
        }
        // Heads `[batch, heads, tokens, size]`, the keys transposed.
        let query = view(&[2, 3, 4, 5], &[60, 20, 5, 1]);
        let key = view(&[2, 3, 5, 4], &[60, 20, 1, 5]);
        assert_eq!(Product::of(query, key).map(|product| product.batch), Some(6));
        // Rows of several matrices times one matrix are one product.
        let all = view(&[2, 4, 3], &[12, 3, 1]);
        let product = Product::of(all, view(&[1, 3, 5], &[15, 5, 1])).expect("rows");
        assert_eq!((product.batch, product.result.columns), (1, 8));
        // Every second element: none.
        assert_eq!(Product::of(view(&[4, 3], &[6, 2]), weight), None);
    }
}
