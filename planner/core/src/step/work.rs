//! The work of a layout's step, as the simulator runs it: an assignment with messages, reductions, updates and memory.

use std::collections::BTreeMap;

use cost_models::block::{BlockPart, BlockParts, ByAxis, PassTime, played_together};
use ir::collective::Collective;
use ir::framework::{Framework, UpdatedParameters, WhenReduced};
use ir::graph::{Axis, BlockRecompute};
use ir::layout::{Layout, ZeroStage};
use ir::schedule::ActionKind;
use ir::units::{Bytes, Nanos};
use simulator::{
    GroupCollective, Messages, PassPart, PassParts, RankWork, Run, SharedWeights, StageWork,
    StepWork, TimedMessage, Transfer,
};

use super::assignment::{Assignment, Stage};
use super::memory;
use super::replicas::Replicas;

/// The step of a layout: the work and the memory of every rank.
pub struct Step<'a> {
    /// Assignment of blocks to stages and ranks.
    pub assignment: &'a Assignment<'a>,
    /// The layout over GPUs.
    pub layout: Layout,
    /// Durations, transfers and memory of the schedule's actions; the allocator's slack left out.
    pub work: StepWork,
}

/// Class of a block that a pass goes through, and its recompute policy.
pub(super) type PassedBlock = (usize, BlockRecompute);

/// Pipeline ranks whose tied weights are reduced together, in [`StepWork::groups`].
const TIED: u32 = 0;

/// All pipeline ranks, for the norm of all gradients, in [`StepWork::groups`].
pub(super) const ALL_RANKS: u32 = 1;

/// The ranks that have the first stage, in [`StepWork::groups`]; those of the other stages follow.
const COPIES: u32 = 2;

impl<'a> Step<'a> {
    /// The step of a layout with this assignment of blocks.
    pub fn new(assignment: &'a Assignment<'a>, layout: Layout) -> Self {
        let builder = Builder::new(assignment, &layout);
        let work = builder.work();
        Self { assignment, layout, work }
    }

    /// The weights that asynchronous replicas share; `None` for other methods.
    pub fn shared_weights(&self) -> Option<SharedWeights> {
        let builder = Builder::new(self.assignment, &self.layout);
        let replicas = builder.replicas_of(0);
        replicas.shared_weights(self.assignment.held.first()?, builder.passes_of(0))
    }
}

impl Assignment<'_> {
    /// Parts of the passes of each class of blocks, in each group of GPUs.
    pub(super) fn parts(&self) -> Vec<Vec<BlockParts>> {
        let Self { problem, shape, .. } = self;
        let of_group = |group: usize| {
            let classes = problem.graph.classes().map(|(class, block)| {
                let setting = shape.key.setting(problem, class.0);
                let hardware = problem.hardware_of(group);
                BlockParts::new(block, &setting, &shape.key.groups(), hardware)
            });
            classes.collect()
        };
        (0..problem.num_groups()).map(of_group).collect()
    }

    /// Group of the GPUs that have a stage.
    pub(super) fn group_of_stage(&self, stage: usize) -> usize {
        self.groups[self.ranks.first_with(stage)]
    }

    /// The parts of a block's pass; recompute comes first.
    pub(super) fn parts_of<'p>(
        &self,
        parts: &'p [BlockParts],
        (class, policy): PassedBlock,
        kind: ActionKind,
    ) -> impl Iterator<Item = BlockPart> + use<'p> {
        let none: &[BlockPart] = &[];
        let parts = &parts[class];
        let is_recomputed = !self.chain.is_end(class);
        let recompute = if is_recomputed { parts.recompute[policy].as_slice() } else { none };
        let [first, second] = match kind {
            ActionKind::Forward => [none, &parts.forward],
            ActionKind::Backward => [recompute, &parts.backward],
            ActionKind::InputGrad => [recompute, &parts.input_grad],
            ActionKind::WeightGrad => [none, &parts.weight_grad],
            _ => [none, none],
        };
        first.iter().chain(second).copied()
    }

    /// A stage's blocks in the order in which a pass goes through them.
    pub(super) fn passed(&self, stage: usize, kind: ActionKind) -> Vec<PassedBlock> {
        let ranges = std::iter::once(self.blocks(stage)).chain(self.shared_ends(stage));
        let alike = ranges.flat_map(|range| self.chain.by_policy(self.recompute, range));
        let blocks = alike.flat_map(|(policy, range)| range.map(move |block| (block, policy)));
        let mut passed: Vec<PassedBlock> =
            blocks.map(|(block, policy)| (self.chain.class_at(block), policy)).collect();
        if kind != ActionKind::Forward {
            passed.reverse();
        }
        passed
    }

    /// Time of a pass of a stage over these blocks.
    fn time_of(&self, stage: usize, passed: &[PassedBlock], kind: ActionKind) -> PassTime {
        let blocks = self.shape.blocks_in(self.group_of_stage(stage));
        let of = |(class, policy): &PassedBlock| {
            let block = &blocks[*class];
            let recompute = block.recompute[*policy];
            match kind {
                ActionKind::Forward => block.forward,
                ActionKind::Backward => block.backward + recompute,
                ActionKind::InputGrad => block.input_grad + recompute,
                _ => block.weight_grad,
            }
        };
        passed.iter().map(of).sum()
    }
}

