//! Branch and bound over the space of layouts, exact within the model.
//!
//! Schedules without a closed form, which only a user asks for, are played through in their order; their
//! bound is what the busiest rank computes.
//!
//! Families of candidates are visited in the order of their lower bounds. A family, or a schedule
//! within it, is left out only if its bound is above the worst of the best plans so far; so what is
//! found is what exhaustive search finds. Families go through in batches of fixed size, so that
//! results and counts do not depend on the number of threads.

use std::collections::BTreeMap;

use ir::graph::Recompute;
use ir::layout::{Layout, LayoutError, LayoutSpec, PartialLayout};
use ir::schedule::{Placement, ScheduleKind};
use ir::units::{Bytes, Seconds};
use rayon::prelude::*;

use crate::evaluate::{Evaluation, Evaluator};
use crate::order::Order;
use crate::partition::partition;
use crate::pipeline::{self, has_closed_form};
use crate::problem::{Problem, Shape, ShapeKey};
use crate::space::{Family, Rejection, Space};
use crate::stages::{
    ChainIndex, Holdings, PipelineRanks, Stage, chunk_stages, least_message_time, stages,
};

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
    /// Where each chunk ends, in blocks of the chain. On which pipeline rank a chunk is, the layout's
    /// [`ScheduleKind::placement`] says.
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

/// A visit to one family.
struct Visit<'a> {
    problem: &'a Problem,
    chain: &'a ChainIndex,
    shape: &'a Shape,
    family: &'a Family,
    request: &'a Request,
    threshold: f64,
    best: Best,
}

/// An assignment of blocks to stages.
struct Assignment {
    ends: Vec<usize>,
    /// By pipeline rank.
    stages: Vec<Stage>,
    /// By chunk; empty where the schedule has a closed form.
    chunks: Vec<Stage>,
    /// Time of the slowest chunk, in seconds; no assignment has a faster slowest.
    slowest_chunk: f64,
}

impl<'a> Visit<'a> {
    fn new(
        problem: &'a Problem,
        chain: &'a ChainIndex,
        shape: &'a Shape,
        family: &'a Family,
        request: &'a Request,
        threshold: f64,
    ) -> Self {
        let best = Best::new(request.top);
        Self { problem, chain, shape, family, request, threshold, best }
    }

    /// Candidates in the family.
    fn size(&self) -> u64 {
        let Request { fixed, .. } = self.request;
        let schedules = self.family.schedules(self.problem, fixed).len();
        let shardings = self.family.shardings(self.problem, fixed).len();
        (schedules * shardings * Family::recomputes(fixed).count()) as u64
    }

    fn run(&mut self) {
        let fixed = &self.request.fixed;
        let schedules = self.family.schedules(self.problem, fixed);
        let shardings = self.family.shardings(self.problem, fixed);
        let mut orders: BTreeMap<(ScheduleKind, u32), Order> = BTreeMap::new();
        for recompute in Family::recomputes(fixed) {
            // Schedules with as many chunks in the same places share their assignment.
            let mut assignments: BTreeMap<(Placement, u32), Option<Assignment>> = BTreeMap::new();
            for (schedule, v) in &schedules {
                let total = self.shape.total(recompute);
                let Family { pipeline_parallel: p, num_micro_batches: m, .. } = *self.family;
                let messages =
                    least_message_time(self.problem, self.shape, self.family.pipeline_group(), *v);
                let total = total + messages * f64::from(p);
                let bound = |slowest: f64| {
                    pipeline::lower_bound(*schedule, total, slowest + messages, *v, m)
                };
                if bound(self.shape.total(recompute) / f64::from(p)) > self.limit() {
                    self.best.pruned += shardings.len() as u64;
                    continue;
                }
                let assignment = assignments
                    .entry((schedule.placement(), *v))
                    .or_insert_with(|| self.assign_balanced(*schedule, recompute, p * v));
                let Some(assignment) = &*assignment else { continue };
                // With several chunks a rank, the slowest may share its rank with fast ones: then only
                // the mean is certain.
                let is_alone = schedule.stages_per_rank(*v) == 1;
                if is_alone && bound(assignment.slowest_chunk) > self.limit() {
                    self.best.pruned += shardings.len() as u64;
                    continue;
                }
                for sharding in &shardings {
                    let spec = self.spec(*schedule, *v, recompute, *sharding);
                    if !has_closed_form(*schedule) && !orders.contains_key(&(*schedule, *v)) {
                        orders.insert((*schedule, *v), Order::of(&spec));
                    }
                    self.evaluate(spec, assignment, orders.get(&(*schedule, *v)));
                }
            }
        }
    }

    /// The time beyond which candidates are not worth a look.
    fn limit(&self) -> f64 {
        if self.request.exhaustive {
            f64::INFINITY
        } else {
            self.threshold.min(self.best.threshold())
        }
    }

