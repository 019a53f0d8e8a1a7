//! Which rows of which expert a cube has, by the counts on the device.

use cubecl::prelude::*;

/// The most tiles of so many rows each that the rows of experts are cut into, none of which has rows of two.
pub(super) const fn tiles(rows: usize, num_experts: usize, of_tile: usize) -> usize {
    let begun = if rows < num_experts { rows } else { num_experts };
    rows / of_tile + begun
}

/// A tile's place among the rows of experts.
#[derive(Clone, Copy, CubeType)]
pub(super) struct Place {
    /// Whose rows they are; as many as there are experts if the tile has none.
    pub(super) expert: usize,
    /// The tile's first row.
    pub(super) first: usize,
    /// The end of the expert's rows.
    pub(super) end: usize,
}

/// The place of tile number `tile`.
#[cube]
pub(super) fn place_of(
    counts: &Array<i32>,
    tile: usize,
    num_experts: usize,
    #[comptime] of_tile: usize,
) -> Place {
    let mut expert = 0usize.runtime();
    let mut tiles_before = 0usize.runtime();
    let mut start = 0usize.runtime();
    let mut count = usize::cast_from(counts[0]);
    while expert < num_experts && tile - tiles_before >= count.div_ceil(of_tile) {
        tiles_before += count.div_ceil(of_tile);
        start += count;
        expert += 1;
        count = 0usize.runtime();
        if expert < num_experts {
            count = usize::cast_from(counts[expert]);
        }
    }
    Place { expert, first: start + (tile - tiles_before) * of_tile, end: start + count }
}

/// Where the first row of an expert is.
#[cube]
pub(super) fn start_of(counts: &Array<i32>, expert: usize) -> usize {
    let mut start = 0usize.runtime();
    for other in 0..expert {
        start += usize::cast_from(counts[other]);
    }
    start
}
