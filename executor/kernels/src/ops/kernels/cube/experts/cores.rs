//! The products of experts by tensor cores: arrays of 16 bits, on GPUs whose planes multiply 16 by 16 by 8.
//!
//! A cube has a tile of the product, and each of its planes holds a quarter of the tile in registers. Tiles of both
//! factors pass through shared memory; the next ones are loaded into registers while the current ones are multiplied.

use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::super::fragments::{
    CHUNK, COLUMNS, Chunk, DEPTH, Pair, Registers, STRIP, UNITS, are_multiplied, column_of_unit,
    left, left_of_columns, multiply as add_product, one_of_two, pitch, plane, right_of_columns,
    right_of_rows, row_of_unit, zeros,
};
use super::super::launch::{Grid, launch, rows_and_width};
use super::tiles::{start_of, tile_position, tiles};

/// Rows and columns of a cube's tile.
const TILE: usize = 128;

/// Size of a factor's tile along the summed side; one tile is loaded at a time.
const STEP: usize = 32;

/// Rows and columns of a plane's quarter of a tile.
const QUARTER: usize = TILE / 2;

/// Strips of rows of a plane.
const STRIPS: usize = QUARTER / STRIP;

/// Blocks of columns of a plane.
const BLOCKS: usize = QUARTER / COLUMNS;

/// Chunks of a factor's tile that each unit loads.
const BROUGHT: usize = TILE * STEP / CHUNK / UNITS;

/// Layout of a factor's tile in memory, and so in shared memory: the side along which its rows run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Side {
    /// Rows run along the summed side: `[tile, step]`.
    Summed,
    /// Rows run along the side that remains in the product: `[step, tile]`.
    Kept,
}

impl Side {
    /// Elements of a row of a factor's tile.
    const fn width(self) -> usize {
        match self {
            Self::Summed => STEP,
            Self::Kept => TILE,
        }
    }

    /// Chunks that a factor's tile takes in shared memory.
    const fn chunks(self) -> usize {
        TILE * STEP / self.width() * pitch(self.width())
    }
}

/// Returns whether a device supports [`matmul`], and arrays are aligned to whole chunks.
pub(super) fn multiply<R: CubeRuntime>(x: &CubeTensor<R>, weight: &CubeTensor<R>) -> bool {
    are_multiplied(&x.client, x.dtype)
        && lie_in_chunks(x)
        && side_of(weight).is_some()
        && lie_in_chunks(weight)
        && weight.meta.shape()[2].is_multiple_of(CHUNK)
}

/// Returns whether a device supports [`outer`], and arrays are aligned to whole chunks.
pub(super) fn multiply_outer<R: CubeRuntime>(x: &CubeTensor<R>, grad: &CubeTensor<R>) -> bool {
    are_multiplied(&x.client, x.dtype) && lie_in_chunks(x) && lie_in_chunks(grad)
}

/// Returns whether all rows of a tensor are aligned to chunks, and consist of whole ones.
fn lie_in_chunks<R: CubeRuntime>(x: &CubeTensor<R>) -> bool {
    let chunk_bytes = (CHUNK * x.dtype.size()) as u64;
    let (shape, strides) = (x.meta.shape(), x.meta.strides());
    let offset = x.handle.offset_start.unwrap_or(0);
    shape.iter().zip(strides.iter()).all(|(size, stride)| {
        if *stride == 1 { size.is_multiple_of(CHUNK) } else { stride.is_multiple_of(CHUNK) }
    }) && offset.is_multiple_of(chunk_bytes)
}

/// The side of each matrix of `[experts, in, out]` that is contiguous; none if neither is.
fn side_of<R: CubeRuntime>(weight: &CubeTensor<R>) -> Option<Side> {
    match weight.meta.strides()[..] {
        [_, _, 1] => Some(Side::Kept),
        [_, 1, _] => Some(Side::Summed),
        _ => None,
    }
}

/// Writes the rows of each expert, `[rows, in]`, times its matrix of `[experts, in, out]`.
pub(super) fn matmul<R: CubeRuntime>(
    x: CubeTensor<R>,
    counts: CubeTensor<R>,
    weight: CubeTensor<R>,
    y: &CubeTensor<R>,
) {
    let side = side_of(&weight).expect("the weight was looked at before");
    let [rows, depth] = rows_and_width(&x);
    let [num_experts, width] = [0, 2].map(|dim| weight.meta.shape()[dim]);
    let (element, cubes) =
        (x.dtype.into(), [tiles(rows, num_experts, TILE), width.div_ceil(TILE), 1]);
    launch!(
        matmul_kernel,
        Grid::new(&[&x, &weight, y], cubes, CubeDim::new_1d(UNITS as u32)),
        x.into_tensor_arg(),
        counts.into_array_arg(),
        weight.into_tensor_arg(),
        y.clone().into_tensor_arg(),
        num_experts,
        depth,
        width,
        side,
        element,
    );
}

