//! JSON output of a search that chooses the split of each operator.

use std::time::Duration;

use ir::graph::ByMeshAxis;
use ir::layout::LayoutSpec;
use ir::model::Model;
use ir::plan::{Prediction, Training};
use ir::units::Bytes;
use planner_core::operators::{OperatorPlan, OperatorSearch, SplitOperator};
use planner_core::problem::Problem;
use planner_core::search::StopReason;
use serde::Serialize;

use super::search::ModelReport;

/// JSON report of a search over the splits of operators.
#[derive(Debug, Serialize)]
pub struct OperatorReport<'a> {
    model: ModelReport,
    num_gpus: u32,
    cluster: &'a str,
    framework: &'a str,
    training: Training,
    plans: Vec<PlanReport<'a>>,
    search: Statistics,
}

#[derive(Debug, Serialize)]
struct PlanReport<'a> {
    layout: LayoutSpec,
    /// Number of ranks of a stage along each axis of the mesh; the axis of neighbouring ranks comes first.
    mesh: ByMeshAxis<u32>,
    #[serde(flatten)]
    prediction: Prediction,
    /// Time that a rank spends on exchanges in a step, whether overlapped or not; for exchanges between stages, only
    /// the time in which the rank waits.
    communication_seconds: f64,
    /// True if the predicted peak memory fits.
    fits: bool,
    /// True if the predicted peak memory fits and leaves the headroom free.
    fits_with_headroom: bool,
    /// Memory of a GPU that must stay free.
    headroom_bytes: Bytes,
    /// End of each stage, in blocks of the chain.
    stage_ends: &'a [usize],
    operators: &'a [SplitOperator],
}

#[derive(Debug, Serialize)]
struct Statistics {
    candidates: u64,
    evaluated: u64,
    pruned: u64,
    elapsed_seconds: f64,
    stop_reason: StopReason,
    /// Upper bound of the share of the first plan's time by which any other plan without stages could be faster; `null`
    /// if the search was stopped.
    gap: Option<f64>,
}

impl<'a> OperatorReport<'a> {
    /// The report of the first `top` plans that were found.
    pub fn new(
        problem: &'a Problem,
        model: &Model,
        cluster: &'a str,
        found: &'a OperatorSearch,
        top: usize,
        elapsed: Duration,
    ) -> Self {
        Self {
            model: ModelReport::new(problem, model),
            num_gpus: problem.limits.num_gpus,
            cluster,
            framework: &problem.hardware.framework.name,
            training: problem.training,
            plans: found
                .plans
                .iter()
                .take(top)
                .map(|plan| PlanReport::new(problem, plan))
                .collect(),
            search: Statistics {
                candidates: found.candidates,
                evaluated: found.evaluated,
                pruned: found.candidates.saturating_sub(found.evaluated),
                elapsed_seconds: elapsed.as_secs_f64(),
                stop_reason: found.stop_reason,
                gap: found.gap(),
            },
        }
    }
}

impl<'a> PlanReport<'a> {
    fn new(problem: &Problem, plan: &'a OperatorPlan) -> Self {
        Self {
            layout: plan.layout,
            mesh: plan.mesh,
            prediction: plan.prediction,
            communication_seconds: plan.communication.get(),
            fits: problem.fits(&plan.prediction.memory),
            fits_with_headroom: problem.fits_with_headroom(&plan.prediction.memory),
            headroom_bytes: problem.headroom(),
            stage_ends: &plan.stage_ends,
            operators: &plan.operators,
        }
    }
}