impl Stage {
    /// Time of a pass, with the recompute that it needs.
    pub(super) fn pass(&self, kind: ActionKind) -> PassTime {
        match kind {
            ActionKind::Forward => self.forward,
            ActionKind::Backward => self.backward + self.recompute,
            ActionKind::InputGrad => self.input_grad + self.recompute,
            ActionKind::WeightGrad => self.weight_grad,
            _ => PassTime::default(),
        }
    }
}

/// Begins a transfer. A copy of activations to the host in forward waits for the copy of the bucket before, so that the
/// activations of at most two buckets are on the device.
fn started(transfer: Transfer, kind: ActionKind) -> impl Iterator<Item = PassPart> {
    let copies_out = kind == ActionKind::Forward && transfer.to_host.bytes > Bytes::ZERO;
    copies_out.then_some(PassPart::WaitForHost).into_iter().chain([PassPart::Start(transfer)])
}

/// Index of the block at which a bucket begins, of `count` blocks in buckets that differ by at most one.
pub(super) fn bucket_start(count: usize, bucket: usize, buckets: usize) -> usize {
    bucket * count / buckets
}

pub(super) struct Builder<'a> {
    pub(super) assignment: &'a Assignment<'a>,
    pub(super) layout: &'a Layout,
    /// Exchanges between replicas in each group of GPUs, and the axes whose exchanges use the same links.
    replicas: Vec<(Replicas<'a>, ByAxis<bool>)>,
    /// True if each pass gathers parameters (ZeRO-3).
    pub(super) gathers: bool,
}

impl<'a> Builder<'a> {
    pub(super) fn new(assignment: &'a Assignment<'a>, layout: &'a Layout) -> Self {
        let problem = assignment.problem;
        let groups = assignment.shape.key.groups();
        let of_group = |group: usize| {
            let replicas = Replicas::new(problem, layout, group);
            let network = &replicas.hardware.network;
            // Network levels beyond the node are reached over its NICs, and so are the other groups of replicas.
            let beyond = network.first_between_nodes();
            let beyond = if problem.replica_groups.is_some() { beyond.min(1) } else { beyond };
            let level_of = |group| network.outermost_level(group).min(beyond);
            let level = level_of(replicas.group());
            let shares_link = Axis::ALL.map(|axis| {
                let group = groups.along(axis);
                group.size > 1 && level_of(group) == level
            });
            (replicas, shares_link)
        };
        let replicas = (0..problem.num_groups()).map(of_group).collect();
        let gathers = layout.zero_stage == ZeroStage::Parameters;
        Self { assignment, layout, replicas, gathers }
    }

