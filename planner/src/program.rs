//! From a layout with its stages to what every rank does: a schedule, and the work of its actions.

use cost_models::parts::{BlockParts, Part};
use cost_models::{FrameworkRates, Group};
use ir::collective::Collective;
use ir::graph::{Axis, Recompute};
use ir::layout::{LayoutSpec, MeshAxis, ZeroStage};
use ir::schedule::{
    ActionKind, GenerateError, Schedule, add_communication, add_optimizer_steps, add_reduction,
    generate,
};
use ir::units::{Bytes, Nanos, Seconds};
use simulator::{Messages, RankWork, Segment, StageWork, Transfer, Work};
use traces::timeline::Stream;

use crate::evaluate::Evaluator;
use crate::problem::{Problem, Shape, ShapeKey};
use crate::search::Found;
use crate::stages::{
    ChainIndex, Holdings, PipelineRanks, Stage, blocks, chunk_stages, message_time, shared_ends,
    stages,
};

/// What every rank of a step does, ready to be simulated.
#[derive(Clone, Debug)]
pub struct Program {
    /// In which order.
    pub schedule: Schedule,
    /// For how long, with what transfers, and what is held meanwhile; the allocator's slack left out.
    pub work: Work,
    /// By pipeline rank: what its work adds up to.
    pub stages: Vec<Stage>,
}

/// The whole step of a layout: passes, messages, reductions and updates.
///
/// # Errors
///
/// A schedule that does not take these numbers; no layout in hand has one.
pub fn program(problem: &Problem, found: &Found) -> Result<Program, GenerateError> {
    let layout = &found.layout;
    let [p, v, m] = [layout.pipeline_parallel, layout.virtual_stages, layout.num_micro_batches];
    let plain = generate(layout.schedule, p, m, v)?;
    let schedule = add_optimizer_steps(&add_reduction(&add_communication(&plain)));
    let builder = Builder::new(problem, found, &plain);
    Ok(Program { schedule, work: builder.work(), stages: builder.stages })
}

/// Pipeline ranks whose tied weights are reduced together, in [`Work::groups`].
const TIED: u32 = 0;

/// All pipeline ranks, for the norm of all gradients, in [`Work::groups`].
const ALL_RANKS: u32 = 1;

/// The ranks that have the first chunk, in [`Work::groups`]; those of the other chunks follow.
const COPIES: u32 = 2;

struct Builder<'a> {
    problem: &'a Problem,
    spec: LayoutSpec,
    evaluator: Evaluator<'a>,
    shape: Shape,
    chain: ChainIndex,
    ends: &'a [usize],
    ranks: PipelineRanks,
    /// By pipeline rank.
    stages: Vec<Stage>,
    /// By chunk.
    chunks: Vec<Stage>,
    /// By chunk: the last of its actions that computes gradients of parameters.
    last_grads: Vec<ActionKind>,
    /// By class of blocks.
    parts: Vec<BlockParts>,
}

impl<'a> Builder<'a> {
    fn new(problem: &'a Problem, found: &'a Found, schedule: &Schedule) -> Self {
        let spec = *found.layout;
        let shape = Shape::new(problem, ShapeKey::of(&spec));
        let chain = ChainIndex::new(problem);
        let ranks = PipelineRanks::of(&spec);
        let ends = &found.stage_ends;
        let stages = stages(problem, &chain, &shape, spec.recompute, ends, &ranks);
        let chunks = chunk_stages(problem, &chain, &shape, spec.recompute, ends, &ranks, &stages);
        let parts = problem.graph.classes().map(|(class, block)| {
            let setting = problem.setting(&shape.key, class.0);
            let recompute = if problem.is_end(class) { Recompute::None } else { spec.recompute };
            BlockParts::new(block, &setting, &shape.key.groups(), &problem.hardware, recompute)
        });
        let parts = parts.collect();
        let evaluator = Evaluator::new(problem, spec);
        let last_grads = last_grads(schedule);
        Self {
            problem,
            spec,
            evaluator,
            shape,
            chain,
            ends,
            ranks,
            stages,
            chunks,
            last_grads,
            parts,
        }
    }

