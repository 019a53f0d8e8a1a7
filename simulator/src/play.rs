//! Simulation of a step: each rank proceeds as soon as its order and its data allow.
//!
//! A rank works through its list of operations; data of another rank is available once its message has arrived, and
//! messages of a rank are sent one after the other. Transfers over replicas overlap passes. The order in which ranks
//! are advanced does not change the result, so there is no clock and no event queue: an operation costs one lookup of
//! its input and one note of its result.

use ir::schedule::{Action, ActionKind, ScheduleStep};
use ir::units::Nanos;

use crate::error::SimulationError;
use crate::order::{NONE, Order, Pair, RankOp};
use crate::transfers::{FinishedTransfer, Transfers, Waited, scaled_down};
use crate::work::{GroupCollective, Messages, PassPart, Run, StageWork, StepWork, Transfer};

/// Breakdown of a rank's step. The rest is waiting for other ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankTimes {
    /// Start of its first pass.
    pub start: Nanos,
    /// End of its last action.
    pub end: Nanos,
    /// Time of the runs of passes without slowdown by transfers.
    pub passes: Nanos,
    /// Time by which runs were slowed down by overlapped transfers.
    pub slowed: Nanos,
    /// Time of the runs of updates.
    pub update: Nanos,
    /// Time of waits for transfers over replicas.
    pub transfers: Nanos,
    /// Time of waits for copies between device and host, with no transfer in flight.
    pub copies: Nanos,
    /// Time of collectives with other pipeline ranks, from when all have joined them.
    pub group_collectives: Nanos,
    /// Time of waits while a needed message is in transit.
    pub messages: Nanos,
}

impl RankTimes {
    /// Time that is not spent waiting for other pipeline ranks.
    pub fn spent(&self) -> Nanos {
        let waiting = self.transfers + self.copies + self.group_collectives + self.messages;
        self.passes + self.slowed + self.update + waiting
    }

    /// Time from its first pass to the end of its last action.
    pub fn span(&self) -> Nanos {
        self.end - self.start
    }
}

/// Result of a simulated step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Played {
    /// End of the last action, transfer or copy.
    pub end: Nanos,
    /// Breakdown of each pipeline rank.
    pub ranks: Vec<RankTimes>,
}

/// Observer of a simulated step, which may change the durations of runs.
pub(crate) trait Observer {
    /// An action begins; `_waited_for` is the index of the result that it waited for, if it waited.
    fn begins(&mut self, _rank: usize, _op: &RankOp, _now: Nanos, _waited_for: Option<u32>) {}
    /// Returns a run of an action with its duration changed.
    fn pace(&mut self, _rank: usize, _op: &RankOp, run: Run) -> Run {
        run
    }
    /// A run of an action ends.
    fn ran(&mut self, _rank: usize, _op: &RankOp, _start: Nanos, _end: Nanos) {}
    /// An action ends.
    fn ends(&mut self, _rank: usize, _op: &RankOp, _now: Nanos) {}
    /// `_count` actions of a rank have ended, the last at `_time`.
    fn passed(&mut self, _rank: usize, _count: usize, _time: Nanos, _traffic: InFlightTraffic<'_>) {
    }
    /// A message is sent.
    fn sends(&mut self, _rank: usize, _op: &RankOp, _start: Nanos, _end: Nanos) {}
    /// A message is received, for the action that needs it.
    fn receives(&mut self, _rank: usize, _op: &RankOp, _start: Nanos, _end: Nanos) {}
    /// A transfer is queued; `_from_host` is the begin and the end of the copy before it.
    fn begins_transfer(
        &mut self,
        _rank: usize,
        _action: Action,
        _transfer: &Transfer,
        _from_host: [Nanos; 2],
    ) {
    }
    /// A transfer ends.
    fn transferred(&mut self, _rank: usize, _over: FinishedTransfer) {}
    /// A rank waits for its transfers, or for a message.
    fn waits(&mut self, _rank: usize, _op: &RankOp, _what: Waiting, _start: Nanos, _end: Nanos) {}
    /// A collective of pipeline ranks runs.
    fn collective(
        &mut self,
        _members: &[u32],
        _op: &RankOp,
        _collective: &GroupCollective,
        _span: [Nanos; 2],
    ) {
    }
}

