//! Matrices in the registers of a plane of 32 units, multiplied by its tensor cores: 16 rows by 16, times 16 by 8
//! columns, of 16 bits, summed in fp32.
//!
//! With `g = unit / 4` and `t = unit % 4`, a unit has of the left matrix the pairs of columns `2 t` and `2 t + 8` of
//! rows `g` and `g + 8`; of the right matrix the pairs of rows `2 t` and `2 t + 8` of column `g`; of the sums the pair
//! of columns `2 t` of rows `g` and `g + 8`. So sums of two neighbouring products are a left matrix as they are.
//!
//! # Source
//!
//! NVIDIA, *PTX ISA*, "Matrix Fragments for mma.m16n8k16" and "ldmatrix",
//! <https://docs.nvidia.com/cuda/parallel-thread-execution/>.

use cubecl::cmma::{MatrixIdent, MmaDefinition};
use cubecl::prelude::*;

/// Rows of a left matrix, which a plane has of its cube's own tile.
pub(super) const STRIP: usize = 16;

/// What is summed over at once.
pub(super) const DEPTH: usize = 16;

/// Columns of a right matrix.
pub(super) const COLUMNS: usize = 8;

/// Elements of the 16 bytes that memory gives at once.
pub(super) const CHUNK: usize = 8;

/// Planes of a cube.
pub(super) const PLANES: usize = 4;

/// Units of a plane.
pub(super) const UNITS_OF_PLANE: usize = 32;

/// Units of a cube.
pub(super) const UNITS: usize = PLANES * UNITS_OF_PLANE;

/// Two neighbouring elements of a row, in one register if they have 16 bits.
pub(super) type Pair<E> = Vector<E, Const<2>>;

/// Neighbouring elements of a row of a tile.
pub(super) type Chunk<F> = Vector<F, Const<8>>;

/// A unit's part of a matrix, a register each.
pub(super) type Registers<E> = Array<Pair<E>>;

/// How many chunks a row of a tile takes: one more than it has, so that the rows that are read at once lie in different
/// banks.
pub(super) const fn pitch(width: usize) -> usize {
    width / CHUNK + 1
}

/// The place of the unit's plane among those of its cube.
#[cube]
pub(super) fn plane() -> usize {
    UNIT_POS as usize / UNITS_OF_PLANE
}

/// The row of sums that is the unit's first; its second is 8 below.
#[cube]
pub(super) fn row_of_unit() -> usize {
    UNIT_POS_PLANE as usize / 4
}

/// The first of the two columns of sums that the unit has.
#[cube]
pub(super) fn column_of_unit() -> usize {
    UNIT_POS_PLANE as usize % 4 * 2
}

/// Rows `first..` of `[b, rows, heads, width]` as a tile of `count` rows; behind the last, the last again.
#[cube]
pub(super) fn load<F: Float>(
    tile: &mut SharedMemory<Chunk<F>>,
    x: &Tensor<Chunk<F>>,
    head: usize,
    first: usize,
    #[comptime] count: usize,
    #[comptime] width: usize,
) {
    let base = CUBE_POS_Z as usize * x.stride(0) + head * x.stride(2);
    let chunks = comptime!(width / CHUNK);
    for place in range_stepped(UNIT_POS as usize, comptime!(count * chunks), UNITS) {
        let (row, chunk) = (place / chunks, place % chunks);
        let source = min(first + row, x.shape(1) - 1);
        tile[row * comptime!(pitch(width)) + chunk] =
            x[(base + source * x.stride(1)) / CHUNK + chunk];
    }
}

/// A left matrix: rows `first..` of a tile, from a chunk on.
#[cube]
pub(super) fn left<F: Float>(
    tile: &SharedMemory<Chunk<F>>,
    first: usize,
    chunk: usize,
    #[comptime] pitch: usize,
) -> Registers<F> {
    let unit = UNIT_POS_PLANE as usize;
    quarters::<F>(tile, (first + unit % 16) * pitch + chunk + unit / 16, false)
}

