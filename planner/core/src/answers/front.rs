//! Pareto front of step time, memory and number of GPUs, and its ends.

use ir::layout::Choice::Any;
use ir::layout::PartialLayout;
use ir::units::Bytes;
use serde::Serialize;

use super::layout_of;
use crate::problem::{Problem, ProblemError};
use crate::search::{EvaluatedPlan, Go, Request, StopReason, first_fit, search};

/// A plan on the Pareto front: no other is better in time, memory and GPUs at once.
#[derive(Clone, Debug, Serialize)]
pub struct FrontPoint {
    /// Number of GPUs.
    pub num_gpus: u32,
    /// Step time, in seconds.
    pub step_time_seconds: f64,
    /// Peak memory of the fullest rank.
    pub peak_memory_bytes: Bytes,
    /// Step time in seconds, times the number of GPUs.
    pub gpu_seconds: f64,
    /// The plan.
    #[serde(rename = "layout", serialize_with = "layout_of")]
    pub found: EvaluatedPlan,
    /// The problem that the plan solves.
    #[serde(skip)]
    pub problem: Problem,
}

impl FrontPoint {
    fn new(problem: Problem, found: EvaluatedPlan) -> Self {
        let (num_gpus, time) = (problem.limits.num_gpus, found.evaluation.step_time.get());
        Self {
            num_gpus,
            step_time_seconds: time,
            peak_memory_bytes: found.evaluation.memory.total(),
            gpu_seconds: time * f64::from(num_gpus),
            found,
            problem,
        }
    }
}

/// Memory limit of the next search, as a share of the memory of the plan found last.
const LESS: f64 = 0.9;

/// Largest number of times that the number of GPUs is halved.
const HALVINGS: u32 = 6;

/// The number of GPUs, half of it and so on, as long as the number is even.
fn halves(num_gpus: u32) -> impl Iterator<Item = u32> {
    (0..=HALVINGS.min(num_gpus.trailing_zeros())).map(move |halving| num_gpus >> halving)
}

/// The request with the options left open that depend on the number of GPUs.
pub(super) fn on_fewer(request: &Request) -> Request {
    let fixed = PartialLayout { data_parallel: Any, zero_shard: Any, ..request.fixed };
    Request { fixed, top: 1, find_closest: false, less_headroom: false, ..*request }
}

/// Pareto front of plans for one batch, over time, memory and GPUs. Searches on all GPUs, on half of them and so on. On
/// each number of GPUs, each search has a tenth less memory than the plan before it took, until no plan fits or the
/// time is over. Plans on the fewest GPUs come last.
///
/// # Errors
///
/// [`ProblemError`] where the problem cannot be posed on fewer GPUs.
pub fn front(
    problem: &Problem,
    request: &Request,
    go: &mut (dyn FnMut() -> Go + Send),
) -> Result<Vec<FrontPoint>, ProblemError> {
    let request = on_fewer(request);
    let mut points: Vec<FrontPoint> = Vec::new();
    for gpus in halves(problem.limits.num_gpus) {
        let mut problem = problem.with_gpus(gpus)?;
        loop {
            let outcome = search(&problem, &request, &mut |_| go());
            // A search that was stopped may not have found the best plan.
            let is_best = outcome.stop_reason == StopReason::Exhausted;
            let best = outcome.plans.into_iter().next().filter(|_| is_best);
            let Some(found) = best else { break };
            let needs = found.evaluation.memory.total().as_f64();
            points.push(FrontPoint::new(problem.clone(), found));
            problem.memory_budget =
                Bytes::from_f64(needs.min(problem.memory_budget.as_f64()) * LESS);
        }
    }
    let is_worse = |it: &FrontPoint, than: &FrontPoint| {
        let (time, memory) = (it.step_time_seconds, it.peak_memory_bytes);
        let all = than.step_time_seconds <= time
            && than.peak_memory_bytes <= memory
            && than.num_gpus <= it.num_gpus;
        let some = than.step_time_seconds < time
            || than.peak_memory_bytes < memory
            || than.num_gpus < it.num_gpus;
        all && some
    };
    let kept = points.iter().filter(|it| !points.iter().any(|other| is_worse(it, other)));
    Ok(kept.cloned().collect())
}

/// The least memory in which some plan fits, to a hundredth of a GPU's memory; `None` if no plan fits.
pub fn least_memory(
    problem: &Problem,
    request: &Request,
    go: &mut (dyn FnMut() -> Go + Send),
) -> Option<Bytes> {
    let needs = |memory_budget: Bytes, go: &mut (dyn FnMut() -> Go + Send)| {
        let outcome = first_fit(&Problem { memory_budget, ..problem.clone() }, request, go);
        outcome.plans.first().map(|found| found.evaluation.memory.total())
    };
    let mut most = needs(problem.memory_budget, go)?;
    let mut least = Bytes::ZERO;
    let near = problem.hardware.memory.as_f64() / 100.0;
    while most.as_f64() - least.as_f64() > near && go() == Go::On {
        let middle = Bytes::from_f64(least.as_f64().midpoint(most.as_f64()));
        match needs(middle, go) {
            Some(bytes) => most = bytes.min(middle),
            None => least = middle,
        }
    }
    Some(most)
}

/// The best plans for the same batch on all GPUs, on half of them and so on, until the time is over. Plans with the
/// fewest GPU seconds per step come first.
///
/// # Errors
///
/// [`ProblemError`] where the problem cannot be posed on fewer GPUs.
pub fn cheapest_number_of_gpus(
    problem: &Problem,
    request: &Request,
    go: &mut (dyn FnMut() -> Go + Send),
) -> Result<Vec<FrontPoint>, ProblemError> {
    let request = on_fewer(request);
    let mut points = Vec::new();
    for gpus in halves(problem.limits.num_gpus) {
        let problem = problem.with_gpus(gpus)?;
        let outcome = search(&problem, &request, &mut |_| go());
        if outcome.stop_reason != StopReason::Exhausted {
            break;
        }
        points.extend(outcome.plans.into_iter().next().map(|it| FrontPoint::new(problem, it)));
    }
    points.sort_by(|a, b| a.gpu_seconds.total_cmp(&b.gpu_seconds));
    Ok(points)
}