/// Transfers and messages of a rank that overlap its actions.
#[derive(Clone, Copy)]
pub(crate) struct InFlightTraffic<'a> {
    pub(crate) transfers: &'a Transfers,
    /// Times at which the last message left the rank, and the last arrived.
    pub(crate) messages: [Nanos; 2],
}

/// Reason why a rank waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// A message in transit.
    Message,
    /// Transfers over replicas.
    Transfers,
}

/// Observer that does nothing.
pub(crate) struct Unobserved;

impl Observer for Unobserved {}

/// End of a step, and the breakdown of each rank's time.
///
/// # Errors
///
/// As [`simulate`](crate::simulate).
pub fn played(order: &Order, work: &StepWork) -> Result<Played, SimulationError> {
    play(order, work, &mut Unobserved)
}

/// Simulates a step.
///
/// # Errors
///
/// Ranks that wait forever at a collective that another rank never joins.
pub(crate) fn play(
    order: &Order,
    work: &StepWork,
    observer: &mut impl Observer,
) -> Result<Played, SimulationError> {
    let mut engine = Engine::new(order, work, observer);
    while let Some(rank) = engine.queue.pop() {
        engine.advance(rank as usize);
    }
    engine.finish()
}

/// Time of a result that has not been made.
const NEVER: Nanos = Nanos::new(u64::MAX);

/// The latest time of a result that has been made.
const LAST: Nanos = Nanos::new(u64::MAX - 1);

struct Engine<'a, O> {
    order: &'a Order,
    work: &'a StepWork,
    observer: &'a mut O,
    ranks: Vec<RankState>,
    /// Time at which each result is made, or, where another rank needs it, begins to be sent.
    there: Vec<Nanos>,
    /// Time at which each sent result has left its rank.
    left: Vec<Nanos>,
    /// Ranks that have joined the collective of each group, and the time of the last.
    group_collectives: Vec<(Vec<u32>, Nanos)>,
    /// Ranks that can proceed.
    queue: Vec<u32>,
}

#[derive(Default)]
struct RankState {
    /// Index of the next operation, and of the next part of it.
    next: usize,
    part: usize,
    now: Nanos,
    /// True while an action is in progress.
    has_begun: bool,
    has_computed: bool,
    /// Index of the result that the rank waits for.
    waits_for: u32,
    /// End of the group collective that the rank waited for.
    collective_end: Option<Nanos>,
    /// Time at which the last of its messages has left.
    sent: Nanos,
    /// Time at which the last message to it has arrived.
    received: Nanos,
    /// First action of the last pair, and its end: its result is sent before the second ends.
    first_of_pair: Option<(Action, Nanos)>,
    transfers: Transfers,
    times: RankTimes,
}

/// Ends of two overlapped passes, from the begin of the first on.
struct OverlappedPair {
    first_ends: Nanos,
    both_end: Nanos,
}

impl OverlappedPair {
    /// Pair of passes that take `first` and `second` alone, and `together` if they begin at the same time, where the
    /// second begins `late`. The rest of the first then shares the device equally with the second. The share of the
    /// first that is left at that time is also the share of the possible saving that they reach.
    fn new([first, second]: [Nanos; 2], together: Nanos, late: Nanos) -> Self {
        if late >= first {
            return Self { first_ends: first, both_end: late + second };
        }
        let (left, both) = (first - late, first + second);
        let saved = both.saturating_sub(together).get();
        let saved = scaled_down(saved, left.get(), first.get().max(1));
        let both_end = late + left + second - Nanos::new(saved);
        let shared = scaled_down((left * 2).get(), together.get(), both.get().max(1));
        let first_ends = late + Nanos::new(shared);
        Self { first_ends: first_ends.min(both_end), both_end }
    }
}

impl<'a, O: Observer> Engine<'a, O> {
    fn new(order: &'a Order, work: &'a StepWork, observer: &'a mut O) -> Self {
        let mut ranks = Vec::with_capacity(work.ranks.len());
        for (rank, of_rank) in work.ranks.iter().enumerate() {
            let mut state = RankState { waits_for: NONE, ..RankState::default() };
            for (stage, transfer) in &of_rank.prefetch {
                let kind = ActionKind::Unshard;
                let action = Action { stage: *stage, kind, micro_batch: 0 };
                let from_host = state.transfers.begin(transfer, Nanos::ZERO);
                observer.begins_transfer(rank, action, transfer, from_host);
            }
            ranks.push(state);
        }
        Self {
            order,
            work,
            ranks,
            there: vec![NEVER; order.num_results()],
            left: vec![Nanos::ZERO; order.num_results()],
            group_collectives: vec![Default::default(); work.groups.len()],
            queue: (0..order.ranks.len() as u32).rev().collect(),
            observer,
        }
    }