    fn work(&self) -> Work {
        let p = self.spec.pipeline_parallel;
        let tied = self.stages.iter().zip(0..).filter(|(stage, _)| stage.holdings.tied > 0);
        let mut groups = vec![tied.map(|(_, rank)| rank).collect(), (0..p).collect()];
        groups.extend((0..self.ends.len()).map(|chunk| {
            let ranks = self.ranks.with(chunk);
            ranks.map(|rank| rank as u32).collect::<Vec<u32>>()
        }));
        let stages = (0..self.ends.len()).map(|chunk| self.stage(chunk)).collect();
        let ranks = (0..p as usize).map(|rank| self.rank(rank)).collect();
        let slowdown = self.problem.hardware.communication_slowdown;
        let slowdown_per_mille = (slowdown * 1000.0).round() as u32;
        Work { stages, ranks, groups, messages: Messages::Queue, slowdown_per_mille }
    }

    fn rank(&self, rank: usize) -> RankWork {
        let memory = self.evaluator.memory(&self.stages[rank].holdings, rank);
        let held = memory.total().saturating_sub(
            memory.activations_bytes + memory.recompute_bytes + memory.allocator_bytes,
        );
        let stride = self.spec.mesh().stride(MeshAxis::Pipeline);
        RankWork {
            memory: held,
            memory_capacity: Some(self.problem.hardware.memory),
            first_rank: stride * rank as u32,
            num_alike: stride,
            first: self.first(rank),
        }
    }

    fn stage(&self, chunk: usize) -> StageWork {
        let blocks = blocks(self.ends, chunk);
        let rank = &self.stages[self.ranks.first_with(chunk)];
        let holdings = self.chunks[chunk].holdings;
        let block_passes = |part: fn(&BlockParts) -> &Vec<Part>| -> Vec<Vec<Segment>> {
            let shared = shared_ends(self.problem, self.ends, &self.ranks, chunk);
            let of_chunk = blocks.clone().chain(shared.into_iter().flatten());
            let classes = of_chunk.map(|block| self.chain.class_at(block));
            classes.map(|class| self.segments(part(&self.parts[class]))).collect()
        };
        let reversed = |part| {
            let mut passes = block_passes(part);
            passes.reverse();
            passes
        };
        let is_last = chunk + 1 == self.ends.len();
        let mut send_forward =
            if is_last { Transfer::default() } else { self.message(blocks.end - 1) };
        let mut send_backward =
            blocks.start.checked_sub(1).map_or_else(Transfer::default, |block| self.message(block));
        let mut forward = block_passes(|parts| &parts.forward);
        let mut backward = reversed(|parts| &parts.backward);
        if self.evaluator.waits_for_messages() {
            send_with(&mut forward, &mut send_forward);
            send_with(&mut backward, &mut send_backward);
            wait(&mut forward, Nanos::from(self.chunks[chunk].exchanges[0]));
            wait(&mut backward, Nanos::from(self.chunks[chunk].exchanges[1]));
        }
        let input_grad = reversed(|parts| &parts.input_grad);
        let weight_grad = reversed(|parts| &parts.weight_grad);
        let pieces = self.pieces(chunk, &holdings);
        let gather = self.over_replicas(Collective::AllGather, &holdings, pieces);
        let reduce = self.over_replicas(self.evaluator.reduction(), &holdings, pieces);
        let zero = self.spec.zero_stage;
        let reduces_each = zero >= ZeroStage::Gradients || self.evaluator.updates_each();
        let always_gather = gather.filter(|_| zero == ZeroStage::Parameters);
        let always_reduce = reduce.filter(|_| reduces_each);
        let pass = |blocks, gather, reduce| in_pieces(blocks, pieces, gather, reduce);
        let reduces_beside = reduce.is_some() && self.framework().overlaps_gradients;
        // Where a chunk has whole backwards and ones in parts, the last of them all reduces.
        let reduces_once = |kind| !reduces_each && reduces_beside && self.last_grads[chunk] == kind;
        let reduces_after = !reduces_each && !reduces_beside;
        let after = reduce.filter(|_| reduces_after).map(|reduce| vec![reduce; pieces as usize]);
        let mut reductions = after.unwrap_or_default();
        reductions.extend(self.reductions(chunk, rank));
        StageWork {
            forward: pass(&forward, always_gather, None),
            backward: pass(&backward, always_gather, always_reduce),
            input_grad: pass(&input_grad, always_gather, None),
            weight_grad: pass(&weight_grad, None, always_reduce),
            first_forward: self.first_forward(chunk, &forward),
            last_backward: reduces_once(ActionKind::Backward)
                .then(|| pass(&backward, None, reduce)),
            last_weight_grad: reduces_once(ActionKind::WeightGrad)
                .then(|| pass(&weight_grad, None, reduce)),
            unshard: Vec::new(),
            reduce: reductions,
            update: if self.ranks.is_first(chunk) { self.update(chunk, rank) } else { Vec::new() },
            send_forward,
            send_backward,
            activations: holdings.saved_in_all(),
            // What the last block keeps is done with once the loss's gradient is.
            kept_for_weight_grad: holdings.saved,
            backward_workspace: rank.holdings.recompute_working_set,
            gathered: Bytes::ZERO,
        }
    }

