//! Recorder of a simulated step, for its timeline.

use ir::schedule::{Action, ActionKind};
use ir::units::{Bytes, Nanos};
use traces::timeline::{Activity, CopyDestination, Event, Stream};

use crate::memory::change;
use crate::order::{Order, RankOp};
use crate::play::{Observer, Waiting};
use crate::transfers::FinishedTransfer;
use crate::work::{GroupCollective, StepWork, Transfer};

/// Id of an action: its rank, and its index in the order in which the rank began them.
pub(crate) type ActionId = (u32, u32);

/// Dependency that an action or an exchange waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The start of the step.
    Start,
    /// An action.
    Action(ActionId),
    /// A message, a transfer over replicas, or a collective of pipeline ranks.
    Flow(u32),
}

/// Record of an action that has ended.
#[derive(Clone, Debug)]
pub(crate) struct FinishedAction {
    pub(crate) action: Action,
    pub(crate) is_first: bool,
    pub(crate) is_last: bool,
    /// Begin of the action; of an update, of its first kernels.
    pub(crate) start: Nanos,
    pub(crate) end: Nanos,
    pub(crate) cause: Cause,
    /// Begin and end of its runs.
    pub(crate) runs: Vec<[Nanos; 2]>,
}

/// Exchange of ranks: a message, a transfer, a copy or a collective.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) activity: Activity,
    pub(crate) bytes: Bytes,
    pub(crate) ends: Endpoints,
    pub(crate) start: Nanos,
    pub(crate) end: Nanos,
    pub(crate) cause: Cause,
}

/// Ranks that take part in an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoints {
    /// A rank, with its replicas.
    Rank(u32),
    /// A rank, with its host.
    Host(u32),
    /// A rank that sends a message, with the time at which it has left the rank.
    Message { from: u32, left: Nanos },
    /// Pipeline ranks of a collective.
    Group(Vec<u32>),
}

/// Observer that records all events of a step.
pub(crate) struct Recorder<'a> {
    work: &'a StepWork,
    /// Actions of each rank.
    pub(crate) actions: Vec<Vec<FinishedAction>>,
    pub(crate) flows: Vec<Flow>,
    /// Waits of each rank that are drawn.
    pub(crate) waits: Vec<Vec<Event>>,
    /// Messages that each rank received.
    pub(crate) received: Vec<Vec<Event>>,
    /// Changes of each rank's memory, in bytes, by time.
    pub(crate) memory: Vec<Vec<(Nanos, i128)>>,
    /// Message that brought each result.
    makers: Vec<Option<u32>>,
    /// Transfers of each rank over replicas, in order, with the bytes that they copy to the host.
    transfers: Vec<Vec<(u32, Bytes)>>,
    /// Copies of each rank between device and host, in order.
    copies: Vec<Vec<u32>>,
    /// Last message of each rank.
    last_message: Vec<Option<u32>>,
    /// Last action or wait of each rank.
    last: Vec<Cause>,
}

impl<'a> Recorder<'a> {
    pub(crate) fn new(order: &Order, work: &'a StepWork) -> Self {
        let num_ranks = order.ranks.len();
        Self {
            work,
            actions: order.ranks.iter().map(|ops| Vec::with_capacity(ops.len())).collect(),
            flows: Vec::new(),
            waits: vec![Vec::new(); num_ranks],
            received: vec![Vec::new(); num_ranks],
            copies: vec![Vec::new(); num_ranks],
            memory: vec![Vec::new(); num_ranks],
            makers: vec![None; order.num_results()],
            transfers: vec![Vec::new(); num_ranks],
            last_message: vec![None; num_ranks],
            last: vec![Cause::Start; num_ranks],
        }
    }

    pub(crate) fn time_of(&self, cause: Cause) -> Nanos {
        match cause {
            Cause::Start => Nanos::ZERO,
            Cause::Action((rank, index)) => self.actions[rank as usize][index as usize].end,
            Cause::Flow(flow) => self.flows[flow as usize].end,
        }
    }

    /// Index of the record of an action in progress: the last action that began or, for the first of a pair, the one
    /// before it.
    fn index(&self, rank: usize, op: &RankOp) -> usize {
        let begun = &self.actions[rank];
        let last = begun.len() - 1;
        if begun[last].action == op.action() { last } else { last - 1 }
    }

    fn add(&mut self, flow: Flow) -> u32 {
        self.flows.push(flow);
        self.flows.len() as u32 - 1
    }