    /// Advances a rank until it must wait.
    fn advance(&mut self, rank: usize) {
        let order = self.order;
        let work = self.work;
        let ops = &order.ranks[rank];
        self.ranks[rank].waits_for = NONE;
        while let Some(op) = ops.get(self.ranks[rank].next) {
            let stage = &work.stages[op.stage as usize];
            let mut time = None;
            let taken = match op.kind {
                ActionKind::SendForward | ActionKind::SendBackward => {
                    time = Some(self.send(rank, op, stage));
                    1
                }
                ActionKind::ReduceGrad => {
                    let state = &mut self.ranks[rank];
                    for transfer in &stage.reduce {
                        state.transfers.go_on(state.now, &mut |over| {
                            self.observer.transferred(rank, over);
                        });
                        let from_host = state.transfers.begin(transfer, state.now);
                        self.observer.begins_transfer(rank, op.action(), transfer, from_host);
                    }
                    1
                }
                _ if op.pair == Pair::First => {
                    let second = &ops[self.ranks[rank].next + 1];
                    let Some(()) = self.pair(rank, op, second) else { return };
                    2
                }
                _ => {
                    let Some(()) = self.action(rank, op, stage) else { return };
                    1
                }
            };
            let state = &mut self.ranks[rank];
            state.next += taken;
            let messages = [state.sent, state.received];
            let traffic = InFlightTraffic { transfers: &state.transfers, messages };
            self.observer.passed(rank, state.next, time.unwrap_or(state.now), traffic);
        }
    }

    /// Sends a result; returns the end of the message.
    fn send(&mut self, rank: usize, op: &RankOp, stage: &StageWork) -> Nanos {
        let message = stage.message(op.kind);
        let state = &mut self.ranks[rank];
        let made = match state.first_of_pair {
            Some((first, end)) if op.sends_result_of(first) => end,
            _ => state.now,
        };
        let start = match self.work.messages {
            Messages::Queue => made.max(state.sent),
            Messages::Delay => made,
        };
        let mut end = start + message.time;
        if self.work.messages == Messages::Queue && !state.transfers.is_empty() {
            let over = &mut |over| self.observer.transferred(rank, over);
            end += state.transfers.share_with(message.time, state.now, over);
        }
        state.sent = end;
        self.observer.sends(rank, op, start, end);
        self.left[op.result as usize] = end;
        self.note(op, start);
        end
    }

    /// Records the time of a result, and queues the rank that waits for it.
    fn note(&mut self, op: &RankOp, time: Nanos) {
        if op.result == NONE {
            return;
        }
        // Times beyond the counter's range are clamped to the last time, not to `NEVER`.
        self.there[op.result as usize] = time.min(LAST);
        let user = &mut self.ranks[op.user as usize];
        if user.waits_for == op.result {
            user.waits_for = NONE;
            self.queue.push(op.user);
        }
    }

    /// Time at which an action's input is made or sent; `None` if that is not known yet.
    fn made(&mut self, rank: usize, op: &RankOp) -> Option<Nanos> {
        if op.need == NONE {
            return Some(Nanos::ZERO);
        }
        let there = self.there[op.need as usize];
        if there == NEVER {
            self.ranks[rank].waits_for = op.need;
            return None;
        }
        Some(there)
    }

    /// Time at which an action's input arrives, if it was made or sent at `made`.
    fn receive(&mut self, rank: usize, op: &RankOp, made: Nanos) -> Nanos {
        if !op.receives {
            return made;
        }
        let time = self.message_to(op);
        let state = &mut self.ranks[rank];
        if self.work.messages == Messages::Delay {
            let end = made + time;
            self.observer.receives(rank, op, made, end);
            return end;
        }
        let start = made.max(state.received);
        let mut end = start + time;
        if !state.transfers.is_empty() && end > state.now {
            let over = &mut |over| self.observer.transferred(rank, over);
            end += state.transfers.share_with(time, state.now, over);
        }
        let end = end.max(self.left[op.need as usize]);
        state.received = end;
        self.observer.receives(rank, op, start, end);
        end
    }

