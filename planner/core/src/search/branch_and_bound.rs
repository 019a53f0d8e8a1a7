//! Branch and bound: expands nodes, the least lower bound first, until none can be faster than the best plan found.

use std::collections::BTreeSet;

use ir::layout::Offload;
use ir::units::{Nanos, Seconds};
use rayon::prelude::*;

use super::family::{Family, ShapeFamily};
use super::node::{Expansion, Searcher};
use super::outcome::{Best, CandidateCounts};
use super::queue::{Node, Queue};
use super::request::{Go, Observe, Progress, StopReason};

/// Number of nodes expanded between two checks of whether to go on, where each takes long.
const AT_ONCE: usize = 16;

/// The result of a branch and bound.
pub(super) struct Branched {
    /// The best plans.
    pub best: Best,
    /// Numbers of candidates by outcome.
    pub counts: CandidateCounts,
    /// Reason why the search ended.
    pub stop_reason: StopReason,
    /// The least lower bound of the candidates left open.
    pub least_left: Option<Seconds>,
    /// Families with layouts that are excluded by memory, but not by time.
    pub misfits: Vec<ShapeFamily>,
}

/// Expands families and simulates layouts in the order of their lower bounds.
pub(super) fn branch_and_bound(
    searcher: &Searcher<'_>,
    shape_families: &[ShapeFamily],
    mut best: Best,
    observe: &mut Observe<'_>,
) -> Branched {
    let request = searcher.request;
    let mut counts = CandidateCounts::default();
    let mut stop_reason = StopReason::Exhausted;
    let mut least_left = None;
    let (mut misfits, mut misfits_alone) = (Vec::new(), BTreeSet::<Family>::new());
    let started = searcher.start(shape_families, &mut counts, &mut misfits, observe);
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
        // Results do not depend on the number of nodes between two looks at the clock.
        let at_once = if batch.iter().any(Node::is_long) { AT_ONCE } else { batch.len() };
        let mut expansions: Vec<Expansion> = Vec::with_capacity(batch.len());
        while !batch.is_empty() && stop_reason == StopReason::Exhausted {
            if !expansions.is_empty()
                && let Go::Stop(reason) = observe(progress)
            {
                stop_reason = reason;
                break;
            }
            let next: Vec<Node> = batch.drain(..at_once.min(batch.len())).collect();
            let expansion =
                next.into_par_iter().with_max_len(1).map(|node| searcher.expand(node, limit));
            expansions.par_extend(expansion);
        }
        for node in batch {
            queue.push(node);
        }
        for expansion in expansions {
            counts.add(&expansion.counts);
            misfits_alone.extend(expansion.misfit);
            expansion.nodes.into_iter().for_each(|node| queue.push(node));
            expansion.plans.into_iter().for_each(|plan| best.offer(plan));
        }
        if stop_reason != StopReason::Exhausted {
            least_left = queue.peek().map(|node| node.bound.into());
            break;
        }
    }
    let left = queue.size();
    // The reason to stop came after the last layout.
    if left == 0 && counts.open == 0 && stop_reason != StopReason::FirstFit {
        stop_reason = StopReason::Exhausted;
    }
    match stop_reason {
        StopReason::Exhausted => counts.pruned_by_time += left,
        StopReason::FirstFit | StopReason::Interrupted | StopReason::TimeLimit => {
            counts.open += left;
        }
    }
    let offload = request.fixed.offload.unwrap_or(Offload::NONE);
    misfits.extend(misfits_alone.iter().map(|family| ShapeFamily::of_one(family, offload)));
    Branched { best, counts, stop_reason, least_left, misfits }
}
