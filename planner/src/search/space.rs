//! The space of layouts: every combination of degrees that model, batch and GPUs allow.

use std::collections::BTreeMap;
use std::fmt;

use ir::framework::{Abilities, Features};
use ir::graph::{ContextParallelKind, Recompute, Sharding};
use ir::layout::{
    Degrees, Layout, LayoutError, LayoutSpec, Mesh, MeshAxis, Offload, PartialLayout, ZeroStage,
    check_expert_shards, largest_divisor,
};
use ir::schedule::ScheduleKind;
use serde::Serialize;
use smallvec::SmallVec;

use super::able::{abilities, check_framework, check_named, context_kinds, switches};
use crate::problem::{GivenStages, Problem, StageRule};
use crate::step::ShapeKey;

/// Why candidates were left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rejection {
    /// They need more memory than a GPU has.
    Memory,
    /// Heads or inner widths do not divide by the tensor-parallel degree.
    Tensor,
    /// The sequence does not divide.
    Sequence,
    /// Experts do not divide, or do not fit within the ranks of a stage.
    Expert,
    /// The global batch does not divide by the data-parallel degree.
    Batch,
    /// There are more stages than blocks.
    Stages,
    /// The stages that are given do not divide over the ranks.
    GivenStages,
    /// The framework cannot run them.
    Framework,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Memory => "exceed the memory of a GPU",
            Self::Tensor => "leave heads or inner widths undivided",
            Self::Sequence => "leave the sequence undivided",
            Self::Expert => "leave experts undivided",
            Self::Batch => "leave the global batch undivided",
            Self::Stages => "have more stages than the model has blocks",
            Self::GivenStages => "leave the given stages undivided",
            Self::Framework => "are none that the framework runs",
        })
    }
}

/// Candidates that differ only in schedule, recompute and ZeRO stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Family {
    /// How operators are sharded, and the micro-batch.
    pub shape: ShapeKey,
    /// Pipeline ranks.
    pub pipeline_parallel: u32,
    /// Replicas.
    pub data_parallel: u32,
    /// Micro-batches of a replica.
    pub num_micro_batches: u32,
}

/// How a family's model states are sharded, and what lies on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ZeroSharding {
    /// What is sharded.
    pub zero_stage: ZeroStage,
    /// Over how many ranks.
    pub zero_shard: u32,
    /// What lies on the host.
    pub offload: Offload,
}

impl ZeroSharding {
    /// That of a layout.
    pub fn of(layout: &Layout) -> Self {
        let LayoutSpec { zero_stage, zero_shard, offload, .. } = **layout;
        Self { zero_stage, zero_shard, offload }
    }
}

/// All families of a problem that agree with `fixed`, and how many degrees fell out for which reason.
#[derive(Clone, Debug, Default)]
pub struct Space {
    /// Those that are [beside each other](Family::is_beside) one after the other.
    pub families: Vec<Family>,
    /// Combinations of degrees that were left out.
    pub rejected: BTreeMap<Rejection, u64>,
    /// The reason why the last of them was.
    pub last_error: Option<LayoutError>,
}

impl Space {
    /// Enumerates the families.
    pub fn new(problem: &Problem, fixed: &PartialLayout) -> Self {
        let mut space = Self::default();
        if let Err(error) = check_named(problem, fixed) {
            space.last_error = Some(error);
            return space;
        }
        if let Err(error) = check_framework(problem, fixed) {
            space.reject(Rejection::Framework, error);
            return space;
        }
        let gpus = problem.limits.num_gpus;
        for tensor in chosen(fixed.tensor_parallel, fixed.among.tensor_parallel, divisors(gpus)) {
            if let Err(error) = problem.limits.check_tensor(tensor.into()) {
                space.reject(Rejection::Tensor, error);
                continue;
            }
            for sequence in [false, true] {
                if fixed.sequence_parallel.is_some_and(|fixed| fixed != sequence) {
                    continue;
                }
                space.add_tensor(problem, fixed, tensor, sequence);
            }
        }
        space.families.sort_unstable_by_key(|family| {
            let Family { shape, pipeline_parallel, data_parallel, .. } = *family;
            let ShapeKey { sharding, switches, micro_batch_size } = shape;
            (sharding, pipeline_parallel, data_parallel, switches, micro_batch_size)
        });
        space
    }