    /// Records a copy, if anything is copied; its cause is the copy before it in the same direction, or else `cause`.
    fn copy(
        &mut self,
        rank: usize,
        activity: Activity,
        [start, end]: [Nanos; 2],
        bytes: Bytes,
        cause: Cause,
    ) {
        if end == start {
            return;
        }
        let before = self.copies[rank].iter().rev().copied();
        let before = before.filter(|_| start > self.time_of(cause));
        let before = before.take(2).find(|flow| self.flows[*flow as usize].end == start);
        let cause = before.map_or(cause, Cause::Flow);
        let ends = Endpoints::Host(rank as u32);
        let flow = self.add(Flow { activity, bytes, ends, start, end, cause });
        self.copies[rank].push(flow);
    }

    fn remember(&mut self, rank: usize, now: Nanos, change: i128) {
        if change != 0 {
            self.memory[rank].push((now, change));
        }
    }
}

/// Largest number of copies from the host in flight at once among which a copy is searched for.
const MOST_COPIES: usize = 8;

impl Observer for Recorder<'_> {
    fn begins(&mut self, rank: usize, op: &RankOp, now: Nanos, waited_for: Option<u32>) {
        if let Some(flow) = waited_for.and_then(|slot| self.makers[slot as usize]) {
            self.last[rank] = Cause::Flow(flow);
        }
        self.actions[rank].push(FinishedAction {
            action: op.action(),
            is_first: op.is_first,
            is_last: op.is_last,
            start: now,
            end: now,
            cause: self.last[rank],
            runs: Vec::new(),
        });
        let [taken, _] = change(op.kind, &self.work.stages[op.stage as usize].kept);
        self.remember(rank, now, i128::from(taken));
    }

    fn ran(&mut self, rank: usize, op: &RankOp, start: Nanos, end: Nanos) {
        let last = self.last[rank];
        let index = self.index(rank, op);
        let done = &mut self.actions[rank][index];
        if done.action.kind == ActionKind::OptimizerStep && done.runs.is_empty() {
            done.start = start;
            done.cause = last;
        }
        done.end = end;
        done.runs.push([start, end]);
    }

    fn ends(&mut self, rank: usize, op: &RankOp, now: Nanos) {
        let index = self.index(rank, op);
        let done = &mut self.actions[rank][index];
        if op.kind != ActionKind::OptimizerStep || done.runs.is_empty() {
            done.end = now;
        }
        if done.end == now {
            self.last[rank] = Cause::Action((rank as u32, index as u32));
        }
        let [_, freed] = change(op.kind, &self.work.stages[op.stage as usize].kept);
        self.remember(rank, now, -i128::from(freed));
    }

    fn sends(&mut self, rank: usize, op: &RankOp, start: Nanos, end: Nanos) {
        let stage = &self.work.stages[op.stage as usize];
        let message = stage.message(op.kind);
        let mut begun = self.actions[rank].iter().enumerate().rev().take(2);
        let maker = begun.find(|(_, done)| op.sends_result_of(done.action));
        let made =
            maker.map_or(self.last[rank], |(index, _)| Cause::Action((rank as u32, index as u32)));
        let waited = self.last_message[rank].filter(|flow| {
            let left = match self.flows[*flow as usize].ends {
                Endpoints::Message { left, .. } => left,
                _ => Nanos::ZERO,
            };
            left == start && left > self.time_of(made)
        });
        let flow = self.add(Flow {
            activity: Activity::Action(op.action()),
            bytes: message.bytes,
            ends: Endpoints::Message { from: rank as u32, left: end },
            start,
            end,
            cause: waited.map_or(made, Cause::Flow),
        });
        self.last_message[rank] = Some(flow);
        self.makers[op.result as usize] = Some(flow);
    }

    fn receives(&mut self, rank: usize, op: &RankOp, start: Nanos, end: Nanos) {
        let Some(id) = self.makers[op.need as usize] else { return };
        let flow = &mut self.flows[id as usize];
        flow.end = end;
        let activity = flow.activity.action().partner().map_or(flow.activity, Activity::Action);
        let (stream, bytes) = (Stream::Receive, flow.bytes);
        self.received[rank].push(Event { start, end, stream, activity, bytes });
    }

    fn begins_transfer(
        &mut self,
        rank: usize,
        action: Action,
        transfer: &Transfer,
        from_host: [Nanos; 2],
    ) {
        let activity = match action.kind {
            ActionKind::Unshard | ActionKind::ReduceGrad => Activity::Action(action),
            _ => Activity::Collective { collective: transfer.collective, action },
        };
        let under_way = self.actions[rank].iter().enumerate().next_back();
        let cause = under_way.map_or(Cause::Start, |(index, done)| {
            // A transfer that an update begins before its own kernels depends on the action before the update.
            let is_before = done.action.kind == ActionKind::OptimizerStep && done.runs.is_empty();
            if is_before { self.last[rank] } else { Cause::Action((rank as u32, index as u32)) }
        });
        let before = Activity::Copy { to: CopyDestination::Device, action };
        self.copy(rank, before, from_host, transfer.from_host.bytes, cause);
        let (start, end) = (Nanos::ZERO, Nanos::ZERO);
        let ends = Endpoints::Rank(rank as u32);
        let flow = self.add(Flow { activity, bytes: transfer.bytes, ends, start, end, cause });
        self.transfers[rank].push((flow, transfer.to_host.bytes));
    }

    fn transferred(&mut self, rank: usize, over: FinishedTransfer) {
        let FinishedTransfer { id, start, end, to_host } = over;
        let (id, copied) = self.transfers[rank][id as usize];
        let before = id.checked_sub(1).and_then(|_| {
            let earlier = self.transfers[rank].iter().rev().map(|(flow, _)| *flow);
            let earlier = earlier.skip_while(|flow| *flow >= id).take(1);
            let copies = self.copies[rank].iter().rev().copied().filter(|flow| *flow < id);
            earlier
                .chain(copies.take(MOST_COPIES))
                .find(|flow| self.flows[*flow as usize].end == start)
        });
        let flow = &mut self.flows[id as usize];
        (flow.start, flow.end) = (start, end);
        flow.cause = before.map_or(flow.cause, Cause::Flow);
        let after = Activity::Copy { to: CopyDestination::Host, action: flow.activity.action() };
        self.copy(rank, after, to_host, copied, Cause::Flow(id));
    }

    fn waits(&mut self, rank: usize, op: &RankOp, what: Waiting, start: Nanos, end: Nanos) {
        let action = match (what, op.kind) {
            (Waiting::Message, ActionKind::Forward) => {
                Action { kind: ActionKind::RecvForward, ..op.action() }
            }
            (Waiting::Message, _) => Action { kind: ActionKind::RecvBackward, ..op.action() },
            // Waits within a pass are part of it.
            (Waiting::Transfers, kind) if kind.is_compute() => return,
            (Waiting::Transfers, _) => Action { kind: ActionKind::ReduceGrad, ..op.action() },
        };
        if what == Waiting::Transfers {
            let is_over = |flow: &u32| self.flows[*flow as usize].end == end;
            let transfers = self.transfers[rank].iter().rev().map(|(flow, _)| *flow);
            let copies = self.copies[rank].iter().rev().copied();
            let last = transfers.chain(copies).find(is_over);
            self.last[rank] = last.map_or(self.last[rank], Cause::Flow);
        }
        let (stream, activity) = (Stream::Compute, Activity::Wait(action));
        self.waits[rank].push(Event { start, end, stream, activity, bytes: Bytes::ZERO });
    }

    fn collective(
        &mut self,
        members: &[u32],
        op: &RankOp,
        group_collective: &GroupCollective,
        span: [Nanos; 2],
    ) {
        let [start, end] = span;
        let Transfer { collective, bytes, .. } = group_collective.transfer;
        let reduction = Action { kind: ActionKind::ReduceGrad, ..op.action() };
        let latest = members.iter().map(|rank| self.last[*rank as usize]);
        let cause = latest.max_by_key(|cause| self.time_of(*cause)).unwrap_or(Cause::Start);
        let activity = if group_collective.is_reduction {
            Activity::Action(reduction)
        } else {
            Activity::Collective { collective, action: op.action() }
        };
        let ends = Endpoints::Group(members.to_vec());
        let flow = self.add(Flow { activity, bytes, ends, start, end, cause });
        for rank in members {
            self.last[*rank as usize] = Cause::Flow(flow);
            if end > start {
                let activity = Activity::Wait(reduction);
                let stream = Stream::Compute;
                let wait = Event { start, end, stream, activity, bytes: Bytes::ZERO };
                self.waits[*rank as usize].push(wait);
            }
        }
    }
}
