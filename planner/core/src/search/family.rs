//! Families: layouts that differ only in schedule, recompute and sharding of model states; and shape families, which
//! differ only in micro-batches and switches.

use std::sync::Arc;

use ir::framework::{Abilities, Features};
use ir::graph::{Recompute, Switches};
use ir::layout::{Layout, LayoutError, LayoutSpec, Mesh, Offload, PartialLayout, ZeroStage};
use ir::schedule::{ScheduleKind, StagePlacement};
use smallvec::{SmallVec, smallvec};

use super::feasible::abilities;
use crate::problem::{GivenStages, Problem, StageRule};
use crate::step::{Memo, ShapeKey};

/// Layouts that differ only in schedule, recompute and ZeRO stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Family {
    /// Sharding of operators, and the size of a micro-batch.
    pub shape: ShapeKey,
    /// Number of pipeline ranks.
    pub pipeline_parallel: u32,
    /// Number of data-parallel replicas.
    pub data_parallel: u32,
    /// Number of micro-batches of a replica.
    pub num_micro_batches: u32,
    /// True if replicas lie in groups of unlike GPUs. Each group then has its own number of micro-batches, and
    /// `num_micro_batches` is the mean. If false, pipeline ranks lie in the groups, if there are groups.
    pub by_group: bool,
}

/// Families that differ only in micro-batches and switches. A search may have more than a million families, so they are
/// listed only while they are looked at.
#[derive(Clone, Debug)]
pub struct ShapeFamily {
    /// Options that the families have in common.
    pub(super) spec: LayoutSpec,
    /// True if replicas lie in groups of unlike GPUs.
    pub(super) by_group: bool,
    /// Switches that the families have.
    pub(super) switches: Vec<Switches>,
    /// Sizes of micro-batches, each with the number of micro-batches of a replica.
    pub(super) micro_batches: Vec<[u32; 2]>,
}

impl ShapeFamily {
    /// A family alone, of layouts with this offload.
    pub(super) fn of_one(family: &Family, offload: Offload) -> Self {
        Self {
            spec: LayoutSpec { offload, ..family.spec() },
            by_group: family.by_group,
            switches: vec![family.shape.switches],
            micro_batches: vec![[family.shape.micro_batch_size, family.num_micro_batches]],
        }
    }

    /// Hash of the shape family, the same in every run.
    pub(super) fn order(&self, problem: &Problem) -> u64 {
        self.families(problem).next().map_or(0, |first| first.order())
    }

    /// The families that the framework can run.
    pub fn families(&self, problem: &Problem) -> impl Iterator<Item = Family> {
        let with = |switches: &Switches| {
            let spec = LayoutSpec { switches: *switches, ..self.spec };
            self.micro_batches.iter().map(move |[micro_batch_size, num_micro_batches]| {
                let (micro_batch_size, num_micro_batches) = (*micro_batch_size, *num_micro_batches);
                LayoutSpec { micro_batch_size, num_micro_batches, ..spec }
            })
        };
        let specs = self.switches.iter().flat_map(with);
        let families = specs.map(|spec| Family::of(&spec, problem, self.by_group));
        families.filter(|it| abilities(problem).combines(it.features(problem)))
    }

    /// Upper bound of the number of families: the framework may not run all combinations.
    pub(super) fn num_combinations(&self) -> u64 {
        (self.switches.len() * self.micro_batches.len()) as u64
    }
}

/// Cache of the number of a family's layouts, by the features of each sharding of model states and by everything else
/// that the number depends on: features, switches, pipeline ranks, micro-batches, and whether replicas lie in groups.
pub(super) type LayoutCounts = Memo<SmallVec<[Features; 8]>, Arc<LayoutCountsOfStates>>;

type LayoutCountsOfStates = Memo<(Features, Switches, (u32, u32, bool)), u64>;

/// Sharding of a family's model states over replicas, and their offload to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ZeroSharding {
    /// Model states that are sharded.
    pub zero_stage: ZeroStage,
    /// Number of ranks that share one copy of the states.
    pub zero_shard: u32,
    /// Model states and activations that are offloaded to the host.
    pub offload: Offload,
}