    fn add_tensor(
        &mut self,
        problem: &Problem,
        fixed: &PartialLayout,
        tensor: u32,
        sequence: bool,
    ) {
        let limits = &problem.limits;
        if sequence && tensor == 1 && fixed.sequence_parallel.is_none() {
            return;
        }
        if !abilities(problem).takes_tensor(tensor, sequence, !limits.experts.is_empty()) {
            return self.reject_unable();
        }
        let Some(rest) = quotient(limits.num_gpus, tensor) else { return };
        for context in chosen(fixed.context_parallel, fixed.among.context_parallel, divisors(rest))
        {
            // One that is named need not divide what other degrees leave.
            if quotient(rest, context).is_none() {
                continue;
            }
            for kind in context_kinds(problem, fixed, context) {
                let sharding = Sharding {
                    sequence_parallel: sequence,
                    context_parallel: context,
                    context_parallel_kind: kind,
                    ..Sharding::tensor(tensor)
                };
                // What a kind that nobody named asks for is no reason, where there is another.
                let is_other = fixed.context_parallel_kind.is_none()
                    && kind != ContextParallelKind::Ring
                    && abilities(problem).context_parallel.contains(&ContextParallelKind::Ring);
                if !is_other || problem.limits.check_sequence(&sharding).is_ok() {
                    self.add_kind(problem, fixed, sharding);
                }
            }
        }
    }

    fn add_kind(&mut self, problem: &Problem, fixed: &PartialLayout, sharding: Sharding) {
        let Sharding { context_parallel, context_parallel_kind, .. } = sharding;
        if !abilities(problem).takes_context(context_parallel, context_parallel_kind) {
            return self.reject_unable();
        }
        match problem.limits.check_sequence(&sharding) {
            Ok(()) => self.add_context(problem, fixed, sharding),
            Err(error) => {
                let is_ring = context_parallel_kind == ContextParallelKind::Ring;
                self.reject(if is_ring { Rejection::Sequence } else { Rejection::Tensor }, error);
            }
        }
    }

    fn add_context(&mut self, problem: &Problem, fixed: &PartialLayout, sharding: Sharding) {
        let limits = &problem.limits;
        let Sharding { tensor_parallel, context_parallel, .. } = sharding;
        let Some(rest) = quotient(limits.num_gpus, tensor_parallel * context_parallel) else {
            return;
        };
        for pipeline in
            chosen(fixed.pipeline_parallel, fixed.among.pipeline_parallel, divisors(rest))
        {
            let Some(data) = quotient(rest, pipeline) else { continue };
            let is_among = fixed.among.data_parallel.is_none_or(|among| among.takes(data));
            if fixed.data_parallel.is_some_and(|fixed| fixed != data) || !is_among {
                continue;
            }
            if !self.takes_given_stages(problem, fixed, pipeline) {
                continue;
            }
            if pipeline > 1 && abilities(problem).schedules.is_empty() {
                self.reject_unable();
                continue;
            }
            if u64::from(pipeline) > limits.num_blocks {
                let (stages, blocks) = (pipeline.into(), limits.num_blocks);
                self.reject(Rejection::Stages, LayoutError::TooManyStages { stages, blocks });
                continue;
            }
            self.add_data(problem, fixed, Mesh { sharding, data_parallel: data }, pipeline);
        }
    }

