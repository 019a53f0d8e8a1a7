//! Plans that fit only with less headroom than is usual.

use ir::units::{Bytes, Nanos};

use super::branch_and_bound::branch_and_bound;
use super::choice::RESOLUTION;
use super::evaluated_plan::{EvaluatedPlan, simulated};
use super::family::ShapeFamily;
use super::node::Searcher;
use super::outcome::{Best, WithLessHeadroom};
use super::request::Observe;
use crate::problem::Problem;

/// The fastest plan that fits only with less headroom, if the model can tell that it is faster than `best`.
pub(super) fn with_less_headroom(
    searcher: Searcher<'_>,
    misfits: &[ShapeFamily],
    best: Option<&EvaluatedPlan>,
    observe: &mut Observe<'_>,
) -> Option<WithLessHeadroom> {
    let problem = searcher.problem;
    let best = best.filter(|_| problem.memory_budget < problem.hardware.memory)?;
    let time = Nanos::from(best.evaluation.step_time);
    let limit = Nanos::new((time.as_f64() / (1.0 + RESOLUTION)) as u64);
    let open = problem.clone().with_headroom(Bytes::ZERO);
    let searcher = searcher.with_problem(&open);
    let branched = branch_and_bound(&searcher, misfits, Best::below(1, limit), observe);
    let found = branched.best.plans.first().filter(|it| it.time <= limit)?;
    Some(at_largest_headroom(problem, &searcher.found(found.layout, &found.ends)))
}

/// A plan, evaluated with the largest headroom with which it fits.
fn at_largest_headroom(problem: &Problem, found: &EvaluatedPlan) -> WithLessHeadroom {
    let headroom = largest_headroom(problem, found);
    let problem = problem.clone().with_headroom(headroom);
    WithLessHeadroom { found: simulated(&problem, found.layout, &found.stage_ends).0, headroom }
}

/// The largest headroom with which a plan fits, in whole GiB, or in tenths below one; zero where GPUs are of several
/// kinds, as the fullest GPU need not be the one that decides. Memory that the allocator caches and would free counts
/// as free.
pub fn largest_headroom(problem: &Problem, found: &EvaluatedPlan) -> Bytes {
    if problem.groups.is_some() {
        return Bytes::ZERO;
    }
    let memory = problem.hardware.memory;
    let full = problem.clone().with_headroom(memory);
    let needed = simulated(&full, found.layout, &found.stage_ends).0.evaluation.memory.total();
    let free = memory.saturating_sub(needed).as_gib();
    let gib = if free >= 1.0 { free.floor() } else { (free * 10.0).floor() / 10.0 };
    Bytes::from_f64(gib * f64::from(1u32 << 30))
}
