//! Branch and bound over the space of layouts, best first: exact on the timeline.
//!
//! Families of layouts wait in a queue by a bound that none of their layouts is below. The first in line is
//! taken apart into subfamilies that share an assignment of blocks, these into layouts, and a layout whose turn
//! comes is played through. When the first in line cannot be faster than the worst of the best plans, the
//! search is over, and what was found is what playing every layout through would find. Nodes go through in
//! batches of fixed size, so that results and counts do not depend on the number of threads.
//!
//! One rule is not searched: of all ways to cut the model into stages, each layout has one whose slowest stage
//! is fastest and whose ranks are even, and where that does not fit, the fastest that does; unless stages are
//! given by hand.

mod able;
mod choice;
mod closest;
mod conflict;
mod ensemble;
mod fewest;
mod found;
mod headroom;
mod least_gpus;
mod memory;
mod node;
mod outcome;
mod queue;
mod request;
mod requirement;
pub mod space;

use ir::units::{Nanos, Seconds};
use rayon::prelude::*;

use crate::problem::Problem;
use crate::step::ChainIndex;
pub use choice::{
    Chosen, LOOKED_AT, RESOLUTION, chosen, is_tie, likelihood_first_is_faster, saving,
};
use closest::closest;
pub use conflict::{Conflict, conflicting};
pub use found::{
    Found, model_flops_utilization, simulated, tokens_per_second_per_gpu,
    utilization_with_every_pair, with_step,
};
use headroom::with_less_headroom;
pub use headroom::{WithLessHeadroom, evaluate, largest_headroom};
pub use least_gpus::least_gpus;
use node::{Grown, Searcher};
use outcome::Best;
pub use outcome::{Counts, Outcome};
use queue::{Node, Queue};
pub use request::{Go, Observe, Progress, Request, StopReason};
pub use requirement::{Requirement, failed_requirements};
use space::{Family, Rejection, Space};

/// Layouts that are played between two looks at whether to go on, where each takes long.
const AT_ONCE: usize = 16;

/// The best plans of `problem`.
pub fn search(problem: &Problem, request: &Request, observe: &mut Observe<'_>) -> Outcome {
    // On a thread of the pool: to wake one up from outside takes as long as many a batch.
    rayon::scope(|_| search_here(problem, request, observe))
}

fn search_here(problem: &Problem, request: &Request, observe: &mut Observe<'_>) -> Outcome {
    let fixed = match problem.training.replication().restricted(&request.fixed) {
        Ok(fixed) => fixed,
        Err(error) => return Outcome::impossible(error),
    };
    let request = &Request { fixed, ..*request };
    let space = Space::new(problem, &request.fixed);
    let chain = ChainIndex::new(problem);
    let searcher = Searcher::new(problem, &chain, request, &space.families);
    let Branched { best, counts, stop_reason, least_left, misfits } =
        branch_and_bound(&searcher, &space.families, Best::new(request.top), observe);
    let mut rejected = space.rejected;
    let too_large = counts.too_large + counts.pruned_by_memory;
    if too_large > 0 {
        rejected.insert(Rejection::Memory, too_large);
    }
    let is_misfit = best.plans.is_empty() && stop_reason == StopReason::Exhausted;
    let is_asked = is_misfit && request.closest;
    let closest = is_asked.then(|| closest(&searcher, &space.families)).flatten();
    let plans =
        best.plans.par_iter().with_max_len(1).map(|plan| searcher.found(plan.layout, &plan.ends));
    let plans: Vec<Found> = plans.collect();
    // A single rank follows no schedule: what is wrong with a pipeline says more.
    let schedule_error = || {
        let error = |family: &Family| family.schedule_error(problem, &request.fixed);
        let mut pipelines = space.families.iter().filter(|family| family.pipeline_parallel > 1);
        pipelines.find_map(error).or_else(|| space.families.iter().find_map(error))
    };
    let invalid = space.last_error.or_else(schedule_error);
    // All else was looked at, or takes longer than the best, however much memory there is.
    let is_done = stop_reason == StopReason::Exhausted;
    let with_less_headroom = (request.less_headroom && is_done)
        .then(|| {
            with_less_headroom(searcher, &among(&space.families, misfits), plans.first(), observe)
        })
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

/// What a branch and bound came to.
struct Branched {
    best: Best,
    counts: Counts,
    stop_reason: StopReason,
    least_left: Option<Seconds>,
    /// Families with layouts that memory leaves out, though time does not.
    misfits: Vec<Family>,
}

/// Those of some families that are among others, in their order.
fn among(families: &[Family], mut others: Vec<Family>) -> Vec<Family> {
    others.sort_unstable();
    families.iter().filter(|it| others.binary_search(it).is_ok()).copied().collect()
}

/// Takes families apart and plays layouts, in the order of their bounds.
fn branch_and_bound(
    searcher: &Searcher<'_>,
    families: &[Family],
    mut best: Best,
    observe: &mut Observe<'_>,
) -> Branched {
    let request = searcher.request;
    let mut counts = Counts::default();
    let mut stop_reason = StopReason::Exhausted;
    let mut least_left = None;
    let mut misfits = Vec::new();
    let started = searcher.start(families, &mut counts, &mut misfits, observe);
    let mut queue = started.unwrap_or_else(|reason| {
        stop_reason = reason;
        counts.open = counts.candidates - counts.done();
        Queue::default()
    });
    while let Some(first) = queue.peek() {
        let limit = if request.exhaustive { Nanos::new(u64::MAX) } else { best.limit() };
        if first.bound > limit {
            break;
        }
        let time = best.plans.first().map(|plan| Seconds::from(plan.time));
        let progress = Progress { done: counts.done(), all: counts.candidates, best: time };
        if let Go::Stop(reason) = observe(progress) {
            stop_reason = reason;
            least_left = Some(first.bound.into());
            break;
        }
        let mut batch = queue.batch(limit);
        // What is found does not depend on how many are looked at between two looks at the clock.
        let at_once = if batch.iter().any(Node::is_long) { AT_ONCE } else { batch.len() };
        let mut all_grown: Vec<Grown> = Vec::with_capacity(batch.len());
        while !batch.is_empty() && stop_reason == StopReason::Exhausted {
            if !all_grown.is_empty()
                && let Go::Stop(reason) = observe(progress)
            {
                stop_reason = reason;
                break;
            }
            let next: Vec<Node> = batch.drain(..at_once.min(batch.len())).collect();
            let grown = next.into_par_iter().with_max_len(1).map(|node| searcher.grow(node, limit));
            all_grown.par_extend(grown);
        }
        for node in batch {
            queue.push(node);
        }
        for grown in all_grown {
            counts.add(&grown.counts);
            misfits.extend(grown.misfit);
            grown.nodes.into_iter().for_each(|node| queue.push(node));
            grown.plans.into_iter().for_each(|plan| best.offer(plan));
        }
        if stop_reason != StopReason::Exhausted {
            least_left = queue.peek().map(|node| node.bound.into());
            break;
        }
    }
    let left = queue.size();
    match stop_reason {
        StopReason::Exhausted => counts.pruned_by_time += left,
        StopReason::FirstFit | StopReason::Interrupted | StopReason::TimeLimit => {
            counts.open += left;
        }
    }
    Branched { best, counts, stop_reason, least_left, misfits }
}
