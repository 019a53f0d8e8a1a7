//! Tiles of rows in shared memory, and their products.
//!
//! Eight units form a *team*, which has a few rows of the cube's own tile. The team's units loop together over the
//! tiles of the other side: each unit takes every eighth column of the scores and every eighth feature of the results.
//! So a unit uses each value from shared memory for several of its rows, and neighbouring units read neighbouring
//! memory.
//!
//! A row of a tile holds its features, padded with zeros to a multiple of eight, and one number more, which puts the
//! same feature of neighbouring rows into different banks.

use burn_cubecl::CubeRuntime;
use cubecl::prelude::*;

/// Units of a team.
pub(super) const LANES: usize = 8;

/// Rows of a team.
pub(super) const ROWS: usize = 2;

/// Upper bound of a cube's shared memory in bytes, even where there is more: several cubes then run at the same time.
const MOST_SHARED: usize = 48 * 1024;

/// Tile sizes to try, the best first.
const SIZES: [Tiling; 5] = [
    Tiling { own: 64, other: 32 },
    Tiling { own: 32, other: 32 },
    Tiling { own: 32, other: 16 },
    Tiling { own: 16, other: 16 },
    Tiling { own: 8, other: 8 },
];

/// Rows of a cube's tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tiling {
    /// Rows for which the cube computes results.
    pub(super) own: usize,
    /// Rows of the other side that the cube loads at a time.
    pub(super) other: usize,
}

impl Tiling {
    /// The best tiling whose shared memory, `numbers` fp32 numbers, fits the device.
    pub(super) fn fitting<R: CubeRuntime>(
        client: &ComputeClient<R>,
        numbers: impl Fn(Self) -> usize,
    ) -> Option<Self> {
        let hardware = &client.properties().hardware;
        let most = hardware.max_shared_memory_size.min(MOST_SHARED);
        SIZES.into_iter().find(|tiling| {
            numbers(*tiling) * size_of::<f32>() <= most
                && tiling.units() <= hardware.max_units_per_cube as usize
        })
    }

    /// Number of units of a cube.
    pub(super) const fn units(self) -> usize {
        self.own / ROWS * LANES
    }

    /// Number of columns of the scores of a unit.
    pub(super) const fn columns(self) -> usize {
        self.other / LANES
    }

    /// Number of fp32 numbers in shared memory that a row of scores takes.
    pub(super) const fn pitch(self) -> usize {
        self.other + 1
    }
}

/// Number of fp32 numbers in shared memory that a row of a tile takes.
pub(super) const fn pitch(width: usize) -> usize {
    features(width) * LANES + 1
}

/// Number of features of a row that a unit has.
pub(super) const fn features(width: usize) -> usize {
    width.div_ceil(LANES)
}

/// The unit's index in its team.
#[cube]
pub(super) fn lane() -> usize {
    UNIT_POS as usize % LANES
}

/// The first row of the unit's team in the cube's own tile.
#[cube]
pub(super) fn first_row() -> usize {
    UNIT_POS as usize / LANES * ROWS
}

/// Rows `first..` of `[b, rows, heads, width]` as a tile of `count` rows; zeros behind the last.
#[cube]
pub(super) fn load<F: Float>(
    tile: &mut SharedMemory<f32>,
    x: &Tensor<F>,
    head: usize,
    first: usize,
    #[comptime] count: usize,
    #[comptime] width: usize,
    #[comptime] tiling: Tiling,
) {
    let base = CUBE_POS_Z as usize * x.stride(0) + head * x.stride(2);
    let padded = comptime!(features(width) * LANES);
    let units = comptime!(tiling.units());
    for place in range_stepped(UNIT_POS as usize, comptime!(count * padded), units) {
        let (row, feature) = (place / padded, place % padded);
        let mut value = f32::new(0.0);
        if first + row < x.shape(1) && feature < width {
            value = f32::cast_from(x[base + (first + row) * x.stride(1) + feature * x.stride(3)]);
        }
        tile[row * comptime!(pitch(width)) + feature] = value;
    }
}

/// The products of the unit's rows of `own` with its columns, rows of `other`, `[ROWS, columns]`.
#[cube]
pub(super) fn products(
    own: &SharedMemory<f32>,
    other: &SharedMemory<f32>,
    #[comptime] width: usize,
    #[comptime] tiling: Tiling,
) -> Array<f32> {
    let columns = comptime!(tiling.columns());
    let pitch = comptime!(pitch(width));
    let (first, lane) = (first_row(), lane());
    let mut sums = zeros(comptime!(ROWS * columns));
    for feature in 0..width {
        #[unroll]
        for column in 0..columns {
            let right = other[(column * LANES + lane) * pitch + feature];
            #[unroll]
            for row in 0..ROWS {
                sums[row * columns + column] += own[(first + row) * pitch + feature] * right;
            }
        }
    }
    sums
}

/// Adds the rows of `other`, each times its weight from `[own, other]`, to the unit's rows and features.
#[cube]
pub(super) fn accumulate(
    sums: &mut Array<f32>,
    weights: &SharedMemory<f32>,
    other: &SharedMemory<f32>,
    #[comptime] width: usize,
    #[comptime] tiling: Tiling,
) {
    let features = comptime!(features(width));
    let (weights_pitch, pitch) = comptime!((tiling.pitch(), pitch(width)));
    let (first, lane) = (first_row(), lane());
    for place in 0..comptime!(tiling.other) {
        #[unroll]
        for row in 0..ROWS {
            let weight = weights[(first + row) * weights_pitch + place];
            #[unroll]
            for feature in 0..features {
                sums[row * features + feature] +=
                    weight * other[place * pitch + feature * LANES + lane];
            }
        }
    }
}

/// Writes the unit's rows and features, times `factor`, to their place in `[b, rows, heads, width]`.
#[cube]
pub(super) fn store<F: Float>(
    sums: &Array<f32>,
    y: &mut Tensor<F>,
    head: usize,
    first: usize,
    factor: f32,
    #[comptime] width: usize,
) {
    let features = comptime!(features(width));
    let base = CUBE_POS_Z as usize * y.stride(0) + head * y.stride(2);
    #[unroll]
    for row in 0..ROWS {
        let place = first + first_row() + row;
        #[unroll]
        for feature in 0..features {
            let column = feature * LANES + lane();
            if place < y.shape(1) && column < width {
                let value = sums[row * features + feature] * factor;
                y[base + place * y.stride(1) + column] = F::cast_from(value);
            }
        }
    }
}

/// An array of `count` zeros, private to the unit.
#[cube]
pub(super) fn zeros(#[comptime] count: usize) -> Array<f32> {
    let mut numbers = Array::<f32>::new(count);
    #[unroll]
    for place in 0..count {
        numbers[place] = f32::new(0.0);
    }
    numbers
}
