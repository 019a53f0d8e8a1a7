//! Branch and bound over the space of layouts, best first: exact on the timeline.
//!
//! Families of layouts wait in a queue by a bound that none of their layouts is below. The first in line is
//! taken apart into groups that share an assignment of blocks, these into layouts, and a layout whose turn
//! comes is played through. When the first in line cannot be faster than the worst of the best plans, the
//! search is over, and what was found is what playing every layout through would find. Nodes go through in
//! batches of fixed size, so that results and counts do not depend on the number of threads.
//!
//! One rule is not searched: of all ways to cut the model into stages, each layout has one whose slowest stage
//! is fastest and whose ranks are even, and where that does not fit, the fastest that does.

mod closest;
mod memory;
mod node;
pub mod partition;
mod queue;
pub mod space;

use std::collections::BTreeMap;
use std::sync::Arc;

use ir::layout::{Layout, LayoutError, PartialLayout};
use ir::units::{Bytes, Nanos, Seconds};
use rayon::prelude::*;

use crate::problem::Problem;
use crate::step::{
    Assignment, ChainIndex, Evaluation, PipelineRanks, Shape, ShapeKey, Simulated, Step,
};
use closest::closest;
use node::{Grown, Searcher};
use queue::Queue;
use space::{Rejection, Space};

/// What to look for.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// What the user has decided.
    pub fixed: PartialLayout,
    /// How many plans to keep.
    pub top: usize,
    /// Whether to play what the bounds would leave out, as tests do.
    pub exhaustive: bool,
    /// Whether to look for what misses by least where nothing fits.
    pub closest: bool,
}

impl Default for Request {
    fn default() -> Self {
        Self { fixed: PartialLayout::default(), top: 1, exhaustive: false, closest: true }
    }
}

/// A layout with its stages, time and memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The layout.
    pub layout: Layout,
    /// Where each stage ends, in blocks of the chain. On which pipeline ranks a stage is,
    /// [`PipelineRanks::of`] the layout says.
    pub stage_ends: Vec<usize>,
    /// Time and memory.
    pub evaluation: Evaluation,
}

impl Found {
    /// By how much the fullest rank exceeds `memory`.
    pub fn excess(&self, memory: Bytes) -> Bytes {
        self.evaluation.memory.total().saturating_sub(memory)
    }
}

/// Why the search stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// Every candidate was played through, or left out by a bound that is never above its time, or does
    /// not fit: the plans are the best within the model.
    Exhausted,
    /// A plan that fits was found, and no better one was asked for.
    FirstFit,
    /// It was interrupted: the plans are the best so far.
    Interrupted,
    /// It took as long as it was given: the plans are the best so far.
    TimeLimit,
}

/// How many candidates were dealt with in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Layouts that the model, the batch and the GPUs allow.
    pub candidates: u64,
    /// Those that were played through.
    pub played: u64,
    /// Those that a bound on time leaves out.
    pub pruned_by_time: u64,
    /// Those of which memory was counted and is too much.
    pub too_large: u64,
    /// Those that a bound on memory leaves out.
    pub pruned_by_memory: u64,
    /// Those that were not looked at before the search was told to stop.
    pub open: u64,
}

/// What a search found.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The best plans, fastest first.
    pub plans: Vec<Found>,
    /// How many candidates were dealt with in which way.
    pub counts: Counts,
    /// Candidates, or combinations of degrees, left out for a reason.
    pub rejected: BTreeMap<Rejection, u64>,
    /// Where nothing fits, the layout that misses by least.
    pub closest: Option<Found>,
    /// Why a layout that was asked for is not possible.
    pub invalid: Option<LayoutError>,
    /// Why the search stopped.
    pub stop_reason: StopReason,
    /// A time that no layout is below that was not looked at, where there are such.
    pub least_left: Option<Seconds>,
}

/// How far a search is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Candidates that were dealt with, and all.
    pub done: u64,
    /// All.
    pub all: u64,
    /// The best time so far.
    pub best: Option<Seconds>,
}

/// Whether a search goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Go {
    /// It does.
    On,
    /// It stops for a reason, with the best so far.
    Stop(StopReason),
}

/// Is told how far a search is, and says whether it goes on.
pub type Observe<'a> = dyn FnMut(Progress) -> Go + Send + 'a;

/// The best plans of `problem`.
pub fn search(problem: &Problem, request: &Request, observe: &mut Observe<'_>) -> Outcome {
    // On a thread of the pool: to wake one up from outside takes as long as many a batch.
    rayon::scope(|_| search_here(problem, request, observe))
}

fn search_here(problem: &Problem, request: &Request, observe: &mut Observe<'_>) -> Outcome {
    let space = Space::new(problem, &request.fixed);
    let chain = ChainIndex::new(problem);
    let searcher = Searcher::new(problem, &chain, request);
    let mut best = Best::new(request.top);
    let mut counts = Counts::default();
    let mut stop_reason = StopReason::Exhausted;
    let mut least_left = None;
    let started = searcher.start(&space.families, &mut counts, observe);
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
        let batch = queue.batch(limit);
        let grown: Vec<Grown> =
            batch.into_par_iter().map(|node| searcher.grow(node, limit)).collect();
        for grown in grown {
            counts.add(&grown.counts);
            grown.nodes.into_iter().for_each(|node| queue.push(node));
            grown.plans.into_iter().for_each(|plan| best.offer(plan));
        }
    }
    let left = queue.size();
    match stop_reason {
        StopReason::Exhausted => counts.pruned_by_time += left,
        StopReason::FirstFit | StopReason::Interrupted | StopReason::TimeLimit => {
            counts.open += left;
        }
    }
    drop(queue);
    let mut rejected = space.rejected;
    let too_large = counts.too_large + counts.pruned_by_memory;
    if too_large > 0 {
        rejected.insert(Rejection::Memory, too_large);
    }
    let is_misfit = best.plans.is_empty() && stop_reason == StopReason::Exhausted;
    let is_asked = is_misfit && request.closest;
    let closest = is_asked.then(|| closest(&searcher, &space.families)).flatten();
    let plans = best.plans.par_iter().map(|plan| searcher.found(plan));
    let schedule_error = || space.families.first()?.schedule_error(problem, &request.fixed);
    Outcome {
        plans: plans.collect(),
        counts,
        rejected,
        closest,
        invalid: space.last_error.or_else(schedule_error),
        stop_reason,
        least_left,
    }
}