impl ZeroSharding {
    /// The sharding of a layout.
    pub fn of(layout: &Layout) -> Self {
        let LayoutSpec { zero_stage, zero_shard, offload, .. } = **layout;
        Self { zero_stage, zero_shard, offload }
    }

    /// True if each copy of the states lies within one group of unlike GPUs, which have `replicas` each, or spans all
    /// `of` replicas.
    pub(super) fn lies_in_groups(&self, replicas: &[u32], of: u32) -> bool {
        self.zero_shard == of || replicas.iter().all(|it| it.is_multiple_of(self.zero_shard))
    }
}

impl Family {
    /// The family of a layout, whose replicas lie in groups of unlike GPUs or not.
    fn of(spec: &LayoutSpec, problem: &Problem, by_group: bool) -> Self {
        let LayoutSpec { pipeline_parallel, data_parallel, num_micro_batches, .. } = *spec;
        let shape = ShapeKey::of(spec, problem);
        Self { shape, pipeline_parallel, data_parallel, num_micro_batches, by_group }
    }

    /// Features that all layouts of the family have.
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

    /// Sets of features of schedule, recompute and model states that the framework refuses together with those of the
    /// family; no layout may have a whole set.
    fn refused(&self, problem: &Problem) -> SmallVec<[Features; 8]> {
        let refused = abilities(problem).refused_with(self.features(problem));
        refused.filter(|set| Features::OF_SUBFAMILIES.contain(*set)).collect()
    }

    /// Hash of the family, the same in every run.
    pub fn order(&self) -> u64 {
        let Self { shape, pipeline_parallel, data_parallel, num_micro_batches, by_group } = *self;
        let sharding = shape.sharding;
        let numbers = [
            sharding.tensor_parallel,
            sharding.context_parallel,
            sharding.expert_parallel,
            pipeline_parallel,
            data_parallel,
            num_micro_batches,
        ];
        let exchanges_heads = sharding.head_exchange() > 1;
        let [by_sequence, by_heads] = [sharding.sequence_parallel, exchanges_heads].map(u32::from);
        let flags = [by_sequence, sharding.expert_groups() - 1, by_heads];
        let mix = |sum: u64, number: &u32| {
            (sum ^ u64::from(*number)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17)
        };
        numbers.iter().chain(&flags).fold(0, mix) ^ u64::from(by_group)
    }

    /// The mesh on which the ranks of its groups lie.
    pub fn mesh(&self) -> Mesh {
        Mesh { sharding: self.shape.sharding, data_parallel: self.data_parallel }
    }

    /// Schedules to try: the named ones, or all that the framework has and that are
    /// [searched](ScheduleKind::is_searched).
    pub(super) fn schedule_kinds(
        &self,
        problem: &Problem,
        fixed: &PartialLayout,
    ) -> SmallVec<[ScheduleKind; 16]> {
        match fixed.schedule.listed() {
            // A single rank has no order to choose.
            [] if self.pipeline_parallel == 1 => smallvec![ScheduleKind::OneFOneB],
            [] => {
                let all = abilities(problem).schedules.iter().copied();
                all.filter(|it| it.is_searched()).collect()
            }
            named => named.iter().copied().collect(),
        }
    }

