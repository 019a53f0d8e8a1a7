//! Sums of rows in a table.

use burn::tensor::backend::Backend;

use crate::array::{Array, Indices};

/// [`BasicKernels::sum_rows`](super::super::BasicKernels::sum_rows).
pub(in crate::ops) fn sum_rows<B: Backend>(
    rows: Array<B>,
    targets: &[u32],
    num_rows: usize,
) -> Array<B> {
    let (device, rows) = (rows.device(), rows.widened());
    let table = Array::zeros(&[num_rows, rows.size(1)], rows.element(), &device);
    table.select_add(0, &Indices::new(targets, &[targets.len()], &device), rows)
}