/// A layout that was played through and fits.
#[derive(Clone, Debug)]
struct Plan {
    time: Nanos,
    layout: Layout,
    ends: Arc<[usize]>,
}

/// The best plans so far.
struct Best {
    top: usize,
    plans: Vec<Plan>,
}

impl Best {
    const fn new(top: usize) -> Self {
        Self { top, plans: Vec::new() }
    }

    /// The time that a plan must not exceed to be among the best.
    fn limit(&self) -> Nanos {
        match self.plans.last() {
            Some(worst) if self.plans.len() >= self.top => worst.time,
            _ => Nanos::new(u64::MAX),
        }
    }

    /// Faster first; of equals the smaller layout.
    fn offer(&mut self, plan: Plan) {
        let key = |plan: &Plan| (plan.time, plan.layout);
        let position = self.plans.partition_point(|other| key(other) < key(&plan));
        if position < self.top {
            self.plans.insert(position, plan);
            self.plans.truncate(self.top);
        }
    }
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.candidates += other.candidates;
        self.played += other.played;
        self.pruned_by_time += other.pruned_by_time;
        self.too_large += other.too_large;
        self.pruned_by_memory += other.pruned_by_memory;
        self.open += other.open;
    }

    /// Counts a candidate that does not fit: its memory was counted, or a bound says so.
    fn add_misfit(&mut self, is_counted: bool) {
        if is_counted {
            self.too_large += 1;
        } else {
            self.pruned_by_memory += 1;
        }
    }

    /// Those that were dealt with.
    fn done(&self) -> u64 {
        self.evaluated() + self.pruned()
    }

    /// Those whose time or memory was computed.
    pub fn evaluated(&self) -> u64 {
        self.played + self.too_large
    }

    /// Those that a bound leaves out.
    pub fn pruned(&self) -> u64 {
        self.pruned_by_time + self.pruned_by_memory
    }
}

/// Time and memory of a layout whose stages end at `stage_ends`, on a timeline.
///
/// # Panics
///
/// If the stages are not as many as the layout has, or do not cover the chain in order.
pub fn simulated(problem: &Problem, layout: Layout, stage_ends: &[usize]) -> (Found, Simulated) {
    let simulated = with_step(problem, layout, stage_ends, |step: &Step<'_>| step.simulate());
    let simulated = simulated.unwrap_or_else(|error| panic!("a checked layout plays: {error}"));
    let (stage_ends, evaluation) = (stage_ends.to_vec(), simulated.evaluation);
    (Found { layout, stage_ends, evaluation }, simulated)
}

/// As [`simulated`], without the timeline.
///
/// # Panics
///
/// As [`simulated`].
pub fn evaluated(problem: &Problem, layout: Layout, stage_ends: &[usize]) -> Found {
    let evaluation = with_step(problem, layout, stage_ends, |step: &Step<'_>| step.evaluate());
    let evaluation = evaluation.unwrap_or_else(|error| panic!("a checked layout plays: {error}"));
    Found { layout, stage_ends: stage_ends.to_vec(), evaluation }
}

/// What `of` makes of the step of a layout whose stages end at `stage_ends`.
///
/// # Panics
///
/// As [`simulated`].
pub fn with_step<T>(
    problem: &Problem,
    layout: Layout,
    stage_ends: &[usize],
    of: impl FnOnce(&Step<'_>) -> T,
) -> T {
    let chain = ChainIndex::new(problem);
    assert_eq!(stage_ends.len(), layout.num_stages() as usize, "each stage has an end");
    let shape = Shape::new(problem, &chain, ShapeKey::of(&layout));
    let ranks = PipelineRanks::of(&layout);
    let assignment =
        Assignment::new(problem, &chain, &shape, layout.recompute, ranks, stage_ends.into());
    of(&Step::new(&assignment, layout))
}

/// The time of one step of the fastest plan, in the units of a user: tokens a second on each GPU.
pub fn tokens_per_second_per_gpu(problem: &Problem, step_time: Seconds) -> f64 {
    let training = &problem.training;
    // A model without a sequence is counted by the sample.
    let length = if problem.limits.has_sequence { training.sequence_length } else { 1 };
    let tokens = length as f64 * training.global_batch_size as f64;
    tokens / step_time.get() / f64::from(problem.limits.num_gpus)
}

/// Model FLOPs over what all GPUs could do by their data sheet.
///
/// # Source
///
/// Chowdhery et al. 2022, *PaLM* (arXiv 2204.02311), appendix B.
pub fn model_flops_utilization(problem: &Problem, step_time: Seconds) -> f64 {
    let peak = problem.hardware.peak * f64::from(problem.limits.num_gpus);
    (problem.model_flops / step_time) / peak
}
