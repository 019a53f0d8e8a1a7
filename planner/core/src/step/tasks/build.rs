//! The tasks of one pipeline rank.

use std::collections::BTreeMap;

use cost_models::StridedGroup;
use cost_models::block::{BlockPart, BlockParts, KernelSequence, TimedExchange, played_together};
use cost_models::states::touched_by_update;
use ir::collective::Collective;
use ir::schedule::{Action, ActionKind};
use ir::units::{Bytes, Flops, Nanos};
use simulator::{GroupCollective, HostCopy, Order, PassPart, RankOp, Run, RunId, Transfer};
use traces::timeline::{CopyDestination, Stream};

use super::task::{Members, Peer, Task, TaskId, TaskKind};
use crate::step::replicas::GroupExchange;
use crate::step::simulated::stream;
use crate::step::work::{ALL_RANKS, Builder, Step};

/// Builder of a rank's tasks.
pub(super) struct RankTasks<'a> {
    step: &'a Step<'a>,
    builder: &'a Builder<'a>,
    parts: &'a [BlockParts],
    order: &'a Order,
    rank: usize,
    tasks: Vec<Task>,
    /// Tasks that the next action follows.
    last: Vec<TaskId>,
    /// The exchange that the next one follows.
    last_exchange: Option<TaskId>,
    /// Number of the gathers at the begin of the step that are among the tasks.
    num_gathered: usize,
    /// Last task of each of the rank's transfers, in the order in which they begin.
    transfers: Vec<Vec<TaskId>>,
    /// Number of transfers that some task has waited for.
    num_waited: usize,
    /// Copies to the host that have begun.
    copies: Vec<TaskId>,
    /// Last task of each pass.
    ends: BTreeMap<Made, Vec<TaskId>>,
    /// Last task of the last parameter gradients of each stage.
    gradients: BTreeMap<u32, Vec<TaskId>>,
    /// Number of ring exchanges so far, from which tags are made.
    num_rings: u32,
}

/// Key of a pass: true for gradients, then stage and micro-batch.
type Made = (bool, u32, u32);

/// State within an action: the tasks that the next task needs and follows.
struct Cursor {
    action: Action,
    needs: Vec<TaskId>,
    follows: Vec<TaskId>,
    /// Exchanges that began and were not yet waited for.
    begun: BTreeMap<Stream, Vec<TaskId>>,
    /// Numbers of transfers of other collectives, and of gathers, that it has begun.
    num_begun: [usize; 2],
}

/// A piece of an action: a part of a block, or a part of the rank's own work.
enum ActionPiece {
    Block(BlockPart),
    Copy(KernelSequence),
    Part(PassPart),
}

impl<'a> RankTasks<'a> {
    pub(super) fn new(
        step: &'a Step<'a>,
        builder: &'a Builder<'a>,
        parts: &'a [BlockParts],
        order: &'a Order,
        rank: usize,
    ) -> Self {
        Self {
            step,
            builder,
            parts,
            order,
            rank,
            tasks: Vec::new(),
            last: Vec::new(),
            last_exchange: None,
            num_gathered: 0,
            transfers: vec![Vec::new(); step.work.ranks[rank].prefetch.len()],
            num_waited: 0,
            copies: Vec::new(),
            ends: BTreeMap::new(),
            gradients: BTreeMap::new(),
            num_rings: 0,
        }
    }

    /// Builds all tasks of the rank.
    pub(super) fn all(mut self) -> Vec<Task> {
        let mut ops = self.order.ranks()[self.rank].iter();
        while let Some(op) = ops.next() {
            let kind = op.action().kind;
            if kind.is_send() {
                self.send(op);
            } else if kind == ActionKind::ReduceGrad {
                self.reduce(op);
            } else if op.is_first_of_pair() {
                let second = ops.next().expect("a pair has two actions");
                self.pair(op, second);
            } else {
                let mut cursor = self.begin(op);
                for piece in self.pieces(op) {
                    self.play(&mut cursor, op, &piece);
                }
                self.last = self.end(cursor);
            }
        }
        self.gather_first(usize::MAX);
        self.tasks
    }

