//! A visit to one family of candidates: bounds, assignments of blocks, evaluation.

use std::collections::BTreeMap;

use ir::graph::Recompute;
use ir::layout::{Layout, LayoutSpec};
use ir::schedule::{Placement, ScheduleKind};
use ir::units::Bytes;

use super::{Best, Found, Request};
use crate::evaluate::{Evaluation, Evaluator};
use crate::order::Order;
use crate::partition::partition;
use crate::pipeline::{self, has_closed_form};
use crate::problem::{Problem, Shape};
use crate::space::{Family, Sharding};
use crate::stages::{
    ChainIndex, Holdings, PipelineRanks, Stage, chunk_stages, least_message_time, stages,
};

/// A visit to one family.
pub(super) struct Visit<'a> {
    problem: &'a Problem,
    chain: &'a ChainIndex,
    shape: &'a Shape,
    family: &'a Family,
    request: &'a Request,
    threshold: f64,
    pub(super) best: Best,
}

/// An assignment of blocks to stages.
struct Assignment {
    ends: Vec<usize>,
    /// By pipeline rank.
    stages: Vec<Stage>,
    /// By chunk; empty where the schedule has a closed form.
    chunks: Vec<Stage>,
    /// Time of the slowest chunk, in seconds; where ranks have one each, no assignment has a faster slowest.
    slowest_chunk: f64,
}

impl<'a> Visit<'a> {
    pub(super) fn new(
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
    pub(super) fn size(&self) -> u64 {
        let Request { fixed, .. } = self.request;
        let schedules = self.family.schedules(self.problem, fixed).len();
        let shardings = self.family.shardings(self.problem, fixed).len();
        (schedules * shardings * Family::recomputes(fixed).count()) as u64
    }

    /// Evaluates what no bound leaves out.
    pub(super) fn run(&mut self) {
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
        sharding: Sharding,
    ) -> LayoutSpec {
        let Family { shape, pipeline_parallel, data_parallel, num_micro_batches } = *self.family;
        LayoutSpec {
            tensor_parallel: shape.tensor_parallel,
            sequence_parallel: shape.sequence_parallel,
            context_parallel: shape.context_parallel,
            expert_parallel: shape.expert_parallel,
            whole_experts: shape.whole_experts,
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
