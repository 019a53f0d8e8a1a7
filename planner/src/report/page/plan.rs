//! Plans of the page.

use planner_core::plan::name_timeline;
use planner_core::problem::Problem;
use planner_core::search::{EvaluatedPlan, simulated};
use planner_core::step::Simulated;

/// A plan on the page.
#[derive(Clone, Debug)]
pub struct PagePlan {
    /// The plan.
    pub found: EvaluatedPlan,
    /// Simulation of the plan's step.
    pub simulated: Simulated,
    /// Probability that no plan of another kind is faster, if known.
    pub likelihood: Option<f64>,
}

impl PagePlan {
    /// Simulates an evaluated plan.
    pub fn new(
        problem: &Problem,
        found: &EvaluatedPlan,
        likelihood: Option<f64>,
        names: Names<'_>,
    ) -> Self {
        let (found, mut simulated) = simulated(problem, found.layout, &found.stage_ends);
        name_timeline(&mut simulated, names.model, names.cluster, problem, &found.layout);
        Self { found, simulated, likelihood }
    }
}

/// Names that a problem does not contain.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// Name of the model.
    pub model: &'a str,
    /// Name of the cluster.
    pub cluster: &'a str,
}

/// Heading of a plan on the page: its rank in the list and its layout.
pub(super) fn name(index: usize, plan: &PagePlan) -> String {
    format!("{} {}", index + 1, *plan.found.layout)
}