    /// Adds the first `count` of the gathers at the begin of the step. The framework issues all of them at once. Here,
    /// however, the exchanges of a rank follow each other, so the exchanges of passes would wait for all gathers.
    fn gather_first(&mut self, count: usize) {
        let step = self.step;
        let gathers = &step.work.ranks[self.rank].prefetch;
        for (stage, transfer) in gathers.iter().take(count).skip(self.num_gathered) {
            let action = Action { stage: *stage, kind: ActionKind::Unshard, micro_batch: 0 };
            let exchanges = self.builder.of_stage(*stage as usize, transfer);
            let ends = self.transfer(&mut Cursor::new(action), transfer, exchanges);
            self.transfers[self.num_gathered] = ends;
            self.num_gathered += 1;
        }
    }

    /// Begins an action, after the message or the rank's own results that it needs.
    fn begin(&mut self, op: &RankOp) -> Cursor {
        let action = op.action();
        let Action { stage, kind, micro_batch } = action;
        let mut cursor = Cursor::new(action);
        cursor.follows.clone_from(&self.last);
        let made = |is_gradient, stage: u32| (is_gradient, stage, micro_batch);
        let own = match kind {
            ActionKind::Forward => stage.checked_sub(1).map(|from| made(false, from)),
            _ => Some(made(true, stage + 1)),
        };
        let forward = (kind != ActionKind::Forward).then(|| made(false, stage));
        let input_grad = (kind == ActionKind::WeightGrad).then(|| made(true, stage));
        for made in [own, forward, input_grad].into_iter().flatten() {
            cursor.needs.extend(self.ends.get(&made).into_iter().flatten());
        }
        if let Some(tag) = op.receives() {
            self.receive(&mut cursor, tag);
        }
        if kind == ActionKind::OptimizerStep {
            cursor.needs.extend(self.gradients.values().flatten());
        }
        cursor
    }

    /// Ends an action; returns its last tasks.
    fn end(&mut self, cursor: Cursor) -> Vec<TaskId> {
        let Cursor { action: Action { stage, kind, micro_batch }, needs, follows, .. } = cursor;
        let mut last = needs;
        last.extend(follows);
        tidy(&mut last);
        if kind.is_compute() && kind != ActionKind::WeightGrad {
            self.ends.insert((kind != ActionKind::Forward, stage, micro_batch), last.clone());
        }
        if matches!(kind, ActionKind::Backward | ActionKind::WeightGrad) {
            self.gradients.insert(stage, last.clone());
        }
        last
    }

    /// Two overlapped actions: kernels of the one that has waited longest go first.
    fn pair(&mut self, first: &RankOp, second: &RankOp) {
        let ops = [first, second];
        let mut cursors = [self.begin(first), self.begin(second)];
        let pieces = [self.pieces(first), self.pieces(second)];
        let of_blocks = pieces.each_ref().map(|pieces| {
            let parts = pieces.iter().filter_map(|piece| match piece {
                ActionPiece::Block(part) => Some(*part),
                ActionPiece::Copy(_) | ActionPiece::Part(_) => None,
            });
            parts.collect::<Vec<BlockPart>>()
        });
        let slowdown = self.step.assignment.problem.hardware.slowdown_per_mille();
        let mut turns = Vec::new();
        played_together(&of_blocks[0], &of_blocks[1], slowdown, |turn| turns.push(turn));
        let mut left = pieces.map(Vec::into_iter);
        for turn in turns {
            for piece in left[turn].by_ref() {
                self.play(&mut cursors[turn], ops[turn], &piece);
                if matches!(piece, ActionPiece::Block(_)) {
                    break;
                }
            }
        }
        for ((left, cursor), op) in left.into_iter().zip(&mut cursors).zip(ops) {
            left.for_each(|piece| self.play(cursor, op, &piece));
        }
        self.last = cursors.map(|cursor| self.end(cursor)).concat();
        tidy(&mut self.last);
    }

    /// The parts of an action, with its runs split into those of blocks.
    fn pieces(&self, op: &RankOp) -> Vec<ActionPiece> {
        let Action { stage, kind, .. } = op.action();
        let work = &self.step.work.stages[stage as usize];
        let parts = work.parts(kind, op.is_first, op.is_last);
        let of = parts.iter().filter(|part| matches!(part, PassPart::Run(_))).count();
        let [before, after] = self.builder.copies(stage as usize, parts);
        let copy = |kernels: KernelSequence| {
            (kernels.time > Nanos::ZERO).then_some(ActionPiece::Copy(kernels))
        };
        let mut pieces = Vec::new();
        let mut nth = 0;
        for part in parts {
            if !kind.is_compute() || !matches!(part, PassPart::Run(_)) {
                pieces.push(ActionPiece::Part(*part));
                continue;
            }
            pieces.extend(copy(before));
            for block in self.step.blocks_of(RunId { stage, kind, nth, of }) {
                let parts = self.step.assignment.parts_of(self.parts, block, kind);
                pieces.extend(parts.map(ActionPiece::Block));
            }
            pieces.extend(copy(after));
            nth += 1;
        }
        pieces
    }