    /// Schedules of [`Self::schedule_kinds`] that the family can run, each with its stages per rank.
    pub fn schedules(&self, problem: &Problem, fixed: &PartialLayout) -> Vec<(ScheduleKind, u32)> {
        let p = self.pipeline_parallel;
        let most = (problem.limits.num_blocks / u64::from(p)) as u32;
        let able = abilities(problem);
        let refused = self.refused(problem);
        let mut schedules = Vec::new();
        for schedule in self.schedule_kinds(problem, fixed) {
            let is_round = schedule.placement() == StagePlacement::Loop;
            if problem.groups.is_some() && !self.by_group && !is_round {
                continue;
            }
            let usual = schedule.default_virtual_stages();
            let offload = fixed.offload.unwrap_or(Offload::NONE);
            if !offload.works_with_schedule(schedule) || !able.supports_schedule(schedule, p) {
                continue;
            }
            let tried = if schedule.is_interleaved() { 2..=most } else { usual..=usual };
            // Of stage counts with equally large largest stages, the smallest: a larger count only makes stages less
            // even.
            let layers = problem.limits.num_blocks.saturating_sub(2);
            let largest = |v: u32| layers.div_ceil(u64::from(p * v).max(1));
            let is_open = fixed.virtual_stages.one().is_none() && problem.stages.is_none();
            let is_needed = |v: &u32| !is_open || *v <= 2 || largest(*v) < largest(*v - 1);
            // If a number of stages is too large, all larger numbers are as well.
            let is_valid = |v: &u32| self.check_schedule(problem, schedule, *v).is_ok();
            let chosen = |v: &u32| {
                let given = problem.stages.as_ref().map(GivenStages::num_stages);
                fixed.virtual_stages.allows(*v)
                    && runs(&refused, Features::of_schedule(schedule, p, *v))
                    && (p == 1 || problem.stage_rule(p, *v) != StageRule::Impossible)
                    && self.can_overlap(problem, *v, Recompute::None)
                    && given.is_none_or(|given| given == p * *v)
            };
            let tried = tried.take_while(is_valid).filter(is_needed).filter(chosen);
            schedules.extend(tried.map(|v| (schedule, v)));
        }
        schedules
    }

    /// Reason why the family cannot run the fixed schedule, stages and shards, if it cannot.
    pub fn schedule_error(&self, problem: &Problem, fixed: &PartialLayout) -> Option<LayoutError> {
        let given = problem.stages.as_ref().map(GivenStages::num_stages);
        let of_given = given.map(|given| given / self.pipeline_parallel);
        let schedule = fixed.schedule.unwrap_or(match fixed.virtual_stages.one().or(of_given) {
            Some(2..) => ScheduleKind::Interleaved,
            _ => ScheduleKind::OneFOneB,
        });
        let stages = fixed.virtual_stages.unwrap_or(schedule.default_virtual_stages());
        if let (Some(given), Some(fits)) = (given, of_given.filter(|fits| *fits != stages))
            && (fixed.virtual_stages.one().is_some() || !schedule.is_interleaved())
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
        let schedule = self.check_schedule(problem, schedule, stages).err();
        schedule.or_else(|| self.check_shards(problem, fixed.zero_shard.one()?).err())
    }

    /// Checks that the family can run a schedule with `virtual_stages` stages per rank.
    fn check_schedule(
        &self,
        problem: &Problem,
        schedule: ScheduleKind,
        virtual_stages: u32,
    ) -> Result<(), LayoutError> {
        let spec = LayoutSpec { schedule, virtual_stages, ..self.spec() };
        // The number of micro-batches of each group may be a multiple where the mean is not.
        let multiple = self.multiple(schedule);
        let num_micro_batches = spec.num_micro_batches.next_multiple_of(multiple);
        let spec = LayoutSpec { num_micro_batches, ..spec };
        problem.limits.stages_have_blocks(&spec)?;
        problem.limits.schedule_runs(&spec)
    }

    /// Checks that model states can be sharded over `zero_shard` ranks.
    fn check_shards(&self, problem: &Problem, zero_shard: u32) -> Result<(), LayoutError> {
        let zero_stage = ZeroStage::OptimizerState;
        problem.limits.shards_divide(&LayoutSpec { zero_shard, zero_stage, ..self.spec() })
    }

    /// Multiple of which a replica's number of micro-batches must be, where replicas have different numbers.
    pub(super) fn multiple(&self, schedule: ScheduleKind) -> u32 {
        match schedule {
            ScheduleKind::Interleaved if self.by_group => self.pipeline_parallel,
            _ => 1,
        }
    }

    /// Layout with the options that all layouts of the family have in common.
    pub(super) fn spec(&self) -> LayoutSpec {
        let Self { shape, pipeline_parallel, data_parallel, num_micro_batches, .. } = *self;
        let ShapeKey { sharding, micro_batch_size, switches, .. } = shape;
        LayoutSpec {
            pipeline_parallel,
            data_parallel,
            micro_batch_size,
            num_micro_batches,
            switches,
            ..LayoutSpec::ONE_RANK.sharded(&sharding)
        }
    }

