//! A product with each expert's matrix, all in one kernel: cubes find the expert of their rows in the counts on the
//! device. There are cubes for the greatest number of tiles that any counts can need; cubes without rows end at once.

use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::super::launch::{Grid, empty, launch, rows_and_width};
use super::cores;
use super::tiles::{start_of, tile_position, tiles};

/// Rows and columns of a tile.
const TILE: usize = 64;

/// Size of a tile along the summed side; one tile is loaded at a time.
const DEPTH: usize = 16;

/// Rows and columns of a tile that a unit has.
const OWN: usize = 4;

/// Units along a side of a tile.
const SIDE: usize = TILE / OWN;

/// Units of a cube.
const UNITS: usize = SIDE * SIDE;

/// Distance in numbers from one row of a tile in shared memory to the next. It puts neighbouring rows into different
/// banks.
const PITCH: usize = TILE + 1;

/// The rows of each expert, `[rows, in]`, times its matrix of `[experts, in, out]`.
pub(in super::super) fn matmul<R: CubeRuntime>(
    x: CubeTensor<R>,
    counts: CubeTensor<R>,
    weight: CubeTensor<R>,
) -> CubeTensor<R> {
    let x = into_contiguous(x);
    let [rows, depth] = rows_and_width(&x);
    let [num_experts, width] = [0, 2].map(|dim| weight.meta.shape()[dim]);
    let y = empty(&x, &[rows, width], x.dtype);
    if rows * width == 0 {
        return y;
    }
    if cores::multiply(&x, &weight) {
        cores::matmul(x, counts, weight, &y);
        return y;
    }
    let (element, cubes) =
        (x.dtype.into(), [tiles(rows, num_experts, TILE), width.div_ceil(TILE), 1]);
    launch!(
        matmul_kernel,
        Grid::new(&[&x, &weight, &y], cubes, CubeDim::new_1d(UNITS as u32)),
        x.into_tensor_arg(),
        counts.into_array_arg(),
        weight.into_tensor_arg(),
        y.clone().into_tensor_arg(),
        num_experts,
        depth,
        element,
    );
    y
}

/// The transposed rows of each expert, `[rows, in]`, times its rows of `grad`, `[rows, out]`: `[experts, in, out]`.
pub(in super::super) fn outer<R: CubeRuntime>(
    x: CubeTensor<R>,
    counts: CubeTensor<R>,
    grad: CubeTensor<R>,
) -> CubeTensor<R> {
    let [x, grad, counts] = [x, grad, counts].map(into_contiguous);
    let [[_, inputs], [_, outputs]] = [&x, &grad].map(rows_and_width);
    let num_experts = counts.meta.shape()[0];
    let y = empty(&x, &[num_experts, inputs, outputs], x.dtype);
    if num_experts * inputs * outputs == 0 {
        return y;
    }
    if cores::multiply_outer(&x, &grad) {
        cores::outer(x, counts, grad, &y);
        return y;
    }
    let (element, cubes) =
        (x.dtype.into(), [inputs.div_ceil(TILE), outputs.div_ceil(TILE), num_experts]);
    let grid = Grid::new(&[&x, &grad, &y], cubes, CubeDim::new_1d(UNITS as u32));
    let (counts, out) = (counts.into_array_arg(), y.clone().into_tensor_arg());
    launch!(outer_kernel, grid, x.into_tensor_arg(), counts, grad.into_tensor_arg(), out, element);
    y
}

/// Position of a matrix: element `(i, j)` is at `start + i down + j across`, for `i < rows` and `j < columns`.
#[derive(Clone, Copy, CubeType)]
struct Matrix {
    start: usize,
    down: usize,
    across: usize,
    rows: usize,
    columns: usize,
}

