//! Loads, products and stores of rows of arrays `[b, rows, heads, width]` by planes, and reductions over the four units
//! that share a row.

use cubecl::prelude::*;

use super::super::super::fragments::{
    CHUNK, COLUMNS, Chunk, DEPTH, Pair, Registers, UNITS, column_of_unit, left_of_sums, multiply,
    one_of_two, pitch, right_of_columns, right_of_rows, row_of_unit,
};

/// Returns whether units fetch the next tile while they multiply the current one. They do where rows are short enough
/// for registers to hold both.
pub(super) const fn fetches_ahead([width, value_width]: [usize; 2]) -> bool {
    width <= 64 && value_width <= 64
}

/// Number of chunks of a tile of `count` rows that each unit moves.
pub(super) const fn chunks_of_unit(count: usize, width: usize) -> usize {
    (count * (width / CHUNK)).div_ceil(UNITS)
}

/// Location of a head's rows in `[b, rows, heads, width]`: read from the device's memory once, before a loop over
/// tiles.
#[derive(Clone, Copy, CubeType)]
pub(super) struct Rows {
    /// The chunk with which they start.
    base: usize,
    /// Chunks from a row to the next.
    stride: usize,
    /// The index of the last.
    last: usize,
}

/// Location of a head's rows in `[b, rows, heads, width]`.
#[cube]
pub(super) fn rows_of<F: Float>(x: &Tensor<Chunk<F>>, head: usize) -> Rows {
    Rows {
        base: (CUBE_POS_Z as usize * x.stride(0) + head * x.stride(2)) / CHUNK,
        stride: x.stride(1) / CHUNK,
        last: x.shape(1) - 1,
    }
}

/// The unit's chunks of a tile whose rows are `first..` of a head; the last row is repeated past the end.
#[cube]
pub(super) fn fetch<F: Float>(
    fetched: &mut Array<Chunk<F>>,
    x: &Tensor<Chunk<F>>,
    rows: &Rows,
    first: usize,
    #[comptime] count: usize,
    #[comptime] width: usize,
) {
    let chunks = comptime!(width / CHUNK);
    #[unroll]
    for nth in 0..comptime!(chunks_of_unit(count, width)) {
        let place = UNIT_POS as usize + comptime!(nth * UNITS);
        let row = min(first + place / chunks, rows.last);
        fetched[nth] = x[rows.base + row * rows.stride + place % chunks];
    }
}

/// Puts the units' chunks of a tile of `count` rows into shared memory.
#[cube]
pub(super) fn place<F: Float>(
    tile: &mut SharedMemory<Chunk<F>>,
    fetched: &Array<Chunk<F>>,
    #[comptime] count: usize,
    #[comptime] width: usize,
) {
    let chunks = comptime!(width / CHUNK);
    #[unroll]
    for nth in 0..comptime!(chunks_of_unit(count, width)) {
        let place = UNIT_POS as usize + comptime!(nth * UNITS);
        // For most widths this is true for all units, and the compiler finds that out.
        if place < comptime!(count * chunks) {
            tile[place / chunks * comptime!(pitch(width)) + place % chunks] = fetched[nth];
        }
    }
}

/// The left matrix of `[b, rows, heads, width]` whose rows start at `first` and whose columns start at a feature; the
/// last row is repeated past the end.
#[cube]
pub(super) fn left_of_memory<F: Float>(
    x: &Tensor<Pair<F>>,
    head: usize,
    first: usize,
    #[comptime] feature: usize,
) -> Registers<F> {
    let base = CUBE_POS_Z as usize * x.stride(0) + head * x.stride(2) + column_of_unit();
    let mut registers = Registers::<F>::new(4usize);
    #[unroll]
    for half in 0..2usize {
        let row = min(first + row_of_unit() + half * 8, x.shape(1) - 1);
        let place = base + row * x.stride(1) + feature;
        registers[half] = x[place / 2];
        registers[2 + half] = x[place / 2 + 4];
    }
    registers
}