    /// Whether the stages that are given, if any are, divide over so many pipeline ranks.
    fn takes_given_stages(
        &mut self,
        problem: &Problem,
        fixed: &PartialLayout,
        pipeline: u32,
    ) -> bool {
        let Some(stages) = &problem.stages else { return true };
        let given = stages.num_stages();
        // A single rank has one stage.
        let fits = given.is_multiple_of(pipeline) && (pipeline > 1 || given == 1);
        if fixed.pipeline_parallel.is_none() {
            return fits;
        }
        if !given.is_multiple_of(pipeline) {
            let error = LayoutError::GivenStagesUndivided {
                given,
                pipeline_parallel: pipeline,
                works: stages.evenly(pipeline),
                divisor: largest_divisor(given.into(), pipeline.into()),
            };
            self.reject(Rejection::GivenStages, error);
            return false;
        }
        true
    }

    fn add_data(&mut self, problem: &Problem, fixed: &PartialLayout, mesh: Mesh, pipeline: u32) {
        let data = mesh.data_parallel;
        let batch = problem.limits.global_batch_size;
        let indivisible = |micro_batch: u32| LayoutError::Batch {
            global_batch_size: batch,
            data_parallel: data.into(),
            micro_batch_size: micro_batch.into(),
            num_micro_batches: (batch / (u64::from(data) * u64::from(micro_batch)).max(1)).max(1),
        };
        if !batch.is_multiple_of(data.into()) {
            let error = indivisible(fixed.micro_batch_size.unwrap_or(1));
            return self.reject(Rejection::Batch, error);
        }
        let of_replica = (batch / u64::from(data)) as u32;
        let shardings = self.with_experts(problem, fixed, mesh);
        let switched = |sharding| {
            let switches = switches(problem, fixed, &sharding);
            switches.into_iter().map(move |switches| (sharding, switches))
        };
        for (sharding, switches) in shardings.into_iter().flat_map(switched) {
            for micro_batch_size in
                chosen(fixed.micro_batch_size, fixed.among.micro_batch_size, divisors(of_replica))
            {
                let Some(num_micro_batches) = quotient(of_replica, micro_batch_size) else {
                    self.reject(Rejection::Batch, indivisible(micro_batch_size));
                    continue;
                };
                let family = Family {
                    shape: ShapeKey { sharding, micro_batch_size, switches },
                    pipeline_parallel: pipeline,
                    data_parallel: data,
                    num_micro_batches,
                };
                if abilities(problem).combines(family.features(problem)) {
                    self.families.push(family);
                } else {
                    self.reject_unable();
                }
            }
        }
    }

    /// Every way to cut experts over tensor-parallel ranks, and to spread them over the ranks of a stage.
    fn with_experts(
        &mut self,
        problem: &Problem,
        fixed: &PartialLayout,
        mesh: Mesh,
    ) -> Vec<Sharding> {
        let limits = &problem.limits;
        let Sharding { tensor_parallel, sequence_parallel, .. } = mesh.sharding;
        let has_experts = !limits.experts.is_empty();
        let is_free = has_experts && sequence_parallel;
        let free = if is_free { divisors(tensor_parallel) } else { vec![tensor_parallel] };
        let mut shardings = Vec::new();
        for expert_tensor_parallel in
            chosen(fixed.expert_tensor_parallel, fixed.among.expert_tensor_parallel, free)
        {
            let sharding = Sharding { expert_tensor_parallel, ..mesh.sharding };
            if let Err(error) = limits.check_expert_tensor(&sharding) {
                self.reject(Rejection::Expert, error);
                continue;
            }
            let ranks = mesh.stride(MeshAxis::Pipeline) / expert_tensor_parallel;
            let degrees = if has_experts { divisors(ranks) } else { vec![1] };
            for expert_parallel in
                chosen(fixed.expert_parallel, fixed.among.expert_parallel, degrees)
            {
                let sharding = Sharding { expert_parallel, ..sharding };
                let able = abilities(problem);
                if has_experts
                    && !able.takes_experts(expert_parallel, expert_tensor_parallel, tensor_parallel)
                {
                    self.reject_unable();
                    continue;
                }
                match limits.check_expert(&Mesh { sharding, ..mesh }) {
                    Ok(()) => shardings.push(sharding),
                    Err(error) => self.reject(Rejection::Expert, error),
                }
            }
        }
        shardings
    }