    /// Ways to shard model states: not at all, over all replicas, or over those of a network domain (hybrid sharding).
    pub fn shardings(&self, problem: &Problem, fixed: &PartialLayout) -> Vec<ZeroSharding> {
        let replicas = self.mesh().replicas();
        let domain = problem.all_hardware().map(|hardware| hardware.domain).min().unwrap_or(1);
        let within = domain / self.shape.sharding.tensor_parallel;
        let divides = |shards| self.check_shards(problem, shards).is_ok();
        let local = divisors(replicas).into_iter().rfind(|shards| *shards <= within);
        let hybrid = local.filter(|shards| (2..replicas).contains(shards) && divides(*shards));
        let able = abilities(problem);
        let refused = self.refused(problem);
        // Experts that tensor parallelism does not shard have copies on several ranks, even without other replicas.
        let has_experts = !problem.limits.experts.is_empty();
        let has_copies = replicas > 1 || has_experts && self.mesh().expert_replicas() > 1;
        let mut shardings = Vec::new();
        for zero_stage in ZeroStage::ALL {
            if !fixed.zero_stage.allows(zero_stage) {
                continue;
            }
            let sharded = zero_stage != ZeroStage::None;
            let offload = fixed.offload.unwrap_or(Offload::NONE);
            let num_blocks = problem.limits.num_blocks;
            if !offload.works_with_zero(zero_stage) || !able.supports_offload(offload, num_blocks) {
                continue;
            }
            // Without replicas all ZeRO stages are the same, and only the plainest is a candidate. The exception:
            // sharded gradients that go to the host as they are made.
            let leaves = offload.optimizer && zero_stage == ZeroStage::Gradients;
            let supports = |stage, shards| {
                let context = self.shape.sharding.context_parallel;
                let of_states = Features::of_states(stage, [shards, replicas, context], offload);
                able.supports_zero(stage, [shards, replicas], context) && runs(&refused, of_states)
            };
            let has_plain = supports(ZeroStage::None, 1);
            let is_alike = !has_copies && !offload.parameters && !leaves && has_plain;
            if sharded && is_alike && fixed.zero_stage.is_any() {
                continue;
            }
            let degrees = match fixed.zero_shard.one() {
                Some(shards) if divides(shards) => vec![shards],
                Some(_) => Vec::new(),
                None if sharded => hybrid.into_iter().chain([replicas]).collect(),
                None => vec![replicas],
            };
            let option = |zero_shard| ZeroSharding { zero_stage, zero_shard, offload };
            let options =
                degrees.into_iter().filter(|shards| supports(zero_stage, *shards)).map(option);
            shardings.extend(options);
        }
        shardings
    }

