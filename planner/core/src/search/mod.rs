//! Branch and bound over the space of layouts, best first, with exact simulation of the leaves.
//!
//! Families of layouts wait in a queue, ordered by a lower bound of their step times; families that differ only in
//! micro-batches and switches wait together. The first family in the queue is expanded into subfamilies that share an
//! assignment of blocks, and these into layouts. A layout whose turn comes is simulated. When the lower bound of the
//! first node exceeds the time of the worst of the best plans, the search is over, with the same result as a simulation
//! of every layout. Nodes are expanded in batches of fixed size, so that results and counts do not depend on the number
//! of threads.
//!
//! Where GPUs are of several kinds, [`best_nodes`] first chooses the nodes to use.
//!
//! One choice is not searched: each layout has the partition that minimises its slowest stage and evens out its ranks,
//! or, if that does not fit in memory, the fastest partition that does. Stages given by hand are kept.

mod branch_and_bound;
mod by_group;
mod choice;
mod closest;
mod conflict;
mod ensemble;
mod evaluated_plan;
mod family;
mod feasible;
mod headroom;
mod least_gpus;
mod least_work;
mod memory;
mod min_recompute;
mod node;
mod outcome;
mod queue;
mod request;
mod requirement;
pub mod space;
mod start;
mod unlike;

use ir::units::{Bytes, Nanos};
use rayon::prelude::*;

use crate::problem::Problem;
use crate::step::{ChainIndex, CostsByHardware};
use branch_and_bound::{Branched, branch_and_bound};
pub use choice::{
    Chosen, LOOKED_AT, RESOLUTION, SIMPLICITY_TOLERANCE, chosen, is_tie,
    likelihood_first_is_faster, saving,
};
use closest::closest;
pub use conflict::{Conflict, conflicting};
pub use ensemble::log_deviation;
pub use evaluated_plan::{
    EvaluatedPlan, OverDraws, Quantiles, evaluated, model_flops_utilization, on_groups, simulated,
    tokens_per_second_per_gpu, tokens_per_step, utilization_with_every_pair, with_step,
};
use family::Family;
pub use headroom::largest_headroom;
use headroom::with_less_headroom;
pub use least_gpus::{MemorySaving, least_gpus, memory_saving};
pub(crate) use memory::of_all_blocks;
use node::Searcher;
use outcome::Best;
pub use outcome::{CandidateCounts, Outcome, WithLessHeadroom};
pub use request::{Go, Observe, Progress, Request, StopReason};
pub use requirement::{Requirement, failed_requirements};
use space::{Rejection, Space};
pub use unlike::{BestNodes, OnNodes, best_nodes, search_nodes, search_nodes_below};

/// The best plans of `problem`.
pub fn search(problem: &Problem, request: &Request, observe: &mut Observe<'_>) -> Outcome {
    search_below(problem, request, Nanos::new(u64::MAX), &CostsByHardware::default(), observe)
}

/// The first plan found that fits, in an outcome that ends with it.
pub(crate) fn first_fit(
    problem: &Problem,
    request: &Request,
    go: &mut (dyn FnMut() -> Go + Send),
) -> Outcome {
    let request = Request { top: 1, find_closest: false, ..*request };
    search(problem, &request, &mut |progress| match progress.best {
        Some(_) => Go::Stop(StopReason::FirstFit),
        None => go(),
    })
}

/// The best plans of `problem` that take no longer than `most`, with costs of blocks that other searches know.
fn search_below(
    problem: &Problem,
    request: &Request,
    most: Nanos,
    known: &CostsByHardware,
    observe: &mut Observe<'_>,
) -> Outcome {
    // Runs on a thread of the pool: waking a thread from outside takes as long as many a batch does.
    rayon::scope(|_| search_here(problem, request, most, known, observe))
}

fn search_here(
    problem: &Problem,
    request: &Request,
    most: Nanos,
    known: &CostsByHardware,
    observe: &mut Observe<'_>,
) -> Outcome {
    let fixed = match problem.training.replication().restricted(&request.fixed) {
        Ok(fixed) => fixed,
        Err(error) => return Outcome::impossible(error),
    };
    let request = &Request { fixed, ..*request };
    let Space { shape_families, mut rejected, last_error } = Space::new(problem, &request.fixed);
    let chain = ChainIndex::new(problem);
    let searcher = Searcher::new(problem, &chain, request, (&shape_families, known));
    let Branched { best, counts, stop_reason, least_left, misfits } =
        branch_and_bound(&searcher, &shape_families, Best::below(request.top, most), observe);
    let too_large = counts.too_large + counts.pruned_by_memory;
    if too_large > 0 {
        rejected.insert(Rejection::Memory, too_large);
    }
    if counts.undivided > 0 {
        *rejected.entry(Rejection::Batch).or_default() += counts.undivided;
    }
    let is_misfit = best.plans.is_empty() && stop_reason == StopReason::Exhausted;
    let is_asked = is_misfit && request.find_closest;
    let closest = is_asked.then(|| closest(&searcher, &shape_families)).flatten();
    let plans =
        best.plans.par_iter().with_max_len(1).map(|plan| searcher.found(plan.layout, &plan.ends));
    let plans: Vec<EvaluatedPlan> = plans.collect();
    // A single rank follows no schedule, so errors of a pipeline say more.
    let schedule_error = || {
        let families = || shape_families.iter().flat_map(|it| it.families(problem));
        let error = |family: Family| family.schedule_error(problem, &request.fixed);
        let mut pipelines = families().filter(|family| family.pipeline_parallel > 1);
        pipelines.find_map(error).or_else(|| families().find_map(error))
    };
    let invalid = last_error.or_else(|| plans.is_empty().then(schedule_error).flatten());
    // All other layouts were looked at, or take longer than the best plan whatever their memory.
    let is_done = stop_reason == StopReason::Exhausted;
    let with_less_headroom = (request.less_headroom && is_done)
        .then(|| with_less_headroom(searcher, &misfits, plans.first(), observe))
        .flatten();
    Outcome {
        plans,
        counts,
        rejected,
        closest,
        with_less_headroom,
        invalid,
        stop_reason,
        least_left,
    }
}

/// The result of a search with the headroom in force; if no plan fits with it, the result of a search without headroom,
/// and the largest headroom that all its plans leave.
pub fn evaluate(
    problem: &Problem,
    request: &Request,
    observe: &mut Observe<'_>,
) -> (Outcome, Option<Bytes>) {
    let outcome = search(problem, request, observe);
    let has_answer = !outcome.plans.is_empty() || outcome.stop_reason != StopReason::Exhausted;
    if has_answer || problem.memory_budget >= problem.hardware.memory {
        return (outcome, None);
    }
    let open = problem.clone().with_headroom(Bytes::ZERO);
    let mut any = search(&open, &Request { find_closest: false, ..*request }, observe);
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
