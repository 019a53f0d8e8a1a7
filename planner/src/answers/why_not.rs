//! Why a plan does without something.

use ir::layout::PartialLayout;
use ir::units::Bytes;

use super::difference::Difference;
use crate::problem::Problem;
use crate::search::{Found, Go, Request, StopReason, search};

/// Why a plan does without what was asked about.
#[derive(Clone, Debug, PartialEq)]
pub enum WhyNot {
    /// It does not: the plan has it.
    Chosen,
    /// The framework cannot run it, for lack of these.
    Lacking(Vec<String>),
    /// No layout of so many GPUs has it.
    Impossible(String),
    /// Every layout that has it needs too much memory: the one that needs least, and how much that is too much.
    TooLarge(Box<Found>, Bytes),
    /// The best that has it is slower, or is to be told apart from the plan by nothing.
    Slower(Box<Found>, Box<Difference>),
    /// The time was over before an answer was found.
    Unknown,
}

/// Why `plan`, the best of a request, does without what `asked` names, which is all that the request fixes and more.
pub fn why_not(
    problem: &Problem,
    request: &Request,
    plan: &Found,
    asked: &PartialLayout,
    go: &mut (dyn FnMut() -> Go + Send),
) -> WhyNot {
    let lacks = problem.hardware.framework.abilities.lacks(asked, problem.model_facts());
    if !lacks.is_empty() {
        return WhyNot::Lacking(lacks);
    }
    let request = Request { fixed: *asked, top: 1, ..*request };
    let outcome = search(problem, &request, &mut |_| go());
    match (outcome.plans.into_iter().next(), outcome.closest) {
        (Some(found), _) if found.layout == plan.layout => WhyNot::Chosen,
        (Some(found), _) => {
            let difference = Difference::of((problem, plan), (problem, &found));
            WhyNot::Slower(Box::new(found), Box::new(difference))
        }
        (None, Some(closest)) => {
            let excess = closest.excess(problem.room);
            WhyNot::TooLarge(Box::new(closest), excess)
        }
        (None, None) if outcome.stop_reason != StopReason::Exhausted => WhyNot::Unknown,
        (None, None) => {
            let reason = outcome.invalid.map_or_else(String::new, |error| error.to_string());
            WhyNot::Impossible(reason)
        }
    }
}