    /// In how many pieces a chunk's parameters are gathered and its gradients reduced: no more than it
    /// has blocks.
    fn pieces(&self, chunk: usize, holdings: &Holdings) -> u64 {
        self.evaluator.pieces(holdings).min(blocks(self.ends, chunk).len() as u64).max(1)
    }

    /// With ZeRO-1 and 2, what gathers the updated parameters of all of a rank's chunks, in pieces. All
    /// of it is asked for when the step begins. Where each micro-batch is followed by an update, that
    /// gathers.
    ///
    /// # Source
    ///
    /// Megatron-Core, `--overlap-param-gather`.
    fn first(&self, rank: usize) -> Vec<(u32, Transfer)> {
        if self.gathers_after_update() {
            return Vec::new();
        }
        let chunks = self.ranks.chunks(rank, self.ends.len());
        let gathers = chunks.flat_map(|chunk| {
            let gathers = self.gathers(chunk);
            gathers.into_iter().map(move |gather| (chunk as u32, gather))
        });
        gathers.collect()
    }

    /// Whether what an update gathers is waited for at once.
    fn gathers_after_update(&self) -> bool {
        self.evaluator.updates_each() || !self.framework().overlaps_parameters
    }

    fn framework(&self) -> &FrameworkRates {
        &self.problem.hardware.framework
    }

    /// With ZeRO-1 and 2, what gathers a chunk's updated parameters.
    fn gathers(&self, chunk: usize) -> Vec<Transfer> {
        let zero = self.spec.zero_stage;
        if !matches!(zero, ZeroStage::OptimizerState | ZeroStage::Gradients) {
            return Vec::new();
        }
        let holdings = &self.chunks[chunk].holdings;
        let pieces = self.pieces(chunk, holdings);
        let gather = self.over_replicas(Collective::AllGather, holdings, pieces);
        gather.map_or_else(Vec::new, |gather| vec![gather; pieces as usize])
    }

    /// The first forward of a chunk whose updated parameters come from other ranks: each piece waits for
    /// its own.
    fn first_forward(&self, chunk: usize, blocks: &[Vec<Segment>]) -> Option<Vec<Segment>> {
        let gathers = self.first(self.ranks.first_with(chunk));
        let count = |is_meant: fn(usize, usize) -> bool| {
            gathers.iter().filter(|(other, _)| is_meant(*other as usize, chunk)).count() as u32
        };
        let (before, own) =
            (count(|other, chunk| other < chunk), count(|other, chunk| other == chunk));
        let mut segments = Vec::new();
        for (blocks, nth) in split(blocks, own.into()).zip(before + 1..) {
            segments.push(Segment::WaitFor(Stream::Data, nth));
            segments.extend(blocks.iter().flatten().copied());
        }
        (own > 0).then(|| merged(segments))
    }

