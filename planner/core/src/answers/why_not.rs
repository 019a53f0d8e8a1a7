//! Why a plan does without something.

use ir::layout::PartialLayout;
use ir::units::Bytes;

use super::difference::Difference;
use crate::problem::Problem;
use crate::search::{EvaluatedPlan, Go, Request, StopReason, WithLessHeadroom, evaluate};

/// Why a plan does without what was asked about.
#[derive(Clone, Debug, PartialEq)]
pub enum WhyNot {
    /// Nothing: the plan has it.
    Chosen,
    /// The framework cannot run it, for lack of these.
    Lacking(Vec<String>),
    /// No layout of so many GPUs has it.
    Impossible(String),
    /// Every layout that has it needs too much memory: the one that needs least, and how much that is too much.
    TooLarge(Box<EvaluatedPlan>, Bytes),
    /// The best that has it is slower, or is to be told apart from the plan by nothing.
    Slower(Box<EvaluatedPlan>, Box<Difference>),
    /// The best that has it leaves less of a GPU's memory free than is in force, and is not slower by more than the best that
    /// leaves as much, if any does.
    LessHeadroom(Box<WithLessHeadroom>, Box<Difference>, Option<Box<EvaluatedPlan>>),
    /// The time was over before an answer was found.
    Unknown,
}

/// Why `plan`, the best of a request, does without what `asked` names, which is all that the request fixes and more.
pub fn why_not(
    problem: &Problem,
    request: &Request,
    plan: &EvaluatedPlan,
    asked: &PartialLayout,
    go: &mut (dyn FnMut() -> Go + Send),
) -> WhyNot {
    let lacks = problem.unsupported(asked);
    if !lacks.is_empty() {
        return WhyNot::Lacking(lacks);
    }
    let request = Request { fixed: *asked, top: 1, less_headroom: true, ..*request };
    let (outcome, left) = evaluate(problem, &request, &mut |_| go());
    let best = outcome.plans.into_iter().next();
    let less = match (left, &best) {
        (Some(headroom), Some(found)) => Some(WithLessHeadroom { found: found.clone(), headroom }),
        _ => outcome.with_less_headroom,
    };
    let roomy = best.clone().filter(|_| left.is_none());
    if let Some(less) = less.filter(|_| roomy.as_ref().is_none_or(|it| it.layout != plan.layout)) {
        let difference = Difference::of((problem, plan), (problem, &less.found));
        return WhyNot::LessHeadroom(Box::new(less), Box::new(difference), roomy.map(Box::new));
    }
    match (best, outcome.closest) {
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