    /// Whether it has any layout.
    pub fn has_layouts(&self, problem: &Problem, fixed: &PartialLayout) -> bool {
        self.families.iter().any(|family| {
            let shardings = family.shardings(problem, fixed);
            family.num_layouts(problem, fixed, &shardings) > 0
        })
    }

    /// Counts what the framework cannot run.
    fn reject_unable(&mut self) {
        *self.rejected.entry(Rejection::Framework).or_default() += 1;
    }

    fn reject(&mut self, reason: Rejection, error: LayoutError) {
        *self.rejected.entry(reason).or_default() += 1;
        self.last_error = Some(error);
    }
}

impl Family {
    /// The features that all its layouts have.
    pub(super) fn features(&self, problem: &Problem) -> Features {
        let ShapeKey { sharding, switches, .. } = &self.shape;
        let micro_batches = Some(self.num_micro_batches);
        let facts = &problem.facts;
        facts
            .features
            .and(facts.of_sharding(sharding))
            .and(facts.of_dispatcher(switches.token_dispatcher, sharding))
            .and(Features::of_switches(switches.expert_overlap, switches.cuda_graphs))
            .and(Features::of_ranks(self.pipeline_parallel, micro_batches, self.data_parallel))
    }

    /// Which further features of schedule, recompute and model states the framework does not run with those of the family:
    /// sets of which none may be whole.
    fn refused(&self, problem: &Problem) -> SmallVec<[Features; 8]> {
        let refused = abilities(problem).refused_with(self.features(problem));
        refused.filter(|set| Features::OF_SUBFAMILIES.contain(*set)).collect()
    }

    /// How far apart the ranks of its groups lie.
    pub fn mesh(&self) -> Mesh {
        Mesh { sharding: self.shape.sharding, data_parallel: self.data_parallel }
    }

    /// Whether they differ in their micro-batch and in what is switched on alone.
    pub fn is_beside(&self, other: &Self) -> bool {
        let key = |it: &Self| (it.shape.sharding, it.pipeline_parallel, it.data_parallel);
        key(self) == key(other)
    }

    /// Schedules with their stages a rank that the family can run: of the one that is named, or of all that the framework
    /// has and that are [searched](ScheduleKind::is_searched).
    pub fn schedules(&self, problem: &Problem, fixed: &PartialLayout) -> Vec<(ScheduleKind, u32)> {
        let p = self.pipeline_parallel;
        let most = (problem.limits.num_blocks / u64::from(p)) as u32;
        let listed = fixed.among.schedules().map(Vec::from_iter);
        let named = listed.as_deref().unwrap_or(fixed.schedule.as_slice());
        let able = abilities(problem);
        let searched: SmallVec<[ScheduleKind; 16]> =
            able.schedules.iter().copied().filter(|it| it.is_searched()).collect();
        // One rank has no order to choose.
        let plain = [ScheduleKind::OneFOneB];
        let kinds = match named {
            [] if p == 1 => &plain[..],
            [] => &searched[..],
            _ => named,
        };
        let refused = self.refused(problem);
        let mut schedules = Vec::new();
        for schedule in kinds.iter().copied() {
            let usual = schedule.default_virtual_stages();
            let offload = fixed.offload.unwrap_or_default();
            if !offload.takes_schedule(schedule) || !able.takes_schedule(schedule, p) {
                continue;
            }
            let tried = if schedule.is_interleaved() { 2..=most } else { usual..=usual };
            // Of numbers of stages whose largest has as many layers, the smallest: more only make stages less even.
            let layers = problem.limits.num_blocks.saturating_sub(2);
            let largest = |v: u32| layers.div_ceil(u64::from(p * v).max(1));
            let is_open = fixed.virtual_stages.is_none() && problem.stages.is_none();
            let is_needed = |v: &u32| !is_open || *v <= 2 || largest(*v) < largest(*v - 1);
            // What a few stages are too many for, more are.
            let takes = |v: &u32| {
                let numbers = [p, *v, self.num_micro_batches].map(u64::from);
                problem.limits.check_schedule(schedule, numbers).is_ok()
            };
            let chosen = |v: &u32| {
                let given = problem.stages.as_ref().map(GivenStages::num_stages);
                fixed.virtual_stages.is_none_or(|fixed| fixed == *v)
                    && fixed.among.virtual_stages.is_none_or(|among| among.takes(*v))
                    && runs(&refused, Features::of_schedule(schedule, p, *v))
                    && (p == 1 || problem.stage_rule(p, *v) != StageRule::Impossible)
                    && self.takes_overlap(problem, *v, Recompute::None)
                    && given.is_none_or(|given| given == p * *v)
            };
            let tried = tried.take_while(takes).filter(is_needed).filter(chosen);
            schedules.extend(tried.map(|v| (schedule, v)));
        }
        schedules
    }