    /// One of the pieces in which a chunk's parameters are gathered or its gradients reduced; none
    /// where there is one replica.
    fn over_replicas(
        &self,
        collective: Collective,
        holdings: &Holdings,
        pieces: u64,
    ) -> Option<Transfer> {
        let element = match collective {
            Collective::AllGather => self.evaluator.bytes.parameter,
            _ => self.evaluator.bytes.gradient,
        };
        let time = self.evaluator.over_replicas(collective, holdings, element, pieces);
        let size = self.evaluator.replicas();
        let stride = self.spec.mesh().stride(MeshAxis::ContextData);
        let bytes = Bytes::new((holdings.dense + holdings.expert) * element).shard(pieces);
        (time > 0.0).then(|| Transfer {
            stream: Stream::Data,
            collective,
            time: Nanos::from(Seconds::new(time / pieces as f64)),
            level: self.level(Group { size, stride }),
            bytes,
            group: None,
        })
    }

    /// What is reduced once a chunk's gradients are: between its copies; and with the first chunk of a
    /// rank, norms over tensor parallelism and tied weights.
    fn reductions(&self, chunk: usize, rank: &Stage) -> Vec<Transfer> {
        let transfer = |time: Seconds, bytes: Bytes, among: Group, group| Transfer {
            stream: Stream::Data,
            collective: Collective::AllReduce,
            time: time.into(),
            level: self.level(among),
            bytes,
            group,
        };
        let gradients = |parameters: u64| Bytes::new(parameters * self.evaluator.bytes.gradient);
        let mut transfers = Vec::new();
        if let Some(copies) = self.evaluator.copies(chunk) {
            let holdings = &self.chunks[chunk].holdings;
            let time = self.evaluator.reduction_of_copies(holdings, chunk);
            let bytes = self.evaluator.bytes_between_copies(holdings);
            transfers.push(transfer(time, bytes, copies, Some(COPIES + chunk as u32)));
        }
        if self.ranks.is_first(chunk) {
            let holdings = &rank.holdings;
            let stride = self.spec.mesh().stride(MeshAxis::Tensor);
            let tensor = Group { size: self.spec.tensor_parallel, stride };
            let partial = self.evaluator.partial_reduction(holdings);
            transfers.push(transfer(partial, gradients(holdings.partial_gradients), tensor, None));
            if holdings.tied > 0 && self.spec.pipeline_parallel > 1 {
                let tied = self.evaluator.tied_reduction(holdings);
                let among = self.evaluator.tied_group();
                transfers.push(transfer(tied, gradients(holdings.tied), among, Some(TIED)));
            }
        }
        transfers.retain(|transfer| transfer.time > Nanos::ZERO || transfer.group.is_some());
        transfers
    }

    /// The norm of all gradients needs all ranks; then each updates what it owns. Where each micro-batch is
    /// followed by an update there is no such norm, as no two ranks have reached the same micro-batch; and
    /// the next forward needs what was updated.
    fn update(&self, chunk: usize, rank: &Stage) -> Vec<Segment> {
        let update = Segment::Compute(self.evaluator.optimizer(rank).into());
        let gradients_are_there = Segment::Wait(Stream::Data);
        let gathers: Vec<Segment> = if self.gathers_after_update() {
            let chunks = self.ranks.chunks(self.ranks.first_with(chunk), self.ends.len());
            let gathers = chunks.flat_map(|chunk| self.gathers(chunk)).map(Segment::Start);
            gathers.chain([Segment::Wait(Stream::Data)]).collect()
        } else {
            Vec::new()
        };
        if self.evaluator.updates_each() {
            return [gradients_are_there, update].into_iter().chain(gathers).collect();
        }
        let world = Group::contiguous(self.problem.limits.num_gpus);
        let bytes = Bytes::new(4);
        let norm = Transfer {
            stream: Stream::Data,
            collective: Collective::AllReduce,
            time: self.problem.hardware.network.time(Collective::AllReduce, world, bytes).into(),
            level: self.level(world),
            bytes,
            group: Some(ALL_RANKS),
        };
        let norm = [Segment::Start(norm), Segment::Wait(Stream::Data), update];
        [gradients_are_there].into_iter().chain(norm).chain(gathers).collect()
    }

