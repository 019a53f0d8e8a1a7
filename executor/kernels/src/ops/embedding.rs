//! Rows of a table `[n, w]` by index, where the table may be a shard: rows `first_row..first_row + n` of a longer one.

use super::Kernels;
use crate::array::{Array, Indices};

/// The rows with numbers `ids`, `[ids, w]`; zeros for rows outside the shard.
pub fn forward<B: Kernels>(table: Array<B>, ids: &[u32], first_row: usize) -> Array<B> {
    let device = table.device();
    let places = Places::new(ids, first_row, table.size(0));
    let rows = B::select_rows(&table, &Indices::new(&places.local, &[ids.len()], &device));
    if places.inside.len() == ids.len() {
        return rows;
    }
    let mut visible = vec![0.0; ids.len()];
    for position in &places.inside {
        visible[*position as usize] = 1.0;
    }
    let visible = Array::from_f64(visible, &[ids.len(), 1], rows.element(), &device);
    rows * visible
}

/// The gradient of the table, `[num_rows, w]`, from the gradient of the selected rows.
pub fn weight_grad<B: Kernels>(
    ids: &[u32],
    first_row: usize,
    num_rows: usize,
    grad: Array<B>,
) -> Array<B> {
    let (element, device, width) = (grad.element(), grad.device(), grad.size(1));
    let places = Places::new(ids, first_row, num_rows);
    if places.inside.is_empty() {
        return Array::zeros(&[num_rows, width], element, &device);
    }
    let rows = if places.inside.len() == ids.len() {
        grad
    } else {
        let inside = Indices::new(&places.inside, &[places.inside.len()], &device);
        B::select_rows(&grad, &inside)
    };
    let local: Vec<u32> =
        places.inside.iter().map(|position| places.local[*position as usize]).collect();
    B::sum_rows(rows, &local, num_rows).cast(element)
}

/// Positions of indices within a shard.
struct Places {
    /// The row within the shard of each index; the first one for indices outside.
    local: Vec<u32>,
    /// Positions of the indices that lie inside, ascending.
    inside: Vec<u32>,
}

impl Places {
    fn new(ids: &[u32], first_row: usize, num_rows: usize) -> Self {
        let row = |id: u32| (id as usize).checked_sub(first_row).filter(|row| *row < num_rows);
        let local = ids.iter().map(|id| row(*id).unwrap_or(0) as u32).collect();
        let inside = (0u32..).zip(ids).filter(|(_, id)| row(**id).is_some());
        Self { local, inside: inside.map(|(position, _)| position).collect() }
    }
}