    /// Why the family cannot run the schedule, stages and shards that are fixed, if it cannot.
    pub fn schedule_error(&self, problem: &Problem, fixed: &PartialLayout) -> Option<LayoutError> {
        let given = problem.stages.as_ref().map(GivenStages::num_stages);
        let of_given = given.map(|given| given / self.pipeline_parallel);
        let schedule = fixed.schedule.unwrap_or(match fixed.virtual_stages.or(of_given) {
            Some(2..) => ScheduleKind::Interleaved,
            _ => ScheduleKind::OneFOneB,
        });
        let stages = fixed.virtual_stages.unwrap_or(schedule.default_virtual_stages());
        if let (Some(given), Some(fits)) = (given, of_given.filter(|fits| *fits != stages))
            && (fixed.virtual_stages.is_some() || !schedule.is_interleaved())
        {
            let (pipeline_parallel, virtual_stages) = (self.pipeline_parallel, stages);
            return Some(LayoutError::GivenStages {
                given,
                pipeline_parallel,
                virtual_stages,
                fits,
            });
        }
        let stages = of_given.unwrap_or(stages);
        let numbers = [self.pipeline_parallel, stages, self.num_micro_batches].map(u64::from);
        let schedule = problem.limits.check_schedule(schedule, numbers).err();
        let replicas = u64::from(self.mesh().replicas());
        schedule.or_else(|| {
            let degree = u64::from(fixed.zero_shard?);
            if let Err(error) = self.check_expert_shards(fixed.zero_shard?) {
                return Some(error);
            }
            (!replicas.is_multiple_of(degree)).then(|| LayoutError::NotDivisible {
                what: "context x data parallel ranks",
                size: replicas,
                by: "`zero_shard`",
                degree,
                works: largest_divisor(replicas, degree),
            })
        })
    }

    /// Ways to shard model states: not at all, over all replicas, or over those of a network domain
    /// (hybrid sharding).
    pub fn shardings(&self, problem: &Problem, fixed: &PartialLayout) -> Vec<ZeroSharding> {
        let replicas = self.mesh().replicas();
        let within = problem.hardware.domain / self.shape.sharding.tensor_parallel;
        let local = divisors(replicas).into_iter().rfind(|shards| *shards <= within);
        let hybrid =
            local.filter(|shards| (2..replicas).contains(shards) && self.shards_experts(*shards));
        let able = abilities(problem);
        let refused = self.refused(problem);
        // Experts that tensor-parallel ranks do not cut are on several ranks without a replica of the rest.
        let has_experts = !problem.limits.experts.is_empty();
        let has_copies = replicas > 1 || has_experts && self.mesh().expert_replicas() > 1;
        let mut shardings = Vec::new();
        for zero_stage in ZeroStage::ALL {
            let is_named = fixed.zero_stage.is_none_or(|fixed| fixed == zero_stage);
            if !is_named || !fixed.among.takes_zero(zero_stage) {
                continue;
            }
            let sharded = zero_stage != ZeroStage::None;
            let offload = fixed.offload.unwrap_or_default();
            let num_blocks = problem.limits.num_blocks;
            if !offload.takes_zero(zero_stage) || !able.takes_offload(offload, num_blocks) {
                continue;
            }
            // Without replicas every stage is the same: only the plainest is worth a candidate. Except that
            // gradients which are sharded go to the host as they are made.
            let leaves = offload.optimizer && zero_stage == ZeroStage::Gradients;
            let takes = |stage, shards| {
                let context = self.shape.sharding.context_parallel;
                let of_states = Features::of_states(stage, [shards, replicas, context], offload);
                able.takes_zero(stage, [shards, replicas], context) && runs(&refused, of_states)
            };
            let has_plain = takes(ZeroStage::None, 1);
            let is_alike = !has_copies && !offload.parameters && !leaves && has_plain;
            let is_asked = fixed.zero_stage.is_some() || fixed.among.zero_stage.is_some();
            if sharded && is_alike && !is_asked {
                continue;
            }
            let degrees = match fixed.zero_shard {
                Some(shards) if replicas.is_multiple_of(shards) && self.shards_experts(shards) => {
                    vec![shards]
                }
                Some(_) => Vec::new(),
                None if sharded => hybrid.into_iter().chain([replicas]).collect(),
                None => vec![replicas],
            };
            let option = |zero_shard| ZeroSharding { zero_stage, zero_shard, offload };
            let options =
                degrees.into_iter().filter(|shards| takes(zero_stage, *shards)).map(option);
            shardings.extend(options);
        }
        shardings
    }