    /// The message that leaves a block for the next stage, or its gradient that comes back.
    fn message(&self, block: usize) -> Transfer {
        let pipeline = self.ranks.group;
        let bytes = self.shape.costs[self.chain.class_at(block)].output;
        Transfer {
            time: message_time(self.problem, &self.shape, pipeline, bytes).into(),
            level: self.level(Group { size: 2, stride: pipeline.stride * (pipeline.size - 1) }),
            bytes,
            ..Transfer::default()
        }
    }

    fn level(&self, group: Group) -> u8 {
        self.problem.hardware.network.outermost_level(group) as u8
    }

    fn segments(&self, parts: &[Part]) -> Vec<Segment> {
        let segment = |part: &Part| match part {
            Part::Compute(time) => Segment::Compute((*time).into()),
            Part::Start(timed) => Segment::Start(Transfer {
                stream: stream(timed.exchange.axis),
                collective: timed.exchange.collective,
                time: timed.time.into(),
                level: self.level(timed.group),
                bytes: timed.exchange.bytes,
                group: None,
            }),
            Part::Wait(axis) => Segment::Wait(stream(*axis)),
        };
        parts.iter().map(segment).collect()
    }
}

/// By stage: the last of its actions, on any of its ranks, that computes gradients of parameters.
fn last_grads(schedule: &Schedule) -> Vec<ActionKind> {
    let mut last = vec![ActionKind::Backward; schedule.num_stages() as usize];
    for (_, action) in schedule.actions() {
        if matches!(action.kind, ActionKind::Backward | ActionKind::WeightGrad) {
            last[action.stage as usize] = action.kind;
        }
    }
    last
}

/// Lets the last block of a pass take the time of its message, so that the rank waits until it is sent.
fn send_with(blocks: &mut [Vec<Segment>], message: &mut Transfer) {
    wait(blocks, message.time);
    message.time = Nanos::ZERO;
}

/// Lets the last block of a pass take so much longer.
fn wait(blocks: &mut [Vec<Segment>], time: Nanos) {
    if let Some(last) = blocks.last_mut().filter(|_| time > Nanos::ZERO) {
        last.push(Segment::Compute(time));
    }
}

fn stream(axis: Axis) -> Stream {
    match axis {
        Axis::Tensor => Stream::Tensor,
        Axis::Context => Stream::Context,
        Axis::Expert => Stream::Expert,
    }
}

/// A pass over blocks in pieces, as equal as can be. Where parameters are gathered, each piece's are
/// fetched while the one before computes; where gradients are reduced, each piece's are on their way
/// while the next computes.
fn in_pieces(
    blocks: &[Vec<Segment>],
    num_pieces: u64,
    gather: Option<Transfer>,
    reduce: Option<Transfer>,
) -> Vec<Segment> {
    let mut segments = Vec::new();
    if let Some(gather) = gather {
        segments.extend([Segment::Start(gather), Segment::Wait(Stream::Data)]);
    }
    for (piece, blocks) in split(blocks, num_pieces).enumerate() {
        let next = gather.filter(|_| piece as u64 + 1 < num_pieces);
        segments.extend(next.map(Segment::Start));
        segments.extend(blocks.iter().flatten().copied());
        segments.extend(next.map(|_| Segment::Wait(Stream::Data)));
        segments.extend(reduce.map(Segment::Start));
    }
    merged(segments)
}

/// The same segments, with one where several compute one after the other: a simulation has less to do.
fn merged(segments: Vec<Segment>) -> Vec<Segment> {
    let mut merged: Vec<Segment> = Vec::with_capacity(segments.len());
    for segment in segments {
        match (merged.last_mut(), segment) {
            (Some(Segment::Compute(before)), Segment::Compute(time)) => *before += time,
            _ => merged.push(segment),
        }
    }
    merged
}

/// Blocks in pieces that differ by one at most.
fn split(blocks: &[Vec<Segment>], num_pieces: u64) -> impl Iterator<Item = &[Vec<Segment>]> {
    let num_pieces = num_pieces as usize;
    let start = move |piece: usize| piece * blocks.len() / num_pieces;
    (0..num_pieces).map(move |piece| &blocks[start(piece)..start(piece + 1)])
}
