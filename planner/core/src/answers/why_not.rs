//! Reasons why a plan does not have an option.

use ir::layout::PartialLayout;
use ir::units::Bytes;
use serde::Serialize;

use super::difference::Difference;
use super::layout_of;
use crate::problem::Problem;
use crate::search::{
    EvaluatedPlan, Go, Request, StopReason, WithLessHeadroom, best_nodes, evaluate,
};

/// Reason why a plan does not have the option that was asked about.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum WhyNot {
    /// The plan has it.
    Chosen,
    /// The framework cannot run it.
    Lacking {
        /// Features that the framework lacks.
        reasons: Vec<String>,
    },
    /// No layout on this number of GPUs has it.
    Impossible {
        /// The error of the layout; empty where there is none.
        reasons: [String; 1],
    },
    /// Every layout with it exceeds the memory.
    TooLarge {
        /// The layout that exceeds it least.
        #[serde(rename = "layout", serialize_with = "layout_of")]
        closest: Box<EvaluatedPlan>,
        /// Bytes by which that layout exceeds the memory.
        missing_bytes: Bytes,
    },
    /// The best plan with it is no slower than the chosen plan, which is simpler.
    AsFast {
        /// The best plan with it.
        #[serde(rename = "layout", serialize_with = "layout_of")]
        found: Box<EvaluatedPlan>,
        /// Difference of the plan from the chosen one.
        difference: Box<Difference>,
    },
    /// The best plan with it is slower than the chosen plan.
    Slower {
        /// The best plan with it.
        #[serde(rename = "layout", serialize_with = "layout_of")]
        found: Box<EvaluatedPlan>,
        /// Difference of the plan from the chosen one.
        difference: Box<Difference>,
    },
    /// The best plan with it fits only with less headroom than is in force.
    LessHeadroom {
        /// The best plan with it.
        #[serde(rename = "layout", serialize_with = "layout_of")]
        found: Box<EvaluatedPlan>,
        /// Difference of the plan from the chosen one.
        difference: Box<Difference>,
        /// The headroom with which it fits.
        headroom_bytes: Bytes,
        /// The best plan with it that leaves the whole headroom, if any does.
        #[serde(skip)]
        roomy: Option<Box<EvaluatedPlan>>,
    },
    /// The time was over before an answer was found.
    Unknown,
}

/// Reason why the best plan of a request lacks the options of `asked`, which include those that the request fixes.
/// Where GPUs are of several kinds, also the nodes of `all` that are best with these options.
pub fn why_not(
    (problem, plan): (&Problem, &EvaluatedPlan),
    all: &Problem,
    request: &Request,
    asked: &PartialLayout,
    go: &mut (dyn FnMut() -> Go + Send),
) -> (WhyNot, Option<String>) {
    let lacks = all.unsupported(asked);
    if !lacks.is_empty() {
        return (WhyNot::Lacking { reasons: lacks }, None);
    }
    let request = Request { fixed: *asked, top: 1, less_headroom: true, ..*request };
    match best_nodes(all, &request, &mut |_| go()) {
        None => (compared((problem, plan), all, &request, go), None),
        Some(nodes) => {
            (compared((problem, plan), &nodes.problem, &request, go), Some(nodes.cluster.name))
        }
    }
}

/// Reason why a plan lacks the options of a request, found by comparing it with the best plan that has them.
fn compared(
    plan: (&Problem, &EvaluatedPlan),
    problem: &Problem,
    request: &Request,
    go: &mut (dyn FnMut() -> Go + Send),
) -> WhyNot {
    let (outcome, left) = evaluate(problem, request, &mut |_| go());
    let best = outcome.plans.into_iter().next();
    let less = match (left, &best) {
        (Some(headroom), Some(found)) => Some(WithLessHeadroom { found: found.clone(), headroom }),
        _ => outcome.with_less_headroom,
    };
    let is_plan = |it: &EvaluatedPlan| it.layout == plan.1.layout;
    let roomy = best.clone().filter(|_| left.is_none());
    if let Some(less) = less.filter(|_| !roomy.as_ref().is_some_and(is_plan)) {
        let difference = Difference::of(plan, (problem, &less.found));
        return WhyNot::LessHeadroom {
            found: Box::new(less.found),
            difference: Box::new(difference),
            headroom_bytes: less.headroom,
            roomy: roomy.map(Box::new),
        };
    }
    match (best, outcome.closest) {
        (Some(found), _) if is_plan(&found) => WhyNot::Chosen,
        (Some(found), _) => {
            let difference = Box::new(Difference::of(plan, (problem, &found)));
            let (found, is_slower) = (Box::new(found), difference.share > 0.0);
            if is_slower {
                WhyNot::Slower { found, difference }
            } else {
                WhyNot::AsFast { found, difference }
            }
        }
        (None, Some(closest)) => {
            let of_rank = problem.at_rank(&closest.layout, closest.evaluation.fullest_rank);
            let missing_bytes = closest.excess(of_rank.memory_budget);
            WhyNot::TooLarge { closest: Box::new(closest), missing_bytes }
        }
        (None, None) if outcome.stop_reason != StopReason::Exhausted => WhyNot::Unknown,
        (None, None) => {
            let reason = outcome.invalid.map_or_else(String::new, |error| error.to_string());
            WhyNot::Impossible { reasons: [reason] }
        }
    }
}