    fn spec(
        &self,
        schedule: ScheduleKind,
        virtual_stages: u32,
        recompute: Recompute,
        sharding: crate::space::Sharding,
    ) -> LayoutSpec {
        let Family { shape, pipeline_parallel, data_parallel, num_micro_batches } = *self.family;
        LayoutSpec {
            tensor_parallel: shape.tensor_parallel,
            sequence_parallel: shape.sequence_parallel,
            context_parallel: shape.context_parallel,
            expert_parallel: shape.expert_parallel,
            pipeline_parallel,
            virtual_stages,
            data_parallel,
            zero_shard: sharding.zero_shard,
            zero_stage: sharding.zero_stage,
            micro_batch_size: shape.micro_batch_size,
            num_micro_batches,
            recompute,
            schedule,
        }
    }

    /// The fastest assignment, whether it fits or not.
    fn assign_balanced(
        &self,
        schedule: ScheduleKind,
        recompute: Recompute,
        num_chunks: u32,
    ) -> Option<Assignment> {
        let placement = schedule.placement();
        let ends = self.shape.balanced(recompute, num_chunks as usize, &placement)?;
        Some(self.assignment(schedule, recompute, ends))
    }

    fn assignment(
        &self,
        schedule: ScheduleKind,
        recompute: Recompute,
        ends: Vec<usize>,
    ) -> Assignment {
        let Self { problem, chain, shape, family, .. } = *self;
        let prefix = &shape.prefix[recompute as usize];
        let ranks =
            PipelineRanks { group: family.pipeline_group(), placement: schedule.placement() };
        let stages = stages(problem, chain, shape, recompute, &ends, &ranks);
        let chunks = if has_closed_form(schedule) {
            Vec::new()
        } else {
            chunk_stages(problem, chain, shape, recompute, &ends, &ranks, &stages)
        };
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let times = starts.zip(&ends).map(|(start, end)| prefix[*end] - prefix[start]);
        let slowest_chunk = times.fold(0.0, f64::max);
        Assignment { ends, stages, chunks, slowest_chunk }
    }

    /// Evaluates a layout, whose schedule goes in `order` if it has no closed form.
    fn evaluate(&mut self, spec: LayoutSpec, fastest: &Assignment, order: Option<&Order>) {
        self.best.evaluated += 1;
        let memory = self.problem.hardware.memory;
        let mut evaluator = Evaluator::new(self.problem, spec);
        if let Some(order) = order {
            evaluator = evaluator.in_order(order, &fastest.chunks);
        }
        let (peak, fullest_stage) = evaluator.peak_memory(&fastest.stages);
        if peak.total() <= memory {
            let (step_time, breakdown) = evaluator.time(&fastest.stages);
            if step_time.get() <= self.limit() {
                let evaluation = Evaluation { step_time, breakdown, memory: peak, fullest_stage };
                self.offer(spec, fastest.ends.clone(), evaluation);
            }
            return;
        }
        if let Some(balanced) = self.assign_within_memory(&evaluator, spec, &fastest.stages) {
            let evaluation = evaluator.evaluate(&balanced.stages);
            if evaluation.memory.total() <= memory {
                return self.offer(spec, balanced.ends, evaluation);
            }
        }
        self.best.too_large += 1;
        let excess = peak.total() - memory;
        let closest = self.best.closest.as_ref().map(|closest| closest.excess(memory));
        if closest.is_none_or(|closest| excess <= closest) {
            let evaluation = evaluator.evaluate(&fastest.stages);
            if let Some(found) = self.found(spec, fastest.ends.clone(), evaluation) {
                self.best.offer_too_large(found, memory);
            }
        }
    }

    /// Where the fastest assignment overfills a stage, the fastest that does not. Only for one chunk
    /// a rank: with several, what a rank holds is no range of the chain.
    fn assign_within_memory(
        &self,
        evaluator: &Evaluator<'_>,
        spec: LayoutSpec,
        fastest: &[Stage],
    ) -> Option<Assignment> {
        let memory = self.problem.hardware.memory;
        if spec.schedule.stages_per_rank(spec.virtual_stages) > 1 || spec.pipeline_parallel < 2 {
            return None;
        }
        // Moving blocks cannot help where what they keep is too much for all stages together, even
        // if each had as few micro-batches in flight as the last.
        let last = fastest.len() - 1;
        let least: Bytes =
            fastest.iter().map(|stage| evaluator.memory(&stage.holdings, last).of_blocks()).sum();
        if least > memory * fastest.len() as u64 {
            return None;
        }
        let prefix = &self.shape.prefix[spec.recompute as usize];
        let ends = partition(prefix, spec.pipeline_parallel as usize, |rank, start, end| {
            let mut holdings = Holdings::default();
            holdings.add_blocks(self.chain, self.shape, spec.recompute, start..end);
            evaluator.memory(&holdings, rank).total() <= memory
        })?;
        Some(self.assignment(spec.schedule, spec.recompute, ends))
    }

    fn offer(&mut self, spec: LayoutSpec, ends: Vec<usize>, evaluation: Evaluation) {
        if let Some(found) = self.found(spec, ends, evaluation) {
            self.best.offer(found);
        }
    }

    fn found(
        &self,
        spec: LayoutSpec,
        stage_ends: Vec<usize>,
        evaluation: Evaluation,
    ) -> Option<Found> {
        let layout = Layout::new(spec, &self.problem.limits);
        debug_assert!(layout.is_ok(), "{spec:?}: {layout:?}");
        Some(Found { layout: layout.ok()?, stage_ends, evaluation })
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
