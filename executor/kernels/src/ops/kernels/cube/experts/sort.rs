//! Sorting of choices by expert. One cube for each expert loops over all choices, cut into one piece for each of its
//! units, so that choices of one expert stay in the order of rows and no two units add to the same memory.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::super::launch::{Grid, UNITS, cube_sum, empty, has_planes, launch, len, rows_and_width};

/// Number of choices of each expert, `[experts]`.
pub(in super::super) fn count<R: CubeRuntime>(
    experts: CubeTensor<R>,
    num_experts: usize,
) -> CubeTensor<R> {
    let experts = into_contiguous(experts);
    let counts = empty(&experts, &[num_experts], DType::I32);
    let planes = has_planes(&experts.client);
    let grid = Grid::of_cubes(&[&experts], num_experts, UNITS);
    let (experts, out) = (experts.into_array_arg(), counts.clone().into_array_arg());
    launch!(count_kernel, grid, experts, out, num_experts, planes);
    counts
}

/// Choices and their rows sorted by expert, and the position of each choice there, from choices `[rows, top_k]` and
/// their counts.
pub(in super::super) fn sort<R: CubeRuntime>(
    experts: CubeTensor<R>,
    counts: CubeTensor<R>,
) -> [CubeTensor<R>; 3] {
    let experts = into_contiguous(experts);
    let [_, top_k] = rows_and_width(&experts);
    let (num_choices, num_experts) = (len(&experts), len(&counts));
    let sent = || empty(&experts, &[num_choices], DType::I32);
    let (choices, rows) = (sent(), sent());
    let places = empty(&experts, experts.meta.shape(), DType::I32);
    launch!(
        sort_kernel,
        Grid::of_cubes(&[&experts], num_experts, UNITS),
        experts.into_array_arg(),
        counts.into_array_arg(),
        choices.clone().into_array_arg(),
        rows.clone().into_array_arg(),
        places.clone().into_array_arg(),
        num_experts,
        top_k,
    );
    [choices, rows, places]
}

#[cube(launch, address_type = "dynamic")]
fn count_kernel(
    experts: &Array<i32>,
    counts: &mut Array<i32>,
    num_experts: usize,
    #[comptime] planes: bool,
) {
    let expert = CUBE_POS;
    if expert < num_experts {
        let mut own = 0i32.runtime();
        for choice in range_stepped(UNIT_POS as usize, experts.len(), UNITS) {
            if usize::cast_from(experts[choice]) == expert {
                own += 1;
            }
        }
        // Exact below 2^24, and a micro-batch has fewer choices.
        let sum = cube_sum(f32::cast_from(own), UNITS, planes);
        if UNIT_POS == 0 {
            counts[expert] = i32::cast_from(sum);
        }
    }
}

#[cube(launch, address_type = "dynamic")]
fn sort_kernel(
    experts: &Array<i32>,
    counts: &Array<i32>,
    choices: &mut Array<i32>,
    rows: &mut Array<i32>,
    places: &mut Array<i32>,
    num_experts: usize,
    top_k: usize,
) {
    let expert = CUBE_POS;
    let unit = UNIT_POS as usize;
    let mut of_units = SharedMemory::<u32>::new(UNITS);
    if expert < num_experts {
        let piece = experts.len().div_ceil(UNITS);
        let start = min(unit * piece, experts.len());
        let end = min(start + piece, experts.len());
        let mut own = 0u32.runtime();
        for choice in start..end {
            if usize::cast_from(experts[choice]) == expert {
                own += 1;
            }
        }
        of_units[unit] = own;
        sync_cube();
        let mut place = 0usize.runtime();
        for other in 0..expert {
            place += usize::cast_from(counts[other]);
        }
        for other in 0..unit {
            place += usize::cast_from(of_units[other]);
        }
        for choice in start..end {
            if usize::cast_from(experts[choice]) == expert {
                choices[place] = i32::cast_from(choice);
                rows[place] = i32::cast_from(choice / top_k);
                places[choice] = i32::cast_from(place);
                place += 1;
            }
        }
    }
}
