//! Data of the page for its scripts.

use ir::units::Bytes;
use serde::Serialize;
use traces::html::script_json;

use super::plan::{PagePlan, name};
use planner_core::answers::depends_on;
use planner_core::problem::Problem;
use planner_core::search::EvaluatedPlan;

/// JSON of all plans, in a form that is safe in a `script` element.
pub(super) fn json(problem: &Problem, plans: &[PagePlan], others: &[EvaluatedPlan]) -> String {
    let is_shown =
        |found: &&EvaluatedPlan| !plans.iter().any(|plan| plan.found.layout == found.layout);
    let data = Data {
        capacity_bytes: problem.hardware.memory,
        plans: plans.iter().enumerate().map(|(index, it)| plan(problem, index, it)).collect(),
        others: others.iter().filter(is_shown).map(point).collect(),
    };
    script_json(&data)
}

#[derive(Serialize)]
struct Data {
    capacity_bytes: Bytes,
    plans: Vec<PlanData>,
    others: Vec<Point>,
}

#[derive(Serialize)]
struct PlanData {
    name: String,
    #[serde(flatten)]
    point: Point,
    time: Vec<Term>,
    memory: Vec<MemoryTerm>,
}

/// Step time and peak memory of a plan.
#[derive(Serialize)]
struct Point {
    layout: String,
    step_time_seconds: f64,
    peak_memory_bytes: Bytes,
}

#[derive(Serialize)]
struct Term {
    name: &'static str,
    seconds: f64,
    /// Settings of the layout that determine this term.
    because: String,
}

#[derive(Serialize)]
struct MemoryTerm {
    name: &'static str,
    bytes: Bytes,
}

fn point(found: &EvaluatedPlan) -> Point {
    Point {
        layout: format!("{}, {}", *found.layout, found.layout.schedule),
        step_time_seconds: found.evaluation.step_time.get(),
        peak_memory_bytes: found.evaluation.memory.total(),
    }
}

fn plan(problem: &Problem, index: usize, plan: &PagePlan) -> PlanData {
    let PagePlan { found, .. } = plan;
    let term = |(name, seconds): (&'static str, f64)| Term {
        name,
        seconds,
        because: depends_on(name, problem, &found.layout),
    };
    let line = |(name, bytes): (&'static str, Bytes)| MemoryTerm { name, bytes };
    PlanData {
        name: name(index, plan),
        point: point(found),
        time: found.evaluation.breakdown.parts().into_iter().map(term).collect(),
        memory: found.evaluation.memory.lines().into_iter().map(line).collect(),
    }
}
