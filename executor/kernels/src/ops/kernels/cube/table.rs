//! Selection of rows of a table by index, and addition of rows to it.
//!
//! burn 0.21's `select` also reads the list of indices at the number of each feature, which is past the end of the list
//! where there are more features than rows. burn's `select_add` assigns each feature to one unit, which loops over all
//! rows.

use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::launch::{Grid, UNITS, empty, launch, len, rows_and_width};

/// The rows of `[n, width]` at `indices`, in their order.
pub(super) fn select<R: CubeRuntime>(x: CubeTensor<R>, indices: CubeTensor<R>) -> CubeTensor<R> {
    let ([_, width], dtype) = (rows_and_width(&x), x.dtype);
    let y = empty(&x, &[len(&indices), width], dtype);
    if len(&y) > 0 {
        let grid = Grid::of_units(&[&x, &y], len(&y));
        let (x, indices) = (x.into_tensor_arg(), indices.into_array_arg());
        launch!(select_kernel, grid, x, indices, y.clone().into_array_arg(), width, dtype.into());
    }
    y
}

/// Lists of the rows to be added to each row of a table: the target rows, the start of each target row's list, and the
/// lists.
pub(super) struct Lists {
    targets: Vec<u32>,
    starts: Vec<u32>,
    sources: Vec<u32>,
}

impl Lists {
    /// The lists of rows, where row `i` is added to row `targets[i]` of the table. Each list is in ascending order.
    pub(super) fn new(targets: &[u32]) -> Self {
        let mut sources: Vec<u32> = (0..targets.len() as u32).collect();
        sources.sort_by_key(|source| targets[*source as usize]);
        let mut lists = Self { targets: Vec::new(), starts: Vec::new(), sources: Vec::new() };
        for (place, source) in (0u32..).zip(&sources) {
            let target = targets[*source as usize];
            if lists.targets.last() != Some(&target) {
                lists.targets.push(target);
                lists.starts.push(place);
            }
        }
        lists.starts.push(sources.len() as u32);
        Self { sources, ..lists }
    }

    /// Number of rows of the table to which rows are added.
    pub(super) fn num_targets(&self) -> usize {
        self.targets.len()
    }

    /// Targets, starts and sources in one array, to be sent to a device.
    pub(super) fn flat(&self) -> Vec<u32> {
        [&self.targets[..], &self.starts, &self.sources].concat()
    }
}

/// Writes the sums of `rows`, `[n, width]`, to their target rows of a table in fp32.
pub(super) fn sum_into<R: CubeRuntime>(
    table: &CubeTensor<R>,
    rows: CubeTensor<R>,
    lists: CubeTensor<R>,
    num_targets: usize,
) {
    let (rows, lists) = (into_contiguous(rows), into_contiguous(lists));
    let ([_, width], dtype) = (rows_and_width(&rows), rows.dtype.into());
    if num_targets * width > 0 {
        let grid = Grid::of_cubes(&[table, &rows], num_targets, UNITS);
        let [table, rows, lists] = [table.clone(), rows, lists].map(CubeTensor::into_array_arg);
        launch!(sum_kernel, grid, table, rows, lists, num_targets, width, dtype);
    }
}

#[cube(launch, address_type = "dynamic")]
fn select_kernel<F: Float>(
    x: &Tensor<F>,
    indices: &Array<i32>,
    y: &mut Array<F>,
    width: usize,
    #[define(F)] _element: StorageType,
) {
    let place = ABSOLUTE_POS;
    if place < y.len() {
        let row = usize::cast_from(indices[place / width]);
        y[place] = x[row * x.stride(0) + place % width * x.stride(1)];
    }
}

#[cube(launch, address_type = "dynamic")]
fn sum_kernel<F: Float>(
    table: &mut Array<f32>,
    rows: &Array<F>,
    lists: &Array<i32>,
    num_targets: usize,
    width: usize,
    #[define(F)] _element: StorageType,
) {
    let target = CUBE_POS;
    if target < num_targets {
        let row = usize::cast_from(lists[target]);
        let start = usize::cast_from(lists[num_targets + target]);
        let end = usize::cast_from(lists[num_targets + target + 1]);
        for feature in range_stepped(UNIT_POS as usize, width, UNITS) {
            let mut sum = f32::new(0.0);
            for place in start..end {
                let source = usize::cast_from(lists[2 * num_targets + 1 + place]);
                sum += f32::cast_from(rows[source * width + feature]);
            }
            table[row * width + feature] = sum;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Lists;

    #[test]
    fn each_row_is_in_the_list_of_its_target() {
        let lists = Lists::new(&[5, 2, 5, 0, 2, 5]);
        assert_eq!(lists.flat(), [0, 2, 5, 0, 1, 3, 6, 3, 1, 4, 0, 2, 5]);
        assert_eq!(lists.num_targets(), 3);
        assert_eq!(Lists::new(&[]).flat(), [0]);
    }
}