/// Writes the transposed rows of each expert, `[rows, in]`, times its rows of `grad`, `[rows, out]`.
pub(super) fn outer<R: CubeRuntime>(
    x: CubeTensor<R>,
    counts: CubeTensor<R>,
    grad: CubeTensor<R>,
    y: &CubeTensor<R>,
) {
    let [[_, inputs], [_, outputs]] = [&x, &grad].map(rows_and_width);
    let num_experts = counts.meta.shape()[0];
    let (element, cubes) =
        (x.dtype.into(), [inputs.div_ceil(TILE), outputs.div_ceil(TILE), num_experts]);
    launch!(
        outer_kernel,
        Grid::new(&[&x, &grad, y], cubes, CubeDim::new_1d(UNITS as u32)),
        x.into_tensor_arg(),
        counts.into_array_arg(),
        grad.into_tensor_arg(),
        y.clone().into_tensor_arg(),
        inputs,
        outputs,
        element,
    );
}

/// Position of a factor's tile in memory, distance between its rows, and sizes of the factor.
#[derive(Clone, Copy, CubeType)]
struct Factor {
    start: usize,
    pitch: usize,
    /// Size of the summed side.
    summed: usize,
    /// Size of the other side, from the tile's first element on.
    kept: usize,
}

#[cube(launch, address_type = "dynamic")]
fn matmul_kernel<F: Float>(
    x: &Tensor<Chunk<F>>,
    counts: &Array<i32>,
    weight: &Tensor<Chunk<F>>,
    y: &mut Tensor<Pair<F>>,
    num_experts: usize,
    depth: usize,
    width: usize,
    #[comptime] side: Side,
    #[define(F)] _element: StorageType,
) {
    let place = tile_position(counts, CUBE_POS_X as usize, num_experts, TILE);
    let column = CUBE_POS_Y as usize * TILE;
    if place.expert < num_experts {
        let rows = min(place.end - place.first, TILE);
        let columns = min(width - column, TILE);
        let left = Factor { start: place.first * depth, pitch: depth, summed: depth, kept: rows };
        let start = place.expert * weight.stride(0) + column * weight.stride(2);
        let right = match side {
            Side::Kept => Factor { start, pitch: weight.stride(1), summed: depth, kept: columns },
            Side::Summed => Factor { start, pitch: weight.stride(2), summed: depth, kept: columns },
        };
        let start = place.first * width + column;
        product::<F>(x, weight, y, &left, &right, start, width, [Side::Summed, side]);
    }
}

#[cube(launch, address_type = "dynamic")]
fn outer_kernel<F: Float>(
    x: &Tensor<Chunk<F>>,
    counts: &Array<i32>,
    grad: &Tensor<Chunk<F>>,
    y: &mut Tensor<Pair<F>>,
    inputs: usize,
    outputs: usize,
    #[define(F)] _element: StorageType,
) {
    let expert = CUBE_POS_Z as usize;
    let (row, column) = (CUBE_POS_X as usize * TILE, CUBE_POS_Y as usize * TILE);
    let first = start_of(counts, expert);
    let depth = usize::cast_from(counts[expert]);
    let left = Factor {
        start: first * inputs + row,
        pitch: inputs,
        summed: depth,
        kept: min(inputs - row, TILE),
    };
    let right = Factor {
        start: first * outputs + column,
        pitch: outputs,
        summed: depth,
        kept: min(outputs - column, TILE),
    };
    let start = (expert * inputs + row) * outputs + column;
    product::<F>(x, grad, y, &left, &right, start, outputs, [Side::Kept, Side::Kept]);
}

