//! Assignment of cubes to rows of experts, by the counts on the device.

use cubecl::prelude::*;

/// Upper bound of the number of tiles of `of_tile` rows that the rows of experts are cut into. No tile has rows of two
/// experts.
pub(super) const fn tiles(rows: usize, num_experts: usize, of_tile: usize) -> usize {
    let begun = if rows < num_experts { rows } else { num_experts };
    rows / of_tile + begun
}

/// Position of a tile among the rows of experts.
#[derive(Clone, Copy, CubeType)]
pub(super) struct ExpertTile {
    /// Number of the expert; `num_experts` if the tile has no rows.
    pub(super) expert: usize,
    /// The tile's first row.
    pub(super) first: usize,
    /// The end of the expert's rows.
    pub(super) end: usize,
}

/// The position of tile number `tile`.
#[cube]
pub(super) fn tile_position(
    counts: &Array<i32>,
    tile: usize,
    num_experts: usize,
    #[comptime] of_tile: usize,
) -> ExpertTile {
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
    ExpertTile { expert, first: start + (tile - tiles_before) * of_tile, end: start + count }
}

/// The first row of an expert.
#[cube]
pub(super) fn start_of(counts: &Array<i32>, expert: usize) -> usize {
    let mut start = 0usize.runtime();
    for other in 0..expert {
        start += usize::cast_from(counts[other]);
    }
    start
}