/// Two right matrices whose columns are rows `first..` of a tile and the eight after them, from a chunk on.
#[cube]
pub(super) fn right_of_rows<F: Float>(
    tile: &SharedMemory<Chunk<F>>,
    first: usize,
    chunk: usize,
    #[comptime] pitch: usize,
) -> Registers<F> {
    let unit = UNIT_POS_PLANE as usize;
    let row = first + unit / 16 * 8 + unit % 8;
    quarters::<F>(tile, row * pitch + chunk + unit / 8 % 2, false)
}

/// Two right matrices whose rows are rows `first..` of a tile, with the columns of a chunk and of the next.
#[cube]
pub(super) fn right_of_columns<F: Float>(
    tile: &SharedMemory<Chunk<F>>,
    first: usize,
    chunk: usize,
    #[comptime] pitch: usize,
) -> Registers<F> {
    let unit = UNIT_POS_PLANE as usize;
    quarters::<F>(tile, (first + unit % 16) * pitch + chunk + unit / 16, true)
}

/// Four matrices of 8 by 8, of whose rows each unit names one.
#[cube]
fn quarters<F: Float>(
    tile: &SharedMemory<Chunk<F>>,
    place: usize,
    #[comptime] is_transposed: bool,
) -> Registers<F> {
    let definition = MmaDefinition::<F, F, f32>::new(STRIP, COLUMNS, DEPTH);
    let row = tile.slice(place, place + 1);
    definition.load_matrix::<_, Const<2>>(&row, MatrixIdent::A, 4usize, is_transposed)
}

/// One of two right matrices that were read together.
#[cube]
pub(super) fn one_of_two<F: Float>(both: &Registers<F>, #[comptime] which: usize) -> Registers<F> {
    let mut one = Registers::<F>::new(2usize);
    one[0] = both[comptime!(2 * which)];
    one[1] = both[comptime!(2 * which + 1)];
    one
}

/// Adds the product of a left and a right matrix to sums.
#[cube]
pub(super) fn multiply<F: Float>(
    left: &Registers<F>,
    right: &Registers<F>,
    sums: &mut Registers<f32>,
) {
    let definition = MmaDefinition::<F, F, f32>::new(STRIP, COLUMNS, DEPTH);
    definition.execute_inplace(left, right, sums);
}

/// The left matrix of `[b, rows, heads, width]` whose rows start at `first` and whose columns start at a feature; behind
/// the last row, that again.
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

/// So many sums, all zero.
#[cube]
pub(super) fn zeros(#[comptime] count: usize) -> Sequence<Registers<f32>> {
    let mut all = Sequence::<Registers<f32>>::new();
    #[unroll]
    for _ in 0..count {
        let mut sums = Registers::<f32>::new(2usize);
        sums[0] = Pair::<f32>::new(0.0);
        sums[1] = Pair::<f32>::new(0.0);
        all.push(sums);
    }
    all
}

/// The left matrix that sums of two neighbouring products are, in 16 bits.
#[cube]
pub(super) fn left_of_sums<F: Float>(
    first: &Registers<f32>,
    second: &Registers<f32>,
) -> Registers<F> {
    let mut registers = Registers::<F>::new(4usize);
    registers[0] = Pair::<F>::cast_from(first[0]);
    registers[1] = Pair::<F>::cast_from(first[1]);
    registers[2] = Pair::<F>::cast_from(second[0]);
    registers[3] = Pair::<F>::cast_from(second[1]);
    registers
}

/// Writes a strip of sums, those of row `g` times the first factor and those of row `g + 8` times the second, where
/// `[b, rows, heads, width]` has them.
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

/// The largest of a number of each of the four units that have the same rows.
#[cube]
pub(super) fn max_of_row(value: f32) -> f32 {
    let pair = max(value, plane_shuffle_xor(value, 1));
    max(pair, plane_shuffle_xor(pair, 2))
}

/// The sum of a number of each of the four units that have the same rows.
#[cube]
pub(super) fn sum_of_row(value: f32) -> f32 {
    let pair = value + plane_shuffle_xor(value, 1);
    pair + plane_shuffle_xor(pair, 2)
}