/// Writes a strip of sums to its place in `[b, rows, heads, width]`: row `g` times the first factor, and row `g + 8`
/// times the second.
#[cube]
pub(super) fn store<F: Float>(
    sums: &Sequence<Registers<f32>>,
    y: &mut Tensor<Pair<F>>,
    head: usize,
    first: usize,
    factors: &Array<f32>,
    #[comptime] from: usize,
    #[comptime] width: usize,
) {
    let base = CUBE_POS_Z as usize * y.stride(0) + head * y.stride(2) + column_of_unit();
    #[unroll]
    for half in 0..2usize {
        let row = first + row_of_unit() + half * 8;
        if row < y.shape(1) {
            #[unroll]
            for block in 0..comptime!(width / COLUMNS) {
                let place = base + row * y.stride(1) + block * COLUMNS;
                let scaled =
                    sums.index(comptime!(from + block))[half] * Pair::<f32>::new(factors[half]);
                y[place / 2] = Pair::<F>::cast_from(scaled);
            }
        }
    }
}

/// The greatest value of the four units that share a row.
#[cube]
pub(super) fn max_of_row(value: f32) -> f32 {
    let pair = max(value, plane_shuffle_xor(value, 1));
    max(pair, plane_shuffle_xor(pair, 2))
}

/// The sum of the values of the four units that share a row.
#[cube]
pub(super) fn sum_of_row(value: f32) -> f32 {
    let pair = value + plane_shuffle_xor(value, 1);
    pair + plane_shuffle_xor(pair, 2)
}

/// Adds the products of strips with the rows of a tile, one block of [`COLUMNS`] rows after the other for each strip.
#[cube]
pub(super) fn products<F: Float>(
    parts: &Sequence<Registers<F>>,
    tile: &SharedMemory<Chunk<F>>,
    sums: &mut Sequence<Registers<f32>>,
    #[comptime] width: usize,
    #[comptime] rows: usize,
    #[comptime] strips: usize,
) {
    let steps = comptime!(width / DEPTH);
    let blocks = comptime!(rows / COLUMNS);
    #[unroll]
    for step in 0..steps {
        #[unroll]
        for pair in 0..comptime!(rows / 16) {
            let both = right_of_rows::<F>(
                tile,
                pair * 16,
                comptime!(step * DEPTH / CHUNK),
                comptime!(pitch(width)),
            );
            #[unroll]
            for which in 0..2usize {
                let right = one_of_two::<F>(&both, which);
                #[unroll]
                for strip in 0..strips {
                    multiply::<F>(
                        parts.index(comptime!(strip * steps + step)),
                        &right,
                        sums.index_mut(comptime!(strip * blocks + 2 * pair + which)),
                    );
                }
            }
        }
    }
}

/// Adds the products of strips of weights, `[16, rows]` each, with the rows of a tile.
#[cube]
pub(super) fn accumulate<F: Float>(
    weights: &Sequence<Registers<f32>>,
    tile: &SharedMemory<Chunk<F>>,
    sums: &mut Sequence<Registers<f32>>,
    #[comptime] width: usize,
    #[comptime] rows: usize,
    #[comptime] strips: usize,
) {
    let blocks = comptime!(width / COLUMNS);
    #[unroll]
    for step in 0..comptime!(rows / DEPTH) {
        let mut left = Sequence::<Registers<F>>::new();
        #[unroll]
        for strip in 0..strips {
            let block = comptime!(strip * (rows / COLUMNS) + 2 * step);
            let (first, second) = (weights.index(block), weights.index(comptime!(block + 1)));
            left.push(left_of_sums::<F>(first, second));
        }
        #[unroll]
        for pair in 0..comptime!(width / 16) {
            let both = right_of_columns::<F>(
                tile,
                step * DEPTH,
                comptime!(2 * pair),
                comptime!(pitch(width)),
            );
            #[unroll]
            for which in 0..2usize {
                let right = one_of_two::<F>(&both, which);
                #[unroll]
                for strip in 0..strips {
                    multiply::<F>(
                        left.index(strip),
                        &right,
                        sums.index_mut(comptime!(strip * blocks + 2 * pair + which)),
                    );
                }
            }
        }
    }
}
