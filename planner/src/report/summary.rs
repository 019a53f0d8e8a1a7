//! Short summary of a plan.

use ir::layout::LayoutSpec;
use ir::units::Bytes;
use planner_core::problem::Problem;
use planner_core::search::EvaluatedPlan;
use serde::Serialize;

/// Layout, step time, throughput and memory of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanSummary {
    /// Layout of the plan.
    pub layout: LayoutSpec,
    /// The layout in short, as `--layout` takes it.
    pub layout_name: String,
    /// Time of a step.
    pub step_time_seconds: f64,
    /// Tokens per second on each GPU; samples for a model without a sequence.
    pub tokens_per_second_per_gpu: f64,
    /// Model FLOP/s over the GPU's peak FLOP/s.
    pub mfu: f64,
    /// Peak memory of the fullest rank.
    pub peak_memory_bytes: Bytes,
}

impl PlanSummary {
    /// The summary of an evaluated plan.
    pub fn of(problem: &Problem, found: &EvaluatedPlan) -> Self {
        let prediction = found.prediction(problem);
        Self {
            layout: *found.layout,
            layout_name: found.layout.to_string(),
            step_time_seconds: prediction.step_time_seconds,
            tokens_per_second_per_gpu: prediction.tokens_per_second_per_gpu,
            mfu: prediction.mfu,
            peak_memory_bytes: prediction.peak_memory_bytes,
        }
    }
}