/// Writes a tile of a product, whose first element is at `start` of `y` and whose rows are `width` apart.
#[cube]
fn product<F: Float>(
    a: &Tensor<Chunk<F>>,
    b: &Tensor<Chunk<F>>,
    y: &mut Tensor<Pair<F>>,
    left: &Factor,
    right: &Factor,
    start: usize,
    width: usize,
    #[comptime] sides: [Side; 2],
) {
    let [left_side, right_side] = sides;
    let mut a_tile = SharedMemory::<Chunk<F>>::new_aligned(comptime!(left_side.chunks()), 16usize);
    let mut b_tile = SharedMemory::<Chunk<F>>::new_aligned(comptime!(right_side.chunks()), 16usize);
    let mut a_next = Array::<Chunk<F>>::new(BROUGHT);
    let mut b_next = Array::<Chunk<F>>::new(BROUGHT);
    let first_row = plane() / 2 * QUARTER;
    let first_column = plane() % 2 * QUARTER;
    let mut sums = zeros(comptime!(STRIPS * BLOCKS));
    bring::<F>(a, left, 0usize.runtime(), &mut a_next, left_side);
    bring::<F>(b, right, 0usize.runtime(), &mut b_next, right_side);
    for from in range_stepped(0, left.summed, STEP) {
        sync_cube();
        put::<F>(&a_next, &mut a_tile, left_side);
        put::<F>(&b_next, &mut b_tile, right_side);
        sync_cube();
        // Nothing is read past the last step.
        bring::<F>(a, left, from + STEP, &mut a_next, left_side);
        bring::<F>(b, right, from + STEP, &mut b_next, right_side);
        #[unroll]
        for step in 0..comptime!(STEP / DEPTH) {
            let mut strips = Sequence::<Registers<F>>::new();
            #[unroll]
            for strip in 0..STRIPS {
                strips.push(left_part::<F>(
                    &a_tile,
                    first_row + strip * STRIP,
                    comptime!(step * DEPTH),
                    left_side,
                ));
            }
            #[unroll]
            for pair in 0..comptime!(BLOCKS / 2) {
                let both = right_part::<F>(
                    &b_tile,
                    first_column + pair * 2 * COLUMNS,
                    comptime!(step * DEPTH),
                    right_side,
                );
                #[unroll]
                for which in 0..2usize {
                    let right = one_of_two::<F>(&both, which);
                    #[unroll]
                    for strip in 0..STRIPS {
                        add_product::<F>(
                            strips.index(strip),
                            &right,
                            sums.index_mut(comptime!(strip * BLOCKS + 2 * pair + which)),
                        );
                    }
                }
            }
        }
    }
    #[unroll]
    for strip in 0..STRIPS {
        #[unroll]
        for half in 0..2usize {
            let row = first_row + strip * STRIP + row_of_unit() + half * 8;
            if left.kept > row {
                #[unroll]
                for block in 0..BLOCKS {
                    let column = first_column + block * COLUMNS + column_of_unit();
                    if right.kept > column {
                        let pair = sums.index(comptime!(strip * BLOCKS + block))[half];
                        y[(start + row * width + column) / 2] = Pair::<F>::cast_from(pair);
                    }
                }
            }
        }
    }
}

/// Loads the unit's chunks of a factor's tile, from summed element `from` on: zeros outside of the factor.
#[cube]
fn bring<F: Float>(
    x: &Tensor<Chunk<F>>,
    factor: &Factor,
    from: usize,
    next: &mut Array<Chunk<F>>,
    #[comptime] side: Side,
) {
    let chunks = comptime!(side.width() / CHUNK);
    #[unroll]
    for i in 0..BROUGHT {
        let place = UNIT_POS as usize + comptime!(i * UNITS);
        let (row, column) = (place / chunks, place % chunks * CHUNK);
        next[i] = Chunk::<F>::new(F::new(0.0));
        match side {
            Side::Summed => {
                if row < factor.kept && from + column < factor.summed {
                    next[i] = x[(factor.start + row * factor.pitch + from + column) / CHUNK];
                }
            }
            Side::Kept => {
                if from + row < factor.summed && column < factor.kept {
                    next[i] = x[(factor.start + (from + row) * factor.pitch + column) / CHUNK];
                }
            }
        }
    }
}

/// Stores the unit's chunks to shared memory.
#[cube]
fn put<F: Float>(
    next: &Array<Chunk<F>>,
    tile: &mut SharedMemory<Chunk<F>>,
    #[comptime] side: Side,
) {
    let chunks = comptime!(side.width() / CHUNK);
    #[unroll]
    for i in 0..BROUGHT {
        let place = UNIT_POS as usize + comptime!(i * UNITS);
        tile[place / chunks * comptime!(pitch(side.width())) + place % chunks] = next[i];
    }
}

/// A left matrix of 16 rows of the tile, from summed element `summed` on.
#[cube]
fn left_part<F: Float>(
    tile: &SharedMemory<Chunk<F>>,
    first: usize,
    #[comptime] summed: usize,
    #[comptime] side: Side,
) -> Registers<F> {
    let pitch = comptime!(pitch(side.width()));
    match side {
        Side::Summed => left::<F>(tile, first, comptime!(summed / CHUNK), pitch),
        Side::Kept => left_of_columns::<F>(tile, summed, first / CHUNK, pitch),
    }
}

/// Two right matrices of 16 columns of the tile, from summed element `summed` on.
#[cube]
fn right_part<F: Float>(
    tile: &SharedMemory<Chunk<F>>,
    first: usize,
    #[comptime] summed: usize,
    #[comptime] side: Side,
) -> Registers<F> {
    let pitch = comptime!(pitch(side.width()));
    match side {
        Side::Summed => right_of_rows::<F>(tile, first, comptime!(summed / CHUNK), pitch),
        Side::Kept => right_of_columns::<F>(tile, summed, first / CHUNK, pitch),
    }
}