    /// Shardings, of `shardings`, that the framework runs together with a schedule and a recompute policy.
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
        let family = *self;
        let is_run =
            move |it: &ZeroSharding| runs(&refused, of_subfamily.and(family.features_of(*it)));
        shardings.iter().copied().filter(is_run)
    }

    /// Features of a sharding of the family's model states.
    fn features_of(&self, states: ZeroSharding) -> Features {
        let ZeroSharding { zero_stage, zero_shard, offload } = states;
        let shards = [zero_shard, self.mesh().replicas(), self.shape.sharding.context_parallel];
        Features::of_states(zero_stage, shards, offload)
    }

    /// The cache of numbers of layouts that families with these shardings share.
    pub(super) fn known_counts(
        &self,
        shardings: &[ZeroSharding],
        known: &LayoutCounts,
    ) -> Arc<LayoutCountsOfStates> {
        known.get(shardings.iter().map(|it| self.features_of(*it)).collect(), Arc::default)
    }

    /// Number of layouts of the family, with a cache that families share.
    pub(super) fn num_layouts(
        &self,
        problem: &Problem,
        fixed: &PartialLayout,
        shardings: &[ZeroSharding],
        known: &LayoutCountsOfStates,
    ) -> u64 {
        let Self { shape, pipeline_parallel, num_micro_batches, by_group, .. } = *self;
        let schedule = (pipeline_parallel, num_micro_batches, by_group);
        known.get((self.features(problem), shape.switches, schedule), || {
            let schedules = self.schedules(problem, fixed);
            let with = |recompute| {
                let of = schedules.iter().map(move |schedule| {
                    self.combined(problem, shardings, *schedule, recompute).count() as u64
                });
                of.sum::<u64>()
            };
            self.recomputes(problem, fixed).map(with).sum()
        })
    }

    /// One layout of the family.
    ///
    /// # Panics
    ///
    /// If the schedule, its stages per rank or the sharding are not among the family's.
    pub fn layout(
        &self,
        problem: &Problem,
        (schedule, virtual_stages): (ScheduleKind, u32),
        recompute: Recompute,
        states: ZeroSharding,
    ) -> Layout {
        let spec = self.layout_spec((schedule, virtual_stages), recompute, states);
        let layout = Layout::new(spec, &problem.limits);
        layout.unwrap_or_else(|error| panic!("a family has only layouts that are valid: {error}"))
    }

    /// Options of a layout of the family.
    pub(super) fn layout_spec(
        &self,
        (schedule, virtual_stages): (ScheduleKind, u32),
        recompute: Recompute,
        states: ZeroSharding,
    ) -> LayoutSpec {
        let ZeroSharding { zero_stage, zero_shard, offload } = states;
        LayoutSpec {
            virtual_stages,
            zero_shard,
            zero_stage,
            recompute,
            offload,
            schedule,
            ..self.spec()
        }
    }

    /// Recompute policies: the named one, or all that are searched.
    pub fn recomputes(
        &self,
        problem: &Problem,
        fixed: &PartialLayout,
    ) -> impl Iterator<Item = Recompute> {
        let offload = fixed.offload.unwrap_or(Offload::NONE);
        let is_tried = move |it: &Recompute| {
            fixed.recompute.is_any() && abilities(problem).supports_recompute(*it)
        };
        // Where a graph has chosen modules, selective recompute recomputes those.
        let chosen = problem.graph.recomputed_modules();
        let of_graph = move |it| match (it, chosen) {
            (Recompute::Selective, Some(modules)) => Recompute::Modules(modules),
            _ => it,
        };
        let searched = Recompute::ALL.into_iter().map(of_graph).filter(is_tried);
        let all = fixed.recompute.one().into_iter().chain(searched);
        // Offload is checked for any number of stages per rank.
        let (p, graphs) = (self.pipeline_parallel, self.shape.switches.cuda_graphs);
        let all =
            all.filter(move |it| abilities(problem).supports_offload_with(offload, p, *it, graphs));
        let refused = self.refused(problem);
        let all = all.filter(move |it| runs(&refused, Features::of_recompute(*it)));
        let are_named = !fixed.recompute.is_any() && !fixed.cuda_graphs.is_any();
        let all = all.filter(move |it| are_named || Abilities::graphs_work_with(graphs, *it));
        all.filter(move |recompute| self.can_overlap(problem, u32::MAX, *recompute))
    }

    /// True unless expert exchanges should overlap another micro-batch and cannot.
    fn can_overlap(&self, problem: &Problem, virtual_stages: u32, recompute: Recompute) -> bool {
        let overlap = self.shape.switches.expert_overlap;
        let pipeline = [self.pipeline_parallel, virtual_stages];
        abilities(problem).supports_overlap(overlap, pipeline, recompute)
    }
}

/// True if a set of features contains none of the refused sets.
fn runs(refused: &[Features], features: Features) -> bool {
    !refused.iter().any(|set| features.contain(*set))
}

/// All divisors of a number, ascending.
pub(super) fn divisors(number: u32) -> Vec<u32> {
    let small = (1..=number.isqrt()).filter(|divisor| number.is_multiple_of(*divisor));
    let mut all: Vec<u32> = small.flat_map(|divisor| [divisor, number / divisor]).collect();
    all.sort_unstable();
    all.dedup();
    all
}
