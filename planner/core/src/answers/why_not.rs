//! Reasons why a plan does not have an option.

use ir::layout::PartialLayout;
use ir::units::Bytes;

use super::difference::Difference;
use crate::problem::Problem;
use crate::search::{EvaluatedPlan, Go, Request, StopReason, WithLessHeadroom, evaluate};

/// Reason why a plan does not have the option that was asked about.
#[derive(Clone, Debug, PartialEq)]
pub enum WhyNot {
    /// The plan has it.
    Chosen,
    /// The framework cannot run it, for lack of these features.
    Lacking(Vec<String>),
    /// No layout on this number of GPUs has it; the error says why.
    Impossible(String),
    /// Every layout with it exceeds the memory: the layout that exceeds it least, and by how many bytes.
    TooLarge(Box<EvaluatedPlan>, Bytes),
    /// The best plan with it is slower than the chosen plan, or a tie.
    Slower(Box<EvaluatedPlan>, Box<Difference>),
    /// The best plan with it fits only with less headroom than is in force. The last is the best plan with it that
    /// leaves the whole headroom, if any does.
    LessHeadroom(Box<WithLessHeadroom>, Box<Difference>, Option<Box<EvaluatedPlan>>),
    /// The time was over before an answer was found.
    Unknown,
}

/// Reason why `plan`, the best of a request, lacks the options of `asked`, which include those that the request fixes.
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
