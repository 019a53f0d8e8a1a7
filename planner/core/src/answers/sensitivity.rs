//! Sensitivity of the chosen plan to the constants of the cost model.

use cost_models::Hardware;
use ir::layout::LayoutSpec;
use serde::Serialize;

use crate::problem::Problem;
use crate::search::{EvaluatedPlan, Go, RESOLUTION, Request, StopReason, search, simulated};

/// Loss of a plan if one constant differed from the cost model's value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sensitivity {
    /// The constant, in words.
    pub constant: &'static str,
    /// Factor by which the time or the size behind the constant differs.
    pub factor: f64,
    /// Share by which the plan would be slower than the best plan at `factor`. That is the smallest factor tried at
    /// which the choice changes, or else the largest factor tried.
    pub loses: f64,
    /// True if the plan would no longer fit, or would lose more time than the model can resolve.
    pub changes: bool,
    /// True if the plan would no longer fit in memory.
    pub is_too_large: bool,
    /// The layout that would be the best.
    pub best: LayoutSpec,
}

/// A constant in words, and the function that scales it.
type Constant = (&'static str, fn(&mut Hardware, f64));

/// Constants that the choice may depend on.
const CONSTANTS: [Constant; 7] = [
    ("time of matrix products", |it, factor| {
        it.device.training.matmul /= factor;
        it.device.training.matmul_8_bit /= factor;
        it.device.training.matmul_4_bit /= factor;
    }),
    ("time of attention", |it, factor| {
        it.device.training.attention_forward /= factor;
        it.device.training.attention_backward /= factor;
    }),
    ("time of what moves data within a GPU", |it, factor| it.device.training.memory /= factor),
    ("time of the host to launch", |it, factor| {
        it.framework.host.microseconds_per_operator *= factor;
    }),
    ("time of exchanges within layers", |it, factor| {
        it.framework.exchanges.within_blocks *= factor;
    }),
    ("time of exchanges over replicas", |it, factor| {
        it.framework.exchanges.over_replicas *= factor;
    }),
    ("memory of activations", |it, factor| it.framework.memory.saved *= factor),
];

/// Factors by which a constant is varied each way, the nearest first.
const FACTORS: [f64; 4] = [1.1, 1.25, 1.5, 2.0];

/// Losses of `plan` with each constant larger, and with each smaller.
pub fn sensitivities(
    problem: &Problem,
    request: &Request,
    plan: &EvaluatedPlan,
    go: &mut (dyn FnMut() -> Go + Send),
) -> Vec<Sensitivity> {
    let mut all = Vec::new();
    for (constant, scale) in CONSTANTS {
        for is_more in [true, false] {
            let mut last = None;
            for factor in FACTORS {
                let factor = if is_more { factor } else { 1.0 / factor };
                let mut other = problem.clone();
                other.all_hardware_mut().for_each(|hardware| scale(hardware, factor));
                let request = Request { top: 1, find_closest: false, ..*request };
                let outcome = search(&other, &request, &mut |_| go());
                if outcome.stop_reason != StopReason::Exhausted {
                    return all;
                }
                let (own, _) = simulated(&other, plan.layout, &plan.stage_ends);
                let at = other.at_rank(&plan.layout, own.evaluation.fullest_rank);
                let is_too_large = !at.fits_with_headroom(&own.evaluation.memory);
                // If no plan fits, there is no choice.
                let Some(best) = outcome.plans.first() else { break };
                // The plan's stages were cut for other costs, but may happen to be faster than those of the best plan
                // found.
                let loses = (own.evaluation.step_time / best.evaluation.step_time - 1.0).max(0.0);
                let changes = is_too_large || loses > RESOLUTION;
                let best = *best.layout;
                last = Some(Sensitivity { constant, factor, loses, changes, is_too_large, best });
                if changes {
                    break;
                }
            }
            all.extend(last);
        }
    }
    all
}