    fn play(&mut self, cursor: &mut Cursor, op: &RankOp, piece: &ActionPiece) {
        match piece {
            ActionPiece::Block(BlockPart::Kernels(kernels)) | ActionPiece::Copy(kernels) => {
                self.compute(cursor, *kernels);
            }
            ActionPiece::Block(BlockPart::Host(time)) => self.host(cursor, *time),
            ActionPiece::Block(BlockPart::Start(exchange)) => self.exchange(cursor, exchange),
            ActionPiece::Block(BlockPart::Wait(axis)) => {
                let begun = cursor.begun.remove(&stream(*axis));
                cursor.wait(begun.unwrap_or_default());
            }
            ActionPiece::Part(PassPart::Run(run)) => self.update(cursor, *run),
            ActionPiece::Part(PassPart::Start(transfer)) => {
                let is_gather = transfer.collective == Collective::AllGather;
                let nth = &mut cursor.num_begun[usize::from(is_gather)];
                let exchanges = self.builder.exchanges_of(self.rank, op, transfer, *nth);
                *nth += 1;
                let ends = self.transfer(cursor, transfer, exchanges);
                self.transfers.push(ends);
            }
            ActionPiece::Part(PassPart::Wait) => self.wait(cursor),
            ActionPiece::Part(PassPart::WaitForHost) => {
                self.wait(cursor);
                cursor.wait(std::mem::take(&mut self.copies));
            }
            ActionPiece::Part(PassPart::WaitFor(count)) => {
                // The next gather is in flight while this one's parameters are used.
                self.gather_first(*count as usize + 1);
                cursor.wait(self.transfers[*count as usize - 1].clone());
            }
            ActionPiece::Part(PassPart::Collective(collective)) => {
                self.collective(cursor, collective);
            }
        }
    }

    /// Waits for all transfers: the last follows the others, and the transfers for which no task has waited are named
    /// too.
    fn wait(&mut self, cursor: &mut Cursor) {
        self.gather_first(usize::MAX);
        let last = self.transfers.len().saturating_sub(1);
        cursor.wait(self.transfers[self.num_waited.min(last)..].concat());
        self.num_waited = self.transfers.len();
    }

    /// Adds a task of an action.
    fn add(&mut self, cursor: &Cursor, kind: TaskKind, time: Nanos) -> TaskId {
        let Cursor { action, needs, follows, .. } = cursor;
        let (mut needs, mut follows) = (needs.clone(), follows.clone());
        tidy(&mut needs);
        tidy(&mut follows);
        follows.retain(|id| !needs.contains(id));
        self.tasks.push(Task { action: *action, kind, time, needs, follows });
        self.tasks.len() as TaskId - 1
    }

    /// Adds an exchange, which follows the one before it.
    fn add_exchange(&mut self, cursor: &Cursor, kind: TaskKind, time: Nanos) -> TaskId {
        let id = self.add(cursor, kind, time);
        let task = &mut self.tasks[id as usize];
        if let Some(before) = self.last_exchange.filter(|before| !task.needs.contains(before)) {
            task.follows.push(before);
            tidy(&mut task.follows);
        }
        self.last_exchange = Some(id);
        id
    }

    /// Adds kernels, merged with those before if no other task came in between.
    fn compute(
        &mut self,
        cursor: &mut Cursor,
        KernelSequence { time, flops, touched }: KernelSequence,
    ) {
        let last = self.tasks.len().wrapping_sub(1) as TaskId;
        if cursor.needs == [last]
            && let Some(Task { kind, time: before, action, .. }) = self.tasks.last_mut()
            && let TaskKind::Compute { flops: more, touched: bytes } = kind
            && *action == cursor.action
        {
            *before += time;
            *more += flops;
            *bytes += touched;
            return;
        }
        let id = self.add(cursor, TaskKind::Compute { flops, touched }, time);
        cursor.after(id);
    }

    fn host(&mut self, cursor: &mut Cursor, time: Nanos) {
        let id = self.add(cursor, TaskKind::Host, time);
        cursor.after(id);
    }

