//! Plans that fit where less of a GPU's memory stays free than is usual.

use ir::units::{Bytes, Nanos};

use super::choice::RESOLUTION;
use super::found::{Found, simulated};
use super::node::Searcher;
use super::outcome::{Best, Outcome};
use super::request::{Observe, Request, StopReason};
use super::space::Family;
use super::{branch_and_bound, search};
use crate::problem::Problem;

/// A plan that fits with less headroom than is in force.
#[derive(Clone, Debug, PartialEq)]
pub struct WithLessHeadroom {
    /// The plan, with the memory that it has with that headroom.
    pub found: Found,
    /// The headroom.
    pub headroom: Bytes,
}

/// The fastest plan that fits with less headroom alone, where that is faster than `best` by more than can be told apart.
pub(super) fn with_less_headroom(
    searcher: Searcher<'_>,
    families: &[Family],
    best: Option<&Found>,
    observe: &mut Observe<'_>,
) -> Option<WithLessHeadroom> {
    let problem = searcher.problem;
    let best = best.filter(|_| problem.room < problem.hardware.memory)?;
    let time = Nanos::from(best.evaluation.step_time);
    let limit = Nanos::new((time.as_f64() / (1.0 + RESOLUTION)) as u64);
    let open = problem.clone().with_headroom(Bytes::ZERO);
    let searcher = searcher.with_problem(&open);
    let branched = branch_and_bound(&searcher, families, Best::below(1, limit), observe);
    let found = branched.best.plans.first().filter(|it| it.time <= limit)?;
    Some(at_largest_headroom(problem, &searcher.found(found.layout, &found.ends)))
}

/// A plan with the largest headroom with which it fits.
fn at_largest_headroom(problem: &Problem, found: &Found) -> WithLessHeadroom {
    let headroom = largest_headroom(problem, found);
    let problem = problem.clone().with_headroom(headroom);
    WithLessHeadroom { found: simulated(&problem, found.layout, &found.stage_ends).0, headroom }
}

/// The most of a GPU's memory that stays free beside a plan, but for what the allocator keeps and would free: in whole
/// GiB, or in tenths below one.
pub fn largest_headroom(problem: &Problem, found: &Found) -> Bytes {
    let memory = problem.hardware.memory;
    let full = problem.clone().with_headroom(memory);
    let needed = simulated(&full, found.layout, &found.stage_ends).0.evaluation.memory.total();
    let free = memory.saturating_sub(needed).as_gib();
    let gib = if free >= 1.0 { free.floor() } else { (free * 10.0).floor() / 10.0 };
    Bytes::from_f64(gib * f64::from(1u32 << 30))
}

/// The best plan of a request with the headroom in force; where none fits so, the best that fits at all, with the headroom
/// that it leaves.
pub fn evaluate(
    problem: &Problem,
    request: &Request,
    observe: &mut Observe<'_>,
) -> (Outcome, Option<Bytes>) {
    let outcome = search(problem, request, observe);
    let has_answer = !outcome.plans.is_empty() || outcome.stop_reason != StopReason::Exhausted;
    if has_answer || problem.room >= problem.hardware.memory {
        return (outcome, None);
    }
    let open = problem.clone().with_headroom(Bytes::ZERO);
    let mut any = search(&open, &Request { closest: false, ..*request }, observe);
    if any.plans.is_empty() {
        return (outcome, None);
    }
    let least = any.plans.iter().map(|it| largest_headroom(problem, it)).min().unwrap_or_default();
    let left = problem.clone().with_headroom(least);
    for found in &mut any.plans {
        *found = simulated(&left, found.layout, &found.stage_ends).0;
    }
    (any, Some(least))
}