    /// The time of the message that an action needs.
    fn message_to(&self, op: &RankOp) -> Nanos {
        match op.kind {
            ActionKind::Forward => self.work.stages[op.stage as usize - 1].send_forward.time,
            _ => self.work.stages[op.stage as usize + 1].send_backward.time,
        }
    }

    /// Begins an action whose input arrives at `ready`; returns the index of the result that it waited for, if it did.
    fn begin(&mut self, rank: usize, op: &RankOp, ready: Nanos) -> Option<u32> {
        let mut waited_for = None;
        if ready > self.ranks[rank].now {
            waited_for = Some(op.need);
            if self.work.messages == Messages::Queue {
                let waited = self.message_to(op).min(ready - self.ranks[rank].now);
                self.ranks[rank].times.messages += waited;
                self.observer.waits(rank, op, Waiting::Message, ready - waited, ready);
            }
            self.ranks[rank].now = ready;
        }
        let state = &mut self.ranks[rank];
        if op.kind.is_compute() && !state.has_computed {
            state.has_computed = true;
            state.times.start = state.now;
        }
        waited_for
    }

    /// Runs an action; `None` where it must wait for another rank.
    fn action(&mut self, rank: usize, op: &RankOp, stage: &StageWork) -> Option<()> {
        if !self.ranks[rank].has_begun {
            let made = self.made(rank, op)?;
            let ready = self.receive(rank, op, made);
            let waited_for = self.begin(rank, op, ready);
            self.ranks[rank].has_begun = true;
            self.observer.begins(rank, op, self.ranks[rank].now, waited_for);
        }
        let parts = stage.parts(op.kind, op.is_first, op.is_last);
        while let Some(part) = parts.get(self.ranks[rank].part) {
            match *part {
                PassPart::Run(run) => self.run(rank, op, run),
                PassPart::Collective(collective) => self.join(rank, op, collective)?,
                part => self.transfer(rank, op, part),
            }
            self.ranks[rank].part += 1;
        }
        let now = self.ranks[rank].now;
        self.end(rank, op, now);
        self.note(op, now);
        Some(())
    }

    fn end(&mut self, rank: usize, op: &RankOp, now: Nanos) {
        let state = &mut self.ranks[rank];
        state.part = 0;
        state.has_begun = false;
        state.times.end = now;
        self.observer.ends(rank, op, now);
    }

    /// Runs two overlapped passes, once the inputs of both are known. Where the work gives the time of the pair, the
    /// passes share the device from the arrival of the second's input on; otherwise one follows the other. `None` where
    /// they must wait.
    fn pair(&mut self, rank: usize, first: &RankOp, second: &RankOp) -> Option<()> {
        let first_made = self.made(rank, first)?;
        let made = self.made(rank, second)?;
        let work = self.work;
        let stages = match first.kind {
            ActionKind::Forward => (first.stage, second.stage),
            _ => (second.stage, first.stage),
        };
        let Some(together) = work.pairs.get(&stages) else {
            self.action(rank, first, &work.stages[first.stage as usize]);
            self.ranks[rank].first_of_pair = Some((first.action(), self.ranks[rank].now));
            self.action(rank, second, &work.stages[second.stage as usize]);
            return Some(());
        };
        let ready = self.receive(rank, first, first_made);
        let waited_for = self.begin(rank, first, ready);
        let start = self.ranks[rank].now;
        let late = self.receive(rank, second, made).saturating_sub(start);
        let parts = |op: &RankOp| {
            work.stages[op.stage as usize].parts(op.kind, op.is_first, op.is_last).iter()
        };
        let time = |op: &RankOp| parts(op).map(PassPart::time).sum::<Nanos>();
        let OverlappedPair { first_ends, both_end } =
            OverlappedPair::new([time(first), time(second)], *together, late);
        self.observer.begins(rank, first, start, waited_for);
        self.observer.begins(rank, second, start + late, None);
        let apart = time(first) + time(second);
        // Where the second input arrives after the first has ended, the rank waits in between.
        let idle = late.saturating_sub(time(first));
        let busy = both_end - idle;
        let at = |done: u64| Nanos::new(scaled_down(done, busy.get(), apart.get().max(1)));
        let mut done = 0;
        for op in [first, second] {
            for part in parts(op) {
                match *part {
                    PassPart::Run(run) => {
                        let time = at(done + run.time.get()) - at(done);
                        done += run.time.get();
                        self.run(rank, op, Run { time, kernels: run.kernels.min(time), ..run });
                    }
                    part => self.transfer(rank, op, part),
                }
            }
            if op == first {
                self.ranks[rank].now += idle;
            }
        }
        let now = self.ranks[rank].now;
        let ended = now.min(start + first_ends);
        self.ranks[rank].first_of_pair = Some((first.action(), ended));
        for (op, end) in [(first, ended), (second, now)] {
            self.end(rank, op, end);
            self.note(op, end);
        }
        Some(())
    }

