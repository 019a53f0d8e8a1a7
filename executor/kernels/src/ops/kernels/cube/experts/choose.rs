//! Choice of experts: one cube for each row, in which each unit ranks its experts by counting the better experts.

use burn::tensor::DType;
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use ir::graph::ExpertGroups;

use super::super::launch::{Grid, UNITS, empty, launch, rows_and_width};
use crate::ops::experts::RoutingRule;

/// Replacement for minus infinity, below any score.
const LOWEST: f32 = -3.0e38;

/// Numbers in shared memory for each expert. Two are the expert's own: its score, and its score if it is among the best
/// of its group. Each group and each chosen expert has one number more, and there are no more groups or chosen experts
/// than experts.
const KEPT: usize = 4;

/// The most experts whose scores fit a cube's shared memory.
pub(in super::super) fn most_experts<R: CubeRuntime>(client: &ComputeClient<R>) -> usize {
    client.properties().hardware.max_shared_memory_size / (KEPT * size_of::<f32>())
}

/// Choice of groups, which precedes that of experts: one group of all experts where there are no groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Groups {
    count: usize,
    chosen: usize,
    scored_by: usize,
}

impl From<Option<ExpertGroups>> for Groups {
    fn from(groups: Option<ExpertGroups>) -> Self {
        groups.map_or(Self { count: 1, chosen: 1, scored_by: 0 }, |groups| Self {
            count: groups.count as usize,
            chosen: groups.chosen as usize,
            scored_by: groups.scored_by as usize,
        })
    }
}

/// Experts `[rows, top_k]`, and their weights in fp32, from probabilities `[rows, experts]` in fp32.
pub(in super::super) fn choose<R: CubeRuntime>(
    probabilities: CubeTensor<R>,
    correction: Option<CubeTensor<R>>,
    rule: &RoutingRule,
) -> [CubeTensor<R>; 2] {
    let probabilities = into_contiguous(probabilities);
    let [rows, num_experts] = rows_and_width(&probabilities);
    let shape = [rows, rule.top_k];
    let experts = empty(&probabilities, &shape, DType::I32);
    let weights = empty(&probabilities, &shape, DType::F32);
    if rows > 0 {
        let is_corrected = correction.is_some();
        // An absent correction is not read: any array will do.
        let correction = into_contiguous(correction.unwrap_or_else(|| probabilities.clone()));
        let units = num_experts.next_power_of_two().clamp(32, UNITS);
        launch!(
            choose_kernel,
            Grid::of_cubes(&[&probabilities, &weights], rows, units),
            probabilities.into_array_arg(),
            correction.into_array_arg(),
            experts.clone().into_array_arg(),
            weights.clone().into_array_arg(),
            rows,
            rule.scaling as f32,
            num_experts,
            rule.top_k,
            rule.groups.into(),
            rule.normalise,
            is_corrected,
            units,
        );
    }
    [experts, weights]
}

#[cube(launch, address_type = "dynamic")]
fn choose_kernel(
    probabilities: &Array<f32>,
    correction: &Array<f32>,
    experts: &mut Array<i32>,
    weights: &mut Array<f32>,
    rows: usize,
    scaling: f32,
    #[comptime] num_experts: usize,
    #[comptime] top_k: usize,
    #[comptime] groups: Groups,
    #[comptime] is_normalised: bool,
    #[comptime] is_corrected: bool,
    #[comptime] units: usize,
) {
    let row = CUBE_POS;
    let first = UNIT_POS as usize;
    let mut scores = SharedMemory::<f32>::new(num_experts);
    let mut chosen = SharedMemory::<f32>::new(top_k);
    if row < rows {
        let start = row * num_experts;
        for expert in range_stepped(first, num_experts, units) {
            let mut score = probabilities[start + expert];
            if is_corrected {
                score += correction[expert];
            }
            // NaN counts as the lowest score, so that each row has `top_k` experts.
            scores[expert] = select(score > LOWEST, score, f32::new(LOWEST));
        }
        sync_cube();
        if comptime!(groups.chosen < groups.count) {
            hide_groups(&mut scores, num_experts, groups, units);
        }
        for expert in range_stepped(first, num_experts, units) {
            let place = before(&scores, expert, 0usize, num_experts);
            if place < top_k {
                experts[row * top_k + place] = i32::cast_from(expert);
                chosen[place] = probabilities[start + expert];
            }
        }
        sync_cube();
        for slot in range_stepped(first, top_k, units) {
            let mut divisor = f32::new(1.0);
            if is_normalised {
                divisor = f32::new(0.0);
                for other in 0..top_k {
                    divisor += chosen[other];
                }
            }
            weights[row * top_k + slot] = chosen[slot] / (divisor / scaling);
        }
    }
}

/// Number of scores from `start` to `end` that are greater than the score of `own`, or equal and before it.
#[cube]
fn before(scores: &SharedMemory<f32>, own: usize, start: usize, end: usize) -> usize {
    let score = scores[own];
    let mut count = 0usize.runtime();
    for other in start..end {
        let value = scores[other];
        if value > score || (value >= score && other < own) {
            count += 1;
        }
    }
    count
}

/// Sets the scores of experts to the lowest, except in the groups with the greatest sums of best scores.
#[cube]
fn hide_groups(
    scores: &mut SharedMemory<f32>,
    #[comptime] num_experts: usize,
    #[comptime] groups: Groups,
    #[comptime] units: usize,
) {
    let size = comptime!(num_experts / groups.count);
    let first = UNIT_POS as usize;
    let mut best = SharedMemory::<f32>::new(num_experts);
    let mut of_groups = SharedMemory::<f32>::new(comptime!(groups.count));
    for expert in range_stepped(first, num_experts, units) {
        let start = expert / size * size;
        let place = before(scores, expert, start, start + size);
        best[expert] = select(place < comptime!(groups.scored_by), scores[expert], f32::new(0.0));
    }
    sync_cube();
    for group in range_stepped(first, comptime!(groups.count), units) {
        let mut sum = f32::new(0.0);
        for place in 0..size {
            sum += best[group * size + place];
        }
        of_groups[group] = sum;
    }
    sync_cube();
    for expert in range_stepped(first, num_experts, units) {
        let place = before(&of_groups, expert / size, 0usize, comptime!(groups.count));
        if place >= comptime!(groups.chosen) {
            scores[expert] = f32::new(LOWEST);
        }
    }
    sync_cube();
}
