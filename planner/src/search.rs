//! Branch and bound over the space of layouts, exact within the model.
//!
//! Schedules without a closed form, which only a user asks for, are played through in their order; their
//! bound is what the busiest rank computes.
//!
//! Families of candidates are visited in the order of their lower bounds. A family, or a schedule
//! within it, is left out only if its bound is above the worst of the best plans so far; so what is
//! found is what exhaustive search finds. Families go through in batches of fixed size, so that
//! results and counts do not depend on the number of threads.

mod visit;

use std::collections::BTreeMap;

use ir::graph::Recompute;
use ir::layout::{Layout, LayoutError, PartialLayout};
use ir::units::{Bytes, Seconds};
use rayon::prelude::*;

use crate::evaluate::{Evaluation, Evaluator};
use crate::order::Order;
use crate::pipeline::has_closed_form;
use crate::problem::{Problem, Shape, ShapeKey};
use crate::space::{Family, Rejection, Space};
use crate::stages::{ChainIndex, PipelineRanks, chunk_stages, stages};
use visit::Visit;

/// What to look for.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// What the user has decided.
    pub fixed: PartialLayout,
    /// How many plans to keep.
    pub top: usize,
    /// Whether to evaluate what the bounds would leave out, as tests do.
    pub exhaustive: bool,
    /// Whether any plan that fits will do.
    pub first_fit: bool,
}

impl Default for Request {
    fn default() -> Self {
        Self { fixed: PartialLayout::default(), top: 1, exhaustive: false, first_fit: false }
    }
}

/// A layout with its stages, time and memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The layout.
    pub layout: Layout,
    /// Where each chunk ends, in blocks of the chain. On which pipeline ranks a chunk is,
    /// [`PipelineRanks::of`] the layout says.
    pub stage_ends: Vec<usize>,
    /// Time and memory.
    pub evaluation: Evaluation,
}

impl Found {
    /// Faster first; of equals the smaller layout.
    pub(crate) fn order(&self, other: &Self) -> std::cmp::Ordering {
        self.evaluation
            .step_time
            .total_cmp(&other.evaluation.step_time)
            .then_with(|| self.layout.cmp(&other.layout))
    }

    /// By how much the fullest rank exceeds `memory`.
    pub fn excess(&self, memory: Bytes) -> Bytes {
        self.evaluation.memory.total().saturating_sub(memory)
    }
}

/// Why the search stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// Every candidate was evaluated, or left out by a bound that is never above its time: the plans
    /// are the best within the model.
    Exhausted,
    /// A plan that fits was found, and no better one was asked for.
    FirstFit,
}

/// What a search found.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The best plans, fastest first.
    pub plans: Vec<Found>,
    /// Layouts that the model, the batch and the GPUs allow.
    pub candidates: u64,
    /// Those whose time and memory were computed.
    pub evaluated: u64,
    /// Those left out by a bound.
    pub pruned: u64,
    /// Candidates, or combinations of degrees, left out for a reason.
    pub rejected: BTreeMap<Rejection, u64>,
    /// Among those that do not fit, the one that misses by least.
    pub closest: Option<Found>,
    /// Why a layout that was asked for is not possible.
    pub invalid: Option<LayoutError>,
    /// Why the search stopped.
    pub stop_reason: StopReason,
}

/// Families that go through between two looks at the best plans so far.
const BATCH: usize = 16;