    /// Exchanges between the replicas of a pipeline rank.
    pub(super) fn replicas_of(&self, rank: usize) -> &Replicas<'a> {
        &self.replicas[self.assignment.groups[rank]].0
    }

    /// Exchanges between the replicas of a stage.
    pub(super) fn replicas_with(&self, stage: usize) -> &Replicas<'a> {
        &self.replicas[self.assignment.group_of_stage(stage)].0
    }

    /// Replicas of any one group, for properties that the replicas of all groups have in common.
    pub(super) fn any_replicas(&self) -> &Replicas<'a> {
        &self.replicas[0].0
    }

    /// The norm of all gradients, in the group where that takes longest.
    pub(super) fn norm(&self) -> Transfer {
        let norms = self.replicas.iter().map(|(replicas, _)| replicas.norm());
        norms.max_by_key(|norm| norm.time).expect("there are GPUs")
    }

    /// Gather of one bucket of a stage's parameters.
    pub(super) fn gather(&self, stage: usize) -> Option<Transfer> {
        let holdings = &self.assignment.stages[stage].holdings;
        let buckets = self.buckets(stage);
        let replicas = self.replicas_with(stage);
        let gather = replicas.transfer(Collective::AllGather, holdings, buckets);
        replicas.after_copy(gather, replicas.offloaded_parameters(holdings).shard(buckets))
    }

    /// Reduction of one bucket of a stage's gradients.
    pub(super) fn reduce(&self, stage: usize) -> Option<Transfer> {
        let holdings = &self.assignment.stages[stage].holdings;
        let buckets = self.buckets(stage);
        let replicas = self.replicas_with(stage);
        let reduce = replicas.reduce(holdings, buckets);
        replicas.before_copy(reduce, replicas.offloaded_gradients(holdings).shard(buckets))
    }

    /// Activations of one bucket of a stage's blocks that are offloaded for a micro-batch, in bytes.
    fn offloaded_activations(&self, stage: usize) -> Bytes {
        let holdings = &self.assignment.stages[stage].holdings;
        holdings.offloaded(self.layout.offload).shard(self.buckets(stage))
    }

    /// Messages forward and backward of a stage that overlap its passes; empty where passes wait for them.
    pub(super) fn sends(&self, stage: &Stage) -> [TimedMessage; 2] {
        if self.waits_for_messages() {
            Default::default()
        } else {
            [stage.send_forward, stage.send_backward]
        }
    }

    fn work(&self) -> StepWork {
        let Assignment { problem, stages, held, ranks, .. } = self.assignment;
        let p = self.layout.pipeline_parallel;
        let tied = held.iter().zip(0..).filter(|(held, _)| held.parameters.tied > 0);
        let mut groups = vec![tied.map(|(_, rank)| rank).collect(), (0..p).collect()];
        if ranks.placement.num_copies() > 1 {
            groups.extend(
                (0..stages.len())
                    .map(|stage| ranks.with(stage).map(|rank| rank as u32).collect::<Vec<u32>>()),
            );
        }
        let firsts: Vec<Vec<(u32, Transfer)>> = (0..held.len()).map(|it| self.first(it)).collect();
        StepWork {
            stages: (0..stages.len()).map(|stage| self.stage(stage, &firsts)).collect(),
            ranks: firsts
                .into_iter()
                .enumerate()
                .map(|(rank, first)| self.rank(rank, first))
                .collect(),
            groups,
            messages: Messages::Queue,
            slowdown_per_mille: problem.hardware.slowdown_per_mille(),
            pairs: self.pairs(),
        }
    }

    /// Times of overlapped pairs: the forward of any stage of a rank with the backward of any.
    fn pairs(&self) -> BTreeMap<(u32, u32), Nanos> {
        let mut pairs = BTreeMap::new();
        if !self.layout.schedule.overlaps_passes() {
            return pairs;
        }
        let parts = self.assignment.parts();
        let slowdown = self.assignment.problem.hardware.slowdown_per_mille();
        let of = |stage: usize, kind| -> Vec<BlockPart> {
            let passed = self.assignment.passed(stage, kind).into_iter();
            let parts = &parts[self.assignment.group_of_stage(stage)];
            passed.flat_map(|it| self.assignment.parts_of(parts, it, kind)).collect()
        };
        let num_stages = self.assignment.stages.len();
        for rank in 0..self.assignment.held.len() {
            let own: Vec<usize> = self.assignment.ranks.stages(rank, num_stages).collect();
            for forward in &own {
                for backward in &own {
                    let stages = (*forward as u32, *backward as u32);
                    pairs.entry(stages).or_insert_with(|| {
                        let one = of(*forward, ActionKind::Forward);
                        let other = of(*backward, ActionKind::Backward);
                        played_together(&one, &other, slowdown, |_| {})
                    });
                }
            }
        }
        pairs
    }

    fn rank(&self, rank: usize, prefetch: Vec<(u32, Transfer)>) -> RankWork {
        let Assignment { problem, held, groups, ranks, .. } = self.assignment;
        let stride = problem.pipeline(ranks.group).stride;
        let group = groups[rank];
        RankWork {
            memory: memory::throughout(problem, self.layout, &held[rank], [rank, group]).total(),
            memory_capacity: Some(problem.hardware_of(group).memory),
            first_rank: stride * rank as u32,
            multiplicity: stride,
            prefetch,
        }
    }

    fn stage(&self, index: usize, firsts: &[Vec<(u32, Transfer)>]) -> StageWork {
        let stage = &self.assignment.stages[index];
        let rank = self.assignment.ranks.first_with(index);
        let buckets = self.buckets(index);
        let reduce = self.reduce(index);
        let replicas = self.replicas_with(index);
        let reduces_each = replicas.reduces_each();
        let always_gather = self.gather(index).filter(|_| self.gathers);
        let always_reduce = reduce.filter(|_| reduces_each);
        let reduces_overlapped =
            !reduces_each && self.framework().gradients.reduced == WhenReduced::BesideBackward;
        let last_reduce = reduce.filter(|_| reduces_overlapped);
        let pass = |kind, gather, reduce| self.pass(index, kind, buckets, gather, reduce);
        let offloaded = self.offloaded_activations(index);
        let out = replicas.before_copy(None, offloaded);
        let back = replicas.after_copy(always_gather, offloaded);
        let last = |kind, back| last_reduce.map(|reduce| pass(kind, back, Some(reduce)));
        let reduces_after = !reduces_each && !reduces_overlapped;
        let after = reduce.filter(|_| reduces_after).map(|reduce| vec![reduce; buckets as usize]);
        let is_first = self.assignment.ranks.is_first(index);
        let [send_forward, send_backward] = self.sends(stage);
        StageWork {
            forward: pass(ActionKind::Forward, always_gather, out),
            backward: pass(ActionKind::Backward, back, always_reduce),
            input_grad: pass(ActionKind::InputGrad, always_gather, None),
            weight_grad: pass(ActionKind::WeightGrad, None, always_reduce),
            first_forward: self.first_forward(index, &firsts[rank], out),
            last_backward: last(ActionKind::Backward, back),
            last_weight_grad: last(ActionKind::WeightGrad, None),
            reduce: after.unwrap_or_default(),
            update: if is_first { self.update(rank) } else { PassParts::new() },
            send_forward,
            send_backward,
            kept: self.assignment.kept(self.layout, index),
        }
    }

    pub(super) fn framework(&self) -> &Framework {
        &self.assignment.problem.hardware.framework
    }

    fn waits_for_messages(&self) -> bool {
        self.assignment.waits_for_messages(self.layout.schedule)
    }

    pub(super) fn buckets(&self, stage: usize) -> u64 {
        let holdings = &self.assignment.stages[stage].holdings;
        self.replicas_with(stage).buckets(holdings, self.assignment.blocks(stage).len())
    }

    fn run(&self, stage: usize, time: PassTime) -> Run {
        let (_, shares_link) = &self.replicas[self.assignment.group_of_stage(stage)];
        let on_link = |times: ByAxis<Nanos>| {
            times.into_iter().zip(*shares_link).filter(|(_, it)| *it).map(|(time, _)| time).sum()
        };
        Run {
            time: time.total(),
            kernels: time.compute,
            on_link: on_link(time.exchanges),
            waits_on_link: on_link(time.waits),
        }
    }

    /// A pass in buckets of blocks of about equal size. Where parameters are gathered, each bucket's are prefetched
    /// while the one before computes; where gradients are reduced, each bucket's are reduced while the next computes. A
    /// pass without transfers over replicas is one run.
    fn pass(
        &self,
        stage: usize,
        kind: ActionKind,
        buckets: u64,
        gather: Option<Transfer>,
        reduce: Option<Transfer>,
    ) -> PassParts {
        let mut pass = PassParts::new();
        if gather.is_none() && reduce.is_none() {
            pass.push(PassPart::Run(self.run(stage, self.assignment.stages[stage].pass(kind))));
        } else {
            if let Some(gather) = gather {
                pass.push(PassPart::Start(gather));
                pass.extend((!self.reloads_early(&gather)).then_some(PassPart::Wait));
            }
            for (bucket, run) in self.runs(stage, kind, buckets).enumerate() {
                let next = gather.filter(|_| bucket as u64 + 1 < buckets);
                pass.extend(next.map(PassPart::Start));
                pass.push(PassPart::Run(run));
                pass.extend(next.map(|_| PassPart::Wait));
                pass.extend(reduce.into_iter().flat_map(|it| started(it, kind)));
            }
        }
        self.add_copies(stage, &mut pass);
        self.add_messages(stage, kind, &mut pass);
        pass
    }

    /// True for activations of modules that are copied back from the host: those of the last layer are copied during
    /// the previous pass (`pre_reload_last_layer` of Megatron-Core's `fine_grained_activation_offload.py`).
    fn reloads_early(&self, transfer: &Transfer) -> bool {
        let is_copy_alone = transfer.bytes == Bytes::ZERO;
        is_copy_alone && self.layout.offload.activations.modules().is_some()
    }

    /// The runs of a pass that is split into buckets.
    fn runs(&self, stage: usize, kind: ActionKind, buckets: u64) -> impl Iterator<Item = Run> {
        let passed = self.assignment.passed(stage, kind);
        let buckets = buckets as usize;
        (0..buckets).map(move |bucket| {
            let start = |bucket| bucket_start(passed.len(), bucket, buckets);
            self.run(
                stage,
                self.assignment.time_of(stage, &passed[start(bucket)..start(bucket + 1)], kind),
            )
        })
    }

    /// Adds the waits for messages and for the vocabulary's collectives to the last run of a pass.
    fn add_messages(&self, stage: usize, kind: ActionKind, pass: &mut PassParts) {
        let time = self.assignment.waited_messages(self.layout.schedule, stage, kind);
        let runs = pass.iter_mut().rev().find_map(|part| match part {
            PassPart::Run(run) => Some(run),
            _ => None,
        });
        if let Some(run) = runs {
            run.time += time;
        }
    }

    /// With ZeRO-1 and 2, gathers of the updated parameters of all stages of a rank, in buckets, all issued when the
    /// step begins. Empty where the update itself gathers.
    ///
    /// # Source
    ///
    /// Megatron-Core, `--overlap-param-gather`.
    fn first(&self, rank: usize) -> Vec<(u32, Transfer)> {
        if self.gathers_after_update() {
            return Vec::new();
        }
        self.gathers_of(rank).collect()
    }

    /// With ZeRO-1 and 2, gathers of the updated parameters of a rank's stages, each with its stage.
    pub(super) fn gathers_of(&self, rank: usize) -> impl Iterator<Item = (u32, Transfer)> {
        let stages = self.assignment.ranks.stages(rank, self.assignment.stages.len());
        stages.flat_map(|stage| {
            self.gathers(stage).into_iter().map(move |gather| (stage as u32, gather))
        })
    }

    /// True if updated parameters are gathered, and waited for, at the end of the update.
    pub(super) fn gathers_after_update(&self) -> bool {
        self.any_replicas().updates_each()
            || self.framework().parameters.gathered == UpdatedParameters::BeforeForward
    }

    /// With ZeRO-1 and 2, gathers of a stage's updated parameters, one for each bucket.
    fn gathers(&self, stage: usize) -> Vec<Transfer> {
        let zero = self.layout.zero_stage;
        if !matches!(zero, ZeroStage::OptimizerState | ZeroStage::Gradients) {
            return Vec::new();
        }
        let gather = self.gather(stage);
        gather.map_or_else(Vec::new, |gather| vec![gather; self.buckets(stage) as usize])
    }

    /// The first forward of a stage whose updated parameters come from other ranks: each bucket waits for its own
    /// gather.
    fn first_forward(
        &self,
        stage: usize,
        gathers: &[(u32, Transfer)],
        out: Option<Transfer>,
    ) -> Option<PassParts> {
        let before = gathers.iter().filter(|(other, _)| (*other as usize) < stage).count();
        let own = gathers.iter().filter(|(other, _)| *other as usize == stage).count();
        let runs = self.runs(stage, ActionKind::Forward, own as u64).zip(before as u32 + 1..);
        let mut pass: PassParts = runs
            .flat_map(|(run, nth)| {
                let out = out.into_iter().flat_map(|it| started(it, ActionKind::Forward));
                [PassPart::WaitFor(nth), PassPart::Run(run)].into_iter().chain(out)
            })
            .collect();
        self.add_copies(stage, &mut pass);
        self.add_messages(stage, ActionKind::Forward, &mut pass);
        (own > 0).then_some(pass)
    }

    /// Time of the passes of all micro-batches through a rank's stages, one after the other.
    fn passes_of(&self, rank: usize) -> Nanos {
        let Assignment { ranks, stages, .. } = self.assignment;
        let of_stage = |stage: usize| {
            let kinds = [ActionKind::Forward, ActionKind::Backward];
            kinds.map(|kind| stages[stage].pass(kind).total()).into_iter().sum::<Nanos>()
        };
        let each: Nanos = ranks.stages(rank, stages.len()).map(of_stage).sum();
        each * u64::from(self.layout.num_micro_batches)
    }

    /// Adds the update of the parameters that a rank owns. An update on the host runs in the buckets of the rank's
    /// stages. Unless parameters stay on the host, each bucket is copied to the device while the next is updated.
    fn add_own_update(&self, rank: usize, update: &mut PassParts) {
        let Assignment { held, ranks, stages, .. } = self.assignment;
        let replicas = self.replicas_of(rank);
        let time: Nanos = replicas.update(&held[rank]).into();
        if !self.layout.offload.optimizer {
            return update.push(PassPart::Run(Run::of_kernels(time)));
        }
        let buckets =
            ranks.stages(rank, stages.len()).map(|stage| self.buckets(stage)).sum::<u64>();
        let bytes = replicas.updated_by_host(&held[rank]).shard(buckets);
        let back = replicas.after_copy(None, bytes);
        let of_host = Run { time: Nanos::new(time.get().div_ceil(buckets)), ..Run::default() };
        for _ in 0..buckets {
            update.push(PassPart::Run(of_host));
            update.extend(back.map(PassPart::Start));
        }
        update.extend(back.map(|_| PassPart::Wait));
    }

    /// The update of a rank after its gradients are reduced: the reductions of norms over tensor parallelism, of tied
    /// weights and of copies; the norm of all gradients, which needs all ranks; then the update of the parameters that
    /// it owns. Where each micro-batch is followed by an update, there is no such norm, as no two ranks have reached
    /// the same micro-batch. The next forward then needs the updated parameters.
    fn update(&self, rank: usize) -> PassParts {
        let Assignment { held, ranks, stages, .. } = self.assignment;
        let held = &held[rank];
        let replicas = self.replicas_of(rank);
        let group_collective = |group: u32, transfer: Transfer| {
            let is_reduction = group != ALL_RANKS;
            PassPart::Collective(GroupCollective { group, transfer, is_reduction })
        };
        let mut update = PassParts::new();
        update.extend(replicas.partial_reductions(held).map(|(_, it)| PassPart::Start(it)));
        update.push(PassPart::Wait);
        if self.layout.offload.is_some() {
            update.push(PassPart::WaitForHost);
        }
        for stage in ranks.stages(rank, stages.len()) {
            let holdings = &stages[stage].holdings;
            let copies = replicas.reduction_of_copies(ranks, stage, holdings);
            update.extend(copies.map(|transfer| group_collective(COPIES + stage as u32, transfer)));
        }
        if held.parameters.tied > 0 && self.layout.pipeline_parallel > 1 {
            let holders =
                self.assignment.held.iter().filter(|held| held.parameters.tied > 0).count();
            update.push(group_collective(TIED, replicas.tied_reduction(held, holders as u32)));
        }
        if let Some(push) = replicas.push(held, self.passes_of(rank)) {
            update.extend([PassPart::Start(push), PassPart::Wait]);
        } else if !replicas.updates_each() {
            update.push(group_collective(ALL_RANKS, self.norm()));
        }
        let of_matrices = replicas.exchange_of_matrices(held);
        let exchange =
            || of_matrices.into_iter().flat_map(|it| [PassPart::Start(it), PassPart::Wait]);
        update.extend(exchange());
        self.add_own_update(rank, &mut update);
        update.extend(exchange());
        if let Some((transfer, average)) = replicas.after_update(held) {
            update.extend([PassPart::Start(transfer), PassPart::Wait]);
            update.push(PassPart::Run(Run::of_kernels(average.into())));
        }
        if self.gathers_after_update() {
            let gathers = self.gathers_of(rank).map(|(_, gather)| PassPart::Start(gather));
            update.extend(gathers);
            update.push(PassPart::Wait);
        }
        update
    }
}