    /// Adds a run of an update, on the device or on the host.
    fn update(&mut self, cursor: &mut Cursor, run: Run) {
        if run.kernels == Nanos::ZERO {
            return self.host(cursor, run.time);
        }
        let replicas = self.builder.replicas_of(self.rank);
        let owned = replicas.owned(&self.step.assignment.held[self.rank]);
        let touched = touched_by_update(owned, replicas.bytes).into_iter().sum();
        self.compute(cursor, KernelSequence { time: run.time, flops: Flops::default(), touched });
    }

    /// Begins an exchange of a block; a ring's as a message to the next rank and one from the rank before.
    fn exchange(&mut self, cursor: &mut Cursor, timed: &TimedExchange) {
        let TimedExchange { exchange, group, whole, .. } = *timed;
        let (collective, bytes) = (exchange.collective, exchange.bytes);
        let begun = if collective == Collective::SendReceive {
            self.ring(cursor, group, bytes, whole)
        } else {
            let kind = TaskKind::Collective { collective, members: Members::Along(group), bytes };
            vec![self.add_exchange(cursor, kind, whole)]
        };
        cursor.begun.entry(stream(exchange.axis)).or_default().extend(begun);
    }

    fn ring(
        &mut self,
        cursor: &Cursor,
        group: StridedGroup,
        bytes: Bytes,
        time: Nanos,
    ) -> Vec<TaskId> {
        let tag = self.order.num_messages() + self.num_rings;
        self.num_rings += 1;
        let send = TaskKind::Send { to: Peer::Next(group), tag, bytes };
        let send = self.add_exchange(cursor, send, time);
        let receive = TaskKind::Receive { from: Peer::Before(group), tag, bytes };
        vec![send, self.add(cursor, receive, time)]
    }

    /// Begins a transfer over replicas, between its copies from and to the host; returns its last tasks.
    fn transfer(
        &mut self,
        cursor: &mut Cursor,
        transfer: &Transfer,
        exchanges: [impl IntoIterator<Item = GroupExchange>; 2],
    ) -> Vec<TaskId> {
        let at_start = (cursor.needs.clone(), cursor.follows.clone());
        let mut ends = self.copy(cursor, transfer.from_host, CopyDestination::Device);
        if !ends.is_empty() {
            cursor.needs.clone_from(&ends);
        }
        let ready = cursor.needs.clone();
        for of_kind in exchanges {
            cursor.needs.clone_from(&ready);
            for GroupExchange { collective, group, bytes } in of_kind {
                let members = Members::Along(group);
                let kind = TaskKind::Collective { collective, members, bytes };
                let hardware = self.builder.replicas_of(self.rank).hardware;
                let time = hardware.network.time(collective, group, bytes)
                    * hardware.framework.exchanges.over_replicas;
                let id = self.add_exchange(cursor, kind, time.into());
                cursor.needs = vec![id];
                ends.push(id);
            }
        }
        if !ends.is_empty() {
            cursor.needs.clone_from(&ends);
        }
        let out = self.copy(cursor, transfer.to_host, CopyDestination::Host);
        self.copies.extend(out);
        (cursor.needs, cursor.follows) = at_start;
        ends
    }

    fn copy(&mut self, cursor: &Cursor, copied: HostCopy, to: CopyDestination) -> Vec<TaskId> {
        let HostCopy { time, bytes } = copied;
        let is_any = bytes > Bytes::ZERO;
        let kind = TaskKind::Copy { to, bytes };
        is_any.then(|| self.add_exchange(cursor, kind, time)).into_iter().collect()
    }

    /// Adds a collective with other pipeline ranks, and waits for it.
    fn collective(&mut self, cursor: &mut Cursor, collective: &GroupCollective) {
        let GroupCollective { group, transfer, .. } = *collective;
        let members = if group == ALL_RANKS {
            Members::Along(StridedGroup::contiguous(self.step.layout.num_gpus()))
        } else {
            Members::Pipeline(self.step.work.groups[group as usize].clone())
        };
        let Transfer { collective, time, bytes, .. } = transfer;
        if members.ranks(0, 1).len() < 2 {
            return;
        }
        let kind = TaskKind::Collective { collective, members, bytes };
        let id = self.add_exchange(cursor, kind, time);
        cursor.wait(vec![id]);
    }