    fn run(&mut self, rank: usize, op: &RankOp, run: Run) {
        let run = self.observer.pace(rank, op, run);
        let state = &mut self.ranks[rank];
        let start = state.now;
        state.now = if state.transfers.is_empty() {
            start + run.time
        } else {
            let slowdown = self.work.slowdown_per_mille;
            let over = &mut |over| self.observer.transferred(rank, over);
            state.transfers.run_overlapped(run, start, slowdown, over)
        };
        if op.kind == ActionKind::OptimizerStep {
            state.times.update += run.time;
        } else {
            state.times.passes += run.time;
        }
        // Saturates, as the end is clamped at the end of time.
        state.times.slowed += (state.now - start).saturating_sub(run.time);
        self.observer.ran(rank, op, start, state.now);
    }

    /// A part that begins a transfer, or waits for transfers.
    fn transfer(&mut self, rank: usize, op: &RankOp, part: PassPart) {
        let state = &mut self.ranks[rank];
        let over = &mut |over| self.observer.transferred(rank, over);
        let start = state.now;
        let Waited { end, for_copies } = match part {
            PassPart::Start(transfer) => {
                state.transfers.go_on(start, over);
                let from_host = state.transfers.begin(&transfer, start);
                self.observer.begins_transfer(rank, op.action(), &transfer, from_host);
                return;
            }
            PassPart::WaitFor(count) => state.transfers.wait_for(count, start, over),
            PassPart::Wait => state.transfers.wait_for(state.transfers.num_begun(), start, over),
            PassPart::WaitForHost => state.transfers.wait_for_all(start, over),
            PassPart::Run(_) | PassPart::Collective(_) => return,
        };
        state.now = end;
        if end > start {
            state.times.transfers += (end - start).saturating_sub(for_copies);
            state.times.copies += for_copies.min(end - start);
            self.observer.waits(rank, op, Waiting::Transfers, start, state.now);
        }
    }

    /// Joins a collective with other ranks, which begins when all have joined; `None` until then.
    fn join(&mut self, rank: usize, op: &RankOp, collective: GroupCollective) -> Option<()> {
        if let Some(end) = self.ranks[rank].collective_end.take() {
            self.ranks[rank].now = end;
            self.ranks[rank].times.group_collectives += collective.transfer.time;
            return Some(());
        }
        let members = &self.work.groups[collective.group as usize];
        let (come, last) = &mut self.group_collectives[collective.group as usize];
        come.push(rank as u32);
        *last = (*last).max(self.ranks[rank].now);
        if come.len() < members.len() {
            return None;
        }
        let (come, start) = std::mem::take(&mut self.group_collectives[collective.group as usize]);
        let end = start + collective.transfer.time;
        self.observer.collective(members, op, &collective, [start, end]);
        for member in come {
            self.ranks[member as usize].collective_end = Some(end);
            if member as usize != rank {
                self.queue.push(member);
            }
        }
        self.join(rank, op, collective)
    }

    fn finish(mut self) -> Result<Played, SimulationError> {
        let mut end = Nanos::ZERO;
        for rank in 0..self.ranks.len() {
            let state = &mut self.ranks[rank];
            if let Some(op) = self.order.ranks[rank].get(state.next) {
                let step = ScheduleStep::One(op.action());
                return Err(SimulationError::Stuck { rank, step, time: state.now });
            }
            let over = &mut |over| self.observer.transferred(rank, over);
            end = end.max(state.transfers.wait_for_all(state.now, over).end);
        }
        Ok(Played { end, ranks: self.ranks.into_iter().map(|rank| rank.times).collect() })
    }
}