/// The best plans of `problem`. `observe` is told how many families of how many are done.
pub fn search(
    problem: &Problem,
    request: &Request,
    observe: &mut dyn FnMut(usize, usize),
) -> Outcome {
    let space = Space::new(problem, &request.fixed);
    let chain = ChainIndex::new(problem);
    let mut keys: Vec<ShapeKey> = space.families.iter().map(|family| family.shape).collect();
    keys.dedup();
    let shapes: BTreeMap<ShapeKey, Shape> =
        keys.into_par_iter().map(|key| (key, Shape::new(problem, key))).collect();
    let mut families: Vec<(f64, &Family)> = space
        .families
        .iter()
        .map(|family| (family_bound(family, &shapes[&family.shape], &request.fixed), family))
        .collect();
    families.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(b.1)));

    let mut best = Best::new(request.top);
    let mut stop_reason = StopReason::Exhausted;
    for (index, batch) in families.chunks(BATCH).enumerate() {
        observe(index * BATCH, families.len());
        if request.first_fit && !best.plans.is_empty() {
            stop_reason = StopReason::FirstFit;
            break;
        }
        let threshold = if request.exhaustive { f64::INFINITY } else { best.threshold() };
        let results: Vec<Best> = batch
            .par_iter()
            .map(|(bound, family)| {
                let shape = &shapes[&family.shape];
                let mut visit = Visit::new(problem, &chain, shape, family, request, threshold);
                if *bound > threshold {
                    visit.best.pruned += visit.size();
                } else {
                    visit.run();
                }
                visit.best
            })
            .collect();
        for result in results {
            best.merge(result, problem.hardware.memory);
        }
    }
    let mut rejected = space.rejected;
    if best.too_large > 0 {
        rejected.insert(Rejection::Memory, best.too_large);
    }
    Outcome {
        candidates: best.evaluated + best.pruned,
        plans: best.plans,
        evaluated: best.evaluated,
        pruned: best.pruned,
        rejected,
        closest: best.closest,
        invalid: space
            .last_error
            .or_else(|| space.families.first()?.schedule_error(problem, &request.fixed)),
        stop_reason,
    }
}

/// A time below which no candidate of a family can be.
fn family_bound(family: &Family, shape: &Shape, fixed: &PartialLayout) -> f64 {
    let policy = fixed.recompute.unwrap_or(Recompute::None);
    f64::from(family.num_micro_batches) * shape.total(policy) / f64::from(family.pipeline_parallel)
}

/// The best plans so far, and counts.
struct Best {
    top: usize,
    plans: Vec<Found>,
    closest: Option<Found>,
    evaluated: u64,
    pruned: u64,
    too_large: u64,
}

impl Best {
    fn new(top: usize) -> Self {
        Self { top, plans: Vec::new(), closest: None, evaluated: 0, pruned: 0, too_large: 0 }
    }

    /// The time that a plan must not exceed to be among the best.
    fn threshold(&self) -> f64 {
        match self.plans.last() {
            Some(worst) if self.plans.len() >= self.top => worst.evaluation.step_time.get(),
            _ => f64::INFINITY,
        }
    }

    fn offer(&mut self, found: Found) {
        let position = self.plans.partition_point(|plan| plan.order(&found).is_lt());
        if position < self.top {
            self.plans.insert(position, found);
            self.plans.truncate(self.top);
        }
    }

    fn offer_too_large(&mut self, found: Found, memory: Bytes) {
        let key = |found: &Found| (found.excess(memory), found.layout);
        if self.closest.as_ref().is_none_or(|closest| key(&found) < key(closest)) {
            self.closest = Some(found);
        }
    }

    fn merge(&mut self, other: Self, memory: Bytes) {
        other.plans.into_iter().for_each(|found| self.offer(found));
        if let Some(found) = other.closest {
            self.offer_too_large(found, memory);
        }
        self.evaluated += other.evaluated;
        self.pruned += other.pruned;
        self.too_large += other.too_large;
    }
}

/// Time and memory of a layout with stages that end where they are said to.
///
/// # Panics
///
/// If the stages are not as many as the layout has chunks, or do not cover the chain in order.
pub fn evaluate_stages(problem: &Problem, layout: Layout, stage_ends: Vec<usize>) -> Found {
    let chain = ChainIndex::new(problem);
    assert!(
        stage_ends.len() == layout.num_stages() as usize
            && stage_ends.is_sorted()
            && stage_ends.last() == Some(&chain.num_blocks()),
        "stages cover the chain in order"
    );
    let shape = Shape::new(problem, ShapeKey::of(&layout));
    let ranks = PipelineRanks::of(&layout);
    let recompute = layout.recompute;
    let stages = stages(problem, &chain, &shape, recompute, &stage_ends, &ranks);
    let evaluator = Evaluator::new(problem, *layout);
    let evaluation = if has_closed_form(layout.schedule) {
        evaluator.evaluate(&stages)
    } else {
        let order = Order::of(&layout);
        let chunks = chunk_stages(problem, &chain, &shape, recompute, &stage_ends, &ranks, &stages);
        evaluator.in_order(&order, &chunks).evaluate(&stages)
    };
    Found { layout, stage_ends, evaluation }
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