    /// Whether each group of expert-parallel ranks falls whole into one group of shards.
    fn shards_experts(&self, shards: u32) -> bool {
        self.check_expert_shards(shards).is_ok()
    }

    fn check_expert_shards(&self, shards: u32) -> Result<(), LayoutError> {
        check_expert_shards(shards, &self.mesh())
    }

    /// How many subfamilies it has: schedules with their stages a rank, and policies of recompute.
    pub fn num_subfamilies(&self, problem: &Problem, fixed: &PartialLayout) -> u64 {
        let schedules = self.schedules(problem, fixed).len();
        (schedules * self.recomputes(problem, fixed).count()) as u64
    }

    /// Those of its `shardings` that the framework runs together with a schedule and a policy of recompute.
    pub fn combined<'a>(
        &self,
        problem: &Problem,
        shardings: &'a [ZeroSharding],
        (schedule, virtual_stages): (ScheduleKind, u32),
        recompute: Recompute,
    ) -> impl Iterator<Item = ZeroSharding> + use<'a> {
        let refused = self.refused(problem);
        let of_subfamily = Features::of_schedule(schedule, self.pipeline_parallel, virtual_stages)
            .and(Features::of_recompute(recompute));
        let (replicas, context) = (self.mesh().replicas(), self.shape.sharding.context_parallel);
        shardings.iter().copied().filter(move |it| {
            let ZeroSharding { zero_stage, zero_shard, offload } = *it;
            let shards = [zero_shard, replicas, context];
            let of_states = Features::of_states(zero_stage, shards, offload);
            runs(&refused, of_subfamily.and(of_states))
        })
    }

    /// How many layouts it has.
    pub fn num_layouts(
        &self,
        problem: &Problem,
        fixed: &PartialLayout,
        shardings: &[ZeroSharding],
    ) -> u64 {
        // What is of states alone, or of none, was left out of them, and of schedules and policies.
        let mut refused = self.refused(problem).into_iter();
        let is_mixed = |set: Features| {
            let others = set.without(Features::OF_STATES);
            others != set && others != Features::NONE
        };
        if !refused.any(is_mixed) {
            return self.num_subfamilies(problem, fixed) * shardings.len() as u64;
        }
        let schedules = self.schedules(problem, fixed);
        let with = |recompute| {
            let of = schedules.iter().map(move |schedule| {
                self.combined(problem, shardings, *schedule, recompute).count() as u64
            });
            of.sum::<u64>()
        };
        self.recomputes(problem, fixed).map(with).sum()
    }

    /// One of its layouts.
    ///
    /// # Panics
    ///
    /// If the schedule, its stages a rank or the sharding are not among the family's.
    pub fn layout(
        &self,
        problem: &Problem,
        (schedule, virtual_stages): (ScheduleKind, u32),
        recompute: Recompute,
        states: ZeroSharding,
    ) -> Layout {
        let Self { shape, pipeline_parallel, data_parallel, num_micro_batches } = *self;
        let ShapeKey { sharding, micro_batch_size, switches } = shape;
        let spec = LayoutSpec {
            tensor_parallel: sharding.tensor_parallel,
            sequence_parallel: sharding.sequence_parallel,
            context_parallel: sharding.context_parallel,
            context_parallel_kind: sharding.context_parallel_kind,
            expert_parallel: sharding.expert_parallel,
            expert_tensor_parallel: sharding.expert_tensor_parallel,
            pipeline_parallel,
            virtual_stages,
            data_parallel,
            zero_shard: states.zero_shard,
            zero_stage: states.zero_stage,
            micro_batch_size,
            num_micro_batches,
            recompute,
            offload: states.offload,
            schedule,
            switches,
        };
        let layout = Layout::new(spec, &problem.limits);
        layout.unwrap_or_else(|error| panic!("a family has only layouts that are valid: {error}"))
    }

    /// Recompute policies: the one that is named, or all that are searched.
    pub fn recomputes(
        &self,
        problem: &Problem,
        fixed: &PartialLayout,
    ) -> impl Iterator<Item = Recompute> {
        let offload = fixed.offload.unwrap_or_default();
        let is_tried = move |it: &Recompute| {
            fixed.recompute.is_none() && abilities(problem).takes_recompute(*it)
        };
        // A graph whose modules were chosen has those in the place of the usual ones.
        let chosen = problem.graph.recomputed_modules();
        let of_graph = move |it| match (it, chosen) {
            (Recompute::Selective, Some(modules)) => Recompute::Modules(modules),
            _ => it,
        };
        let searched = Recompute::ALL.into_iter().map(of_graph).filter(is_tried);
        let all = fixed.recompute.into_iter().chain(searched);
        // With however many stages a rank that it takes.
        let (p, graphs) = (self.pipeline_parallel, self.shape.switches.cuda_graphs);
        let all =
            all.filter(move |it| abilities(problem).takes_offload_with(offload, p, *it, graphs));
        let refused = self.refused(problem);
        let all = all.filter(move |it| runs(&refused, Features::of_recompute(*it)));
        let are_named = fixed.recompute.is_some() && fixed.cuda_graphs.is_some();
        let all = all.filter(move |it| are_named || Abilities::takes_graphs_with(graphs, *it));
        all.filter(move |recompute| self.takes_overlap(problem, u32::MAX, *recompute))
    }

    /// Whether exchanges of experts run beside another micro-batch, if they are to.
    fn takes_overlap(&self, problem: &Problem, virtual_stages: u32, recompute: Recompute) -> bool {
        let overlap = self.shape.switches.expert_overlap;
        let pipeline = [self.pipeline_parallel, virtual_stages];
        abilities(problem).takes_overlap(overlap, pipeline, recompute)
    }
}

/// Whether none of some sets that are refused is whole in a set of features.
fn runs(refused: &[Features], features: Features) -> bool {
    !refused.iter().any(|set| features.contain(*set))
}

/// The value that is fixed, or all of `free` among which a user lets choose.
fn chosen(fixed: Option<u32>, among: Option<Degrees>, mut free: Vec<u32>) -> Vec<u32> {
    if let Some(fixed) = fixed {
        return vec![fixed];
    }
    free.retain(|degree| among.is_none_or(|among| among.takes(*degree)));
    free
}

fn quotient(number: u32, divisor: u32) -> Option<u32> {
    (divisor > 0 && number.is_multiple_of(divisor)).then(|| number / divisor)
}

/// All divisors, ascending.
fn divisors(number: u32) -> Vec<u32> {
    let small = (1..=number.isqrt()).filter(|divisor| number.is_multiple_of(*divisor));
    let mut all: Vec<u32> = small.flat_map(|divisor| [divisor, number / divisor]).collect();
    all.sort_unstable();
    all.dedup();
    all
}