#[cube(launch, address_type = "dynamic")]
fn matmul_kernel<F: Float>(
    x: &Tensor<F>,
    counts: &Array<i32>,
    weight: &Tensor<F>,
    y: &mut Tensor<F>,
    num_experts: usize,
    depth: usize,
    #[define(F)] _element: StorageType,
) {
    let place = tile_position(counts, CUBE_POS_X as usize, num_experts, TILE);
    let column = CUBE_POS_Y as usize * TILE;
    if place.expert < num_experts {
        let rows = min(place.end - place.first, TILE);
        let columns = min(y.shape(1) - column, TILE);
        let left = Matrix {
            start: place.first * depth,
            down: depth,
            across: 1usize.runtime(),
            rows,
            columns: depth,
        };
        let right = Matrix {
            start: place.expert * weight.stride(0) + column * weight.stride(2),
            down: weight.stride(1),
            across: weight.stride(2),
            rows: depth,
            columns,
        };
        let start = place.first * y.shape(1) + column;
        let width = y.shape(1);
        product::<F>(x, weight, y, &left, &right, start, width);
    }
}

#[cube(launch, address_type = "dynamic")]
fn outer_kernel<F: Float>(
    x: &Tensor<F>,
    counts: &Array<i32>,
    grad: &Tensor<F>,
    y: &mut Tensor<F>,
    #[define(F)] _element: StorageType,
) {
    let expert = CUBE_POS_Z as usize;
    let (row, column) = (CUBE_POS_X as usize * TILE, CUBE_POS_Y as usize * TILE);
    let (inputs, outputs) = (x.shape(1), grad.shape(1));
    let first = start_of(counts, expert);
    let depth = usize::cast_from(counts[expert]);
    let left = Matrix {
        start: first * inputs + row,
        down: 1usize.runtime(),
        across: inputs,
        rows: min(inputs - row, TILE),
        columns: depth,
    };
    let right = Matrix {
        start: first * outputs + column,
        down: outputs,
        across: 1usize.runtime(),
        rows: depth,
        columns: min(outputs - column, TILE),
    };
    let start = (expert * inputs + row) * outputs + column;
    product::<F>(x, grad, y, &left, &right, start, outputs);
}

/// Writes a tile of a product, whose first element is at `start` of `y` and whose rows are `width` apart.
#[cube]
fn product<F: Float>(
    a: &Tensor<F>,
    b: &Tensor<F>,
    y: &mut Tensor<F>,
    left: &Matrix,
    right: &Matrix,
    start: usize,
    width: usize,
) {
    let unit = UNIT_POS as usize;
    let (row, column) = (unit / SIDE * OWN, unit % SIDE * OWN);
    let mut a_tile = SharedMemory::<f32>::new(comptime!(DEPTH * PITCH));
    let mut b_tile = SharedMemory::<f32>::new(comptime!(DEPTH * PITCH));
    let mut sums = Array::<f32>::new(comptime!(OWN * OWN));
    #[unroll]
    for i in 0..comptime!(OWN * OWN) {
        sums[i] = f32::new(0.0);
    }
    for from in range_stepped(0, left.columns, DEPTH) {
        sync_cube();
        for place in range_stepped(unit, comptime!(TILE * DEPTH), UNITS) {
            // Neighbouring units read neighbouring elements where these are contiguous.
            let mut i = place / DEPTH;
            let mut k = place % DEPTH;
            if left.across > left.down {
                i = place % TILE;
                k = place / TILE;
            }
            let mut value = f32::new(0.0);
            if i < left.rows && from + k < left.columns {
                value = f32::cast_from(a[left.start + i * left.down + (from + k) * left.across]);
            }
            a_tile[k * PITCH + i] = value;
            let mut j = place % TILE;
            let mut l = place / TILE;
            if right.across > right.down {
                j = place / DEPTH;
                l = place % DEPTH;
            }
            let mut value = f32::new(0.0);
            if j < right.columns && from + l < right.rows {
                value = f32::cast_from(b[right.start + (from + l) * right.down + j * right.across]);
            }
            b_tile[l * PITCH + j] = value;
        }
        sync_cube();
        for k in 0..DEPTH {
            #[unroll]
            for i in 0..OWN {
                let factor = a_tile[k * PITCH + row + i];
                #[unroll]
                for j in 0..OWN {
                    sums[comptime!(i * OWN + j)] += factor * b_tile[k * PITCH + column + j];
                }
            }
        }
    }
    #[unroll]
    for i in 0..OWN {
        #[unroll]
        for j in 0..OWN {
            if row + i < left.rows && column + j < right.columns {
                y[start + (row + i) * width + column + j] =
                    F::cast_from(sums[comptime!(i * OWN + j)]);
            }
        }
    }
}