    /// Begins the reduction of a stage's gradients.
    fn reduce(&mut self, op: &RankOp) {
        let action = op.action();
        let mut cursor = Cursor::new(action);
        cursor.needs.extend(self.gradients.get(&action.stage).into_iter().flatten());
        for transfer in self.step.work.stages[action.stage as usize].reduce.clone() {
            let exchanges = self.builder.of_stage(action.stage as usize, &transfer);
            let ends = self.transfer(&mut cursor, &transfer, exchanges);
            self.transfers.push(ends);
        }
    }

    /// Sends a message to another rank, without waiting unless the framework does.
    fn send(&mut self, op: &RankOp) {
        let action = op.action();
        let Action { stage, kind, micro_batch } = action;
        let Some((tag, to)) = op.sends() else { return };
        let is_gradient = kind == ActionKind::SendBackward;
        let mut cursor = Cursor::new(action);
        cursor
            .needs
            .extend(self.ends.get(&(is_gradient, stage, micro_batch)).into_iter().flatten());
        // The gradient of a stage's input is as large as the output of the stage before.
        let from = if is_gradient { stage - 1 } else { stage };
        let (bytes, time) = self.message(from);
        let kind = TaskKind::Send { to: Peer::Pipeline(to), tag, bytes };
        let id = self.add_exchange(&cursor, kind, time);
        if self.step.assignment.waits_for_messages(self.step.layout.schedule) {
            self.last.push(id);
        }
    }

    /// Receives the message that an action needs, and gathers it if it comes in parts.
    fn receive(&mut self, cursor: &mut Cursor, tag: u32) {
        let Action { stage, kind, micro_batch } = cursor.action;
        let is_forward = kind == ActionKind::Forward;
        let [maker, from] = if is_forward { [stage - 1; 2] } else { [stage + 1, stage] };
        let ranks = &self.step.assignment.ranks;
        let peer = ranks.placement.rank(ranks.group.size, maker, micro_batch);
        let peer = peer.expect("a checked schedule places every stage that it has");
        let (bytes, _) = self.message(from);
        let alone = Cursor::new(cursor.action);
        let kind = TaskKind::Receive { from: Peer::Pipeline(peer), tag, bytes };
        let id = self.add(&alone, kind, Nanos::ZERO);
        let came = self.gathered(from).map_or(id, |(members, whole, time)| {
            let mut cursor = Cursor::new(cursor.action);
            cursor.needs.push(id);
            let collective = Collective::AllGather;
            let kind = TaskKind::Collective { collective, members, bytes: whole };
            self.add_exchange(&cursor, kind, time)
        });
        cursor.needs.push(came);
    }

    /// Bytes that one rank sends of a stage's output, and the time of the message.
    fn message(&self, stage: u32) -> (Bytes, Nanos) {
        let whole = self.step.assignment.stages[stage as usize].send_forward;
        let Some((members, ..)) = self.gathered(stage) else { return (whole.bytes, whole.time) };
        let part = whole.bytes.shard(members.ranks(0, 1).len() as u64);
        let assignment = self.step.assignment;
        (part, assignment.to_neighbour(stage as usize, part).into())
    }

    /// Members, bytes and time of the gather of a stage's output, where it is sent in parts.
    fn gathered(&self, stage: u32) -> Option<(Members, Bytes, Nanos)> {
        let assignment = self.step.assignment;
        assignment.gathered_message(stage as usize)?;
        let group = assignment.shape.key.groups().tensor;
        let whole = assignment.stages[stage as usize].send_forward.bytes;
        let to = assignment.group_of_stage(stage as usize + 1);
        let network = &assignment.problem.hardware_of(to).network;
        let time = network.time(Collective::AllGather, group, whole);
        Some((Members::Along(group), whole, time.into()))
    }
}

impl Cursor {
    fn new(action: Action) -> Self {
        let (needs, follows) = (Vec::new(), Vec::new());
        Self { action, needs, follows, begun: BTreeMap::new(), num_begun: [0; 2] }
    }

    /// Makes the next task need this one, which follows all others.
    fn after(&mut self, id: TaskId) {
        self.needs = vec![id];
        self.follows.clear();
    }

    /// Makes the next task need these too.
    fn wait(&mut self, tasks: Vec<TaskId>) {
        self.needs.extend(tasks);
        tidy(&mut self.needs);
    }
}

/// Sorts tasks and removes duplicates.
fn tidy(tasks: &mut Vec<TaskId>) {
    tasks.sort_unstable();
    tasks.dedup();
}
