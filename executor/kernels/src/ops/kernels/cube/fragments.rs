//! Matrices in the registers of a plane of 32 units, multiplied by its tensor cores: 16 rows by 16, times 16 by 8
//! columns, of 16 bits, summed in fp32.
//!
//! With `g = unit / 4` and `t = unit % 4`, a unit has the pairs of columns `2 t` and `2 t + 8` of rows `g` and `g + 8`
//! of the left matrix; the pairs of rows `2 t` and `2 t + 8` of column `g` of the right matrix; and the pair of columns
//! `2 t` of rows `g` and `g + 8` of the sums. So the sums of two neighbouring products form a left matrix without any
//! exchange between units.
//!
//! # Source
//!
//! NVIDIA, *PTX ISA*, "Matrix Fragments for mma.m16n8k16" and "ldmatrix",
//! <https://docs.nvidia.com/cuda/parallel-thread-execution/>.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use cubecl::cmma::{MatrixIdent, MmaDefinition};
use cubecl::features::MmaConfig;
use cubecl::ir::{ElemType, FloatKind, StorageType};
use cubecl::prelude::*;

/// Rows of a left matrix, which are a plane's part of its cube's tile.
pub(super) const STRIP: usize = 16;

/// Inner size of a product.
pub(super) const DEPTH: usize = 16;

/// Columns of a right matrix.
pub(super) const COLUMNS: usize = 8;

/// Number of 16-bit elements in 16 bytes, the widest access to memory.
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

/// A unit's part of a matrix, one register for each pair.
pub(super) type Registers<E> = Array<Pair<E>>;

/// Chunks of shared memory that a row of a tile takes: one more than its elements fill, so that rows that are read at
/// once are in different banks.
pub(super) const fn pitch(width: usize) -> usize {
    width / CHUNK + 1
}

/// Returns whether planes of a device multiply matrices of this type in these sizes.
pub(super) fn are_multiplied<R: CubeRuntime>(client: &ComputeClient<R>, dtype: DType) -> bool {
    let kind = match dtype {
        DType::F16 => FloatKind::F16,
        DType::BF16 => FloatKind::BF16,
        _ => return false,
    };
    let element = StorageType::Scalar(ElemType::Float(kind));
    let product = MmaConfig {
        a_type: element,
        b_type: element,
        cd_type: StorageType::Scalar(ElemType::Float(FloatKind::F32)),
        m: STRIP as u32,
        n: COLUMNS as u32,
        k: DEPTH as u32,
    };
    let properties = client.properties();
    let (hardware, matmul) = (&properties.hardware, &properties.features.matmul);
    hardware.plane_size_min == UNITS_OF_PLANE as u32
        && hardware.plane_size_max == UNITS_OF_PLANE as u32
        && matmul.mma.contains(&product)
        && matmul.ldmatrix.contains(&element)
}

/// The index of the unit's plane in its cube.
#[cube]
pub(super) fn plane() -> usize {
    UNIT_POS as usize / UNITS_OF_PLANE
}

/// The first of the two rows of sums that the unit has; the second is 8 rows below.
#[cube]
pub(super) fn row_of_unit() -> usize {
    UNIT_POS_PLANE as usize / 4
}

/// The first of the two columns of sums that the unit has.
#[cube]
pub(super) fn column_of_unit() -> usize {
    UNIT_POS_PLANE as usize % 4 * 2
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

/// A left matrix whose columns are rows `first..` of a tile, and whose rows are the columns of a chunk and of the next.
#[cube]
pub(super) fn left_of_columns<F: Float>(
    tile: &SharedMemory<Chunk<F>>,
    first: usize,
    chunk: usize,
    #[comptime] pitch: usize,
) -> Registers<F> {
    let unit = UNIT_POS_PLANE as usize;
    let row = first + unit / 16 * 8 + unit % 8;
    quarters::<F>(tile, row * pitch + chunk + unit / 8 % 2, true)
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

/// Four matrices of 8 by 8; each unit gives the address of one of their rows.
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

/// `count` matrices of sums, all zero.
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

/// The left matrix of the sums of two neighbouring products, in 16 bits.
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
