//! Plans in a few numbers.

use ir::layout::LayoutSpec;
use ir::units::Bytes;
use planner_core::problem::Problem;
use planner_core::search::EvaluatedPlan;
use serde::Serialize;

/// A plan in a few numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PlanSummary {
    /// Its layout.
    pub layout: LayoutSpec,
    /// Time of a step.
    pub step_time_seconds: f64,
    /// Throughput; samples of a model without a sequence.
    pub tokens_per_second_per_gpu: f64,
    /// Model FLOP/s over the peak's.
    pub mfu: f64,
    /// Memory of the fullest rank.
    pub peak_memory_bytes: Bytes,
}

impl PlanSummary {
    /// That of a plan that was found.
    pub fn of(problem: &Problem, found: &EvaluatedPlan) -> Self {
        let prediction = found.prediction(problem);
        Self {
            layout: *found.layout,
            step_time_seconds: prediction.step_time_seconds,
            tokens_per_second_per_gpu: prediction.tokens_per_second_per_gpu,
            mfu: prediction.mfu,
            peak_memory_bytes: prediction.peak_memory_bytes,
        }
    }
}
