//! Plans as they are on the page.

use planner_core::plan::name_timeline;
use planner_core::problem::Problem;
use planner_core::search::{EvaluatedPlan, simulated};
use planner_core::step::Simulated;

/// A plan on the page.
#[derive(Clone, Debug)]
pub struct PagePlan {
    /// The plan.
    pub found: EvaluatedPlan,
    /// Its step, played through.
    pub simulated: Simulated,
    /// How likely it is that no plan of another kind is faster, where that is known.
    pub likelihood: Option<f64>,
}

impl PagePlan {
    /// A plan that was found, played through.
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

/// What a problem itself does not say.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// The model's.
    pub model: &'a str,
    /// The cluster's.
    pub cluster: &'a str,
}

/// What a plan is called on the page: its place and its layout.
pub(super) fn name(index: usize, plan: &PagePlan) -> String {
    format!("{} {}", index + 1, *plan.found.layout)
}
