//! The event loop: what happens next, until nothing does.
//!
//! Each rank goes through its list of actions. Computation holds the list up until it is over; sends,
//! gathering and reduction are put on their streams and the list goes on. A stream does one transfer
//! at a time, in the order in which they came. A transfer that several ranks share starts once it is
//! first in line on all of them. Transfers that cross the same link at the same time share it equally.

mod flows;
mod ranks;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ir::schedule::{Action, ActionKind, Schedule, Step};
use ir::units::{Bytes, Nanos};
use traces::timeline::{Activity, Stream};

use crate::simulation::{Cause, Done, SimulationError};
use crate::work::{Messages, Segment, Transfer, Work};
pub(crate) use flows::{Ends, Flow};
use flows::{FlowId, Flows};
use ranks::{Pass, Rank, Thread};

/// What the engine leaves behind.
pub(crate) struct Record {
    /// By rank, in the order in which they began.
    pub(crate) actions: Vec<Vec<Done>>,
    pub(crate) flows: Vec<Flow>,
    /// By rank: when memory changes, and by how much.
    pub(crate) memory: Vec<Vec<(Nanos, i128)>>,
    /// By rank and stream.
    pub(crate) waited: Vec<[Nanos; Stream::ALL.len()]>,
}

pub(crate) fn run(schedule: &Schedule, work: &Work) -> Result<Record, SimulationError> {
    let mut engine = Engine::new(schedule, work);
    for (rank, of_rank) in work.ranks.iter().enumerate() {
        for (stage, transfer) in &of_rank.first {
            let action = Action { stage: *stage, kind: ActionKind::Unshard, micro_batch: 0 };
            engine.post(rank, *transfer, Activity::Action(action), Cause::Start);
        }
    }
    for rank in 0..work.ranks.len() {
        engine.advance(rank);
    }
    while let Some(Reverse((time, _, event))) = engine.events.pop() {
        engine.now = time;
        match event {
            Event::Computed { rank, version } => engine.computed(rank as usize, version),
            Event::Transferred { flow, version } => engine.transferred(flow, version),
        }
    }
    engine.finish()
}

/// What may happen. An event whose version is not the current one was overtaken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A rank's kernels are over.
    Computed { rank: u32, version: u32 },
    /// A transfer is over.
    Transferred { flow: FlowId, version: u32 },
}

struct Engine<'a> {
    schedule: &'a Schedule,
    work: &'a Work,
    now: Nanos,
    /// By time; at the same time, by the order in which they were foreseen.
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    num_events: u64,
    ranks: Vec<Rank<'a>>,
    flows: Flows,
    /// Who made what stages need, once it is there; see [`Engine::slot`].
    arrived: Vec<Option<Cause>>,
}

impl<'a> Engine<'a> {
    fn new(schedule: &'a Schedule, work: &'a Work) -> Self {
        let ranks = schedule.ranks();
        let num_slots = 2 * schedule.num_stages() as usize * schedule.num_micro_batches() as usize;
        Self {
            schedule,
            work,
            now: Nanos::ZERO,
            events: BinaryHeap::new(),
            num_events: 0,
            ranks: ranks.iter().map(|steps| Rank::new(steps)).collect(),
            flows: Flows::new(ranks.len(), work),
            arrived: vec![None; num_slots],
        }
    }

    fn foresee(&mut self, time: Nanos, event: Event) {
        self.events.push(Reverse((time, self.num_events, event)));
        self.num_events += 1;
    }

    /// Lets `rank` go on until all that it does waits for something.
    fn advance(&mut self, rank: usize) {
        loop {
            let mut went_on = false;
            for thread in 0..2 {
                while self.advance_thread(rank, thread) {
                    went_on = true;
                }
            }
            let goes_on = self.take_steps(rank);
            if !(went_on || goes_on) {
                return;
            }
        }
    }

    /// Does the next part of an action, if it need not wait; says whether it did.
    fn advance_thread(&mut self, rank: usize, thread: usize) -> bool {
        let state = &mut self.ranks[rank];
        let Some(running) = state.threads[thread].as_mut().filter(|running| !running.computes)
        else {
            return false;
        };
        let part = running.segments.get(running.next).copied();
        if matches!(part, Some(Segment::Compute(_))) && state.kernel.is_some() {
            return false;
        }
        if running.next == 0 && running.awaits.is_none() {
            let done = &mut state.done[running.index.1 as usize];
            if done.start < self.now {
                // It waited for the kernels of the action beside it.
                done.start = self.now;
                done.cause = Cause::Action((running.index.0, running.index.1 - 1));
            }
        }
        match part {
            None => self.end_action(rank, thread),
            Some(Segment::Compute(time)) => {
                running.computes = true;
                running.next += 1;
                running.computed += time;
                self.start_kernel(rank, thread, time);
            }
            Some(Segment::Start(transfer)) => {
                running.next += 1;
                let activity = Activity::Collective {
                    collective: transfer.collective,
                    action: running.action,
                };
                let cause = Cause::Action(running.index);
                self.post(rank, transfer, activity, cause);
            }
            Some(wait @ (Segment::Wait(stream) | Segment::WaitFor(stream, _))) => {
                let posted = match wait {
                    Segment::WaitFor(_, count) => count.into(),
                    _ => state.posted[stream as usize],
                };
                let (target, since) = *running.awaits.get_or_insert((posted, self.now));
                if state.transferred[stream as usize] < target {
                    return false;
                }
                running.awaits = None;
                running.next += 1;
                // Until all have come to a collective, its ranks wait for each other, not for it.
                let last = state.last_flow[stream as usize].map(|last| self.flows.get(last));
                let since = match last {
                    Some(Flow { ends: Ends::Group, start, .. }) => since.max(*start),
                    _ => since,
                };
                state.waited[stream as usize] += self.now.saturating_sub(since);
            }
        }
        true
    }

    /// Starts whatever stands next in the rank's list and need not wait; says whether anything did.
    fn take_steps(&mut self, rank: usize) -> bool {
        let Some(step) = self.ranks[rank].steps.get(self.ranks[rank].next).copied() else {
            return false;
        };
        match step {
            Step::One(action) => {
                if self.ranks[rank].threads.iter().any(Option::is_some) {
                    return false;
                }
                self.take(rank, 0, action) && {
                    self.ranks[rank].next += 1;
                    true
                }
            }
            Step::Overlapped(first, second) => {
                let started = self.ranks[rank].pair_started;
                if !started {
                    let is_free = self.ranks[rank].threads.iter().all(Option::is_none);
                    self.ranks[rank].pair_started = is_free && self.take(rank, 0, first);
                    return self.ranks[rank].pair_started;
                }
                self.take(rank, 1, second) && {
                    self.ranks[rank].pair_started = false;
                    self.ranks[rank].next += 1;
                    true
                }
            }
        }
    }

    /// Begins an action, unless it must wait.
    fn take(&mut self, rank: usize, thread: usize, action: Action) -> bool {
        let stage = &self.work.stages[action.stage as usize];
        match action.kind {
            kind if kind.is_compute() || kind == ActionKind::OptimizerStep => {
                return self.begin_action(rank, thread, action);
            }
            ActionKind::SendForward | ActionKind::SendBackward => {
                let sent = &mut self.ranks[rank].sent_early;
                match sent.iter().position(|early| *early == action) {
                    Some(early) => drop(sent.swap_remove(early)),
                    None => self.send(rank, action),
                }
            }
            // Receives are always open: data is taken when it comes.
            ActionKind::RecvForward | ActionKind::RecvBackward => {}
            ActionKind::Unshard => {
                self.ranks[rank].remember(self.now, stage.gathered, 1);
                self.post_all(rank, action, &stage.unshard);
                let posted = self.ranks[rank].posted[Stream::Data as usize];
                self.ranks[rank].gathered.insert(action.stage, posted);
            }
            ActionKind::Reshard => {
                self.ranks[rank].remember(self.now, stage.gathered, -1);
                self.ranks[rank].gathered.remove(&action.stage);
            }
            _ => self.post_all(rank, action, &stage.reduce),
        }
        true
    }

    fn post_all(&mut self, rank: usize, action: Action, transfers: &[Transfer]) {
        let cause = self.ranks[rank].last_action();
        for transfer in transfers {
            self.post(rank, *transfer, Activity::Action(action), cause);
        }
    }

    /// Begins an action that computes, if its data and its parameters are there.
    fn begin_action(&mut self, rank: usize, thread: usize, action: Action) -> bool {
        let mut cause = self.ranks[rank].last_action();
        if let Some(slot) = self.need(action) {
            let Some(from) = self.arrived[slot] else { return false };
            if self.time_of(from) > self.time_of(cause) {
                cause = from;
            }
        }
        if let Some(posted) = self.ranks[rank].gathered.get(&action.stage).copied() {
            if self.ranks[rank].transferred[Stream::Data as usize] < posted {
                return false;
            }
            if let Some(last) = self.ranks[rank].last_flow[Stream::Data as usize]
                && self.time_of(Cause::Transfer(last)) > self.time_of(cause)
            {
                cause = Cause::Transfer(last);
            }
        }
        let stage = &self.work.stages[action.stage as usize];
        let place = self.ranks[rank].count(action);
        match action.kind {
            ActionKind::Forward => self.ranks[rank].remember(self.now, stage.activations, 1),
            ActionKind::Backward | ActionKind::InputGrad => {
                self.ranks[rank].remember(self.now, stage.backward_workspace, 1);
            }
            _ => {}
        }
        let state = &mut self.ranks[rank];
        let index = (rank as u32, state.done.len() as u32);
        let (start, end, compute) = (self.now, self.now, Nanos::ZERO);
        state.done.push(Done { action, start, end, compute, cause });
        state.threads[thread] =
            Some(Thread::new(action, index, stage.segments(action.kind, place)));
        true
    }

    fn end_action(&mut self, rank: usize, thread: usize) {
        let state = &mut self.ranks[rank];
        let Some(Thread { action, index, computed, .. }) = state.threads[thread].take() else {
            return;
        };
        let done = &mut state.done[index.1 as usize];
        done.end = self.now;
        done.compute = computed;
        state.last_ended = Some(index);
        let stage = &self.work.stages[action.stage as usize];
        match action.kind {
            ActionKind::Backward => {
                state.remember(self.now, stage.activations + stage.backward_workspace, -1);
            }
            ActionKind::InputGrad => {
                let dropped = stage.activations.saturating_sub(stage.kept_for_weight_grad);
                state.remember(self.now, dropped + stage.backward_workspace, -1);
            }
            ActionKind::WeightGrad => {
                state.remember(self.now, stage.kept_for_weight_grad.min(stage.activations), -1);
            }
            _ => {}
        }
        // A result that another rank needs comes there by a message, if the schedule has messages.
        if let Some((pass, user)) = Pass::of(action, self.schedule.num_stages()) {
            let here = self.schedule.rank(user, action.micro_batch) as usize == rank;
            if here {
                let slot = self.slot(action.stage, action.micro_batch, pass);
                self.arrived[slot] = Some(Cause::Action(index));
            }
        }
        if let Some(send) = self.ranks[rank].send_in_pair(action) {
            self.send(rank, send);
            self.ranks[rank].sent_early.push(send);
        }
    }

    fn start_kernel(&mut self, rank: usize, thread: usize, time: Nanos) {
        let slowdown = self.work.slowdown_per_mille;
        let event = self.ranks[rank].start_kernel(thread, time, self.now, slowdown);
        self.foresee(event.0, Event::Computed { rank: rank as u32, version: event.1 });
    }

    fn computed(&mut self, rank: usize, version: u32) {
        let state = &mut self.ranks[rank];
        let Some(kernel) = state.kernel.as_ref().filter(|kernel| kernel.version == version) else {
            return;
        };
        if let Some(thread) = &mut state.threads[kernel.thread] {
            thread.computes = false;
        }
        state.kernel = None;
        // Of an overlapped pair, the one that waits for the kernels goes first.
        let waiting = 1 - state.last_kernel_thread;
        while self.advance_thread(rank, waiting) {}
        self.advance(rank);
    }

    /// Puts the message of a send on its way.
    fn send(&mut self, rank: usize, action: Action) {
        let stage = &self.work.stages[action.stage as usize];
        let (transfer, to) = match action.kind {
            ActionKind::SendForward => (stage.send_forward, action.stage + 1),
            _ => (stage.send_backward, action.stage - 1),
        };
        let to = self.schedule.rank(to, action.micro_batch);
        let ends = Ends::Message { from: rank as u32, to };
        let cause = self.ranks[rank].last_action();
        let flow = Flow::new(transfer, Activity::Action(action), ends, self.now, cause);
        let id = self.flows.add(flow);
        match self.work.messages {
            Messages::Queue => self.queue(id),
            Messages::Delay => {
                let end = self.now + transfer.time;
                self.foresee(end, Event::Transferred { flow: id, version: self.flows.version(id) });
            }
        }
    }

    fn post(&mut self, rank: usize, transfer: Transfer, activity: Activity, cause: Cause) {
        let id = match transfer.group {
            None => {
                let ends = Ends::Rank(rank as u32);
                self.flows.add(Flow::new(transfer, activity, ends, self.now, cause))
            }
            Some(group) => {
                let id = self.flows.join(group, rank as u32, transfer, activity, self.now, cause);
                self.ranks[rank].queues[transfer.stream as usize].push_back(id);
                self.ranks[rank].posted[transfer.stream as usize] += 1;
                return self.try_start(id);
            }
        };
        self.queue(id);
    }

    /// Puts a transfer in line on all of its ranks.
    fn queue(&mut self, id: FlowId) {
        for (rank, stream) in self.flows.ends(id) {
            self.ranks[rank].queues[stream as usize].push_back(id);
            self.ranks[rank].posted[stream as usize] += 1;
        }
        self.try_start(id);
    }

    /// Starts a transfer that is first in line everywhere.
    fn try_start(&mut self, id: FlowId) {
        if !self.flows.is_complete(id) {
            return;
        }
        let mut after = None;
        for (rank, stream) in self.flows.ends(id) {
            let state = &self.ranks[rank];
            if state.queues[stream as usize].front() != Some(&id) {
                return;
            }
            let last = state.last_flow[stream as usize];
            after = after.max(last.map(|last| (self.flows.get(last).end, last)));
        }
        if let Some((end, last)) = after {
            self.flows.follow(id, end, last);
        }
        for event in self.flows.start(id, self.now) {
            self.foresee(event.0, event.1);
        }
        self.change_speed(id, 1);
    }

    fn transferred(&mut self, id: FlowId, version: u32) {
        if self.flows.version(id) != version {
            return;
        }
        if let Some((stage, micro_batch, pass)) = self.flows.delivers(id) {
            let slot = self.slot(stage, micro_batch, pass);
            self.arrived[slot] = Some(Cause::Transfer(id));
            if self.work.messages == Messages::Delay {
                return self.arrive(id);
            }
        }
        for event in self.flows.end(id, self.now) {
            self.foresee(event.0, event.1);
        }
        self.change_speed(id, -1);
        let ends = self.flows.ends(id);
        for (rank, stream) in &ends {
            let state = &mut self.ranks[*rank];
            state.queues[*stream as usize].pop_front();
            state.transferred[*stream as usize] += 1;
            state.last_flow[*stream as usize] = Some(id);
        }
        for (rank, stream) in &ends {
            if let Some(next) = self.ranks[*rank].queues[*stream as usize].front().copied() {
                self.try_start(next);
            }
        }
        for (rank, _) in ends {
            self.advance(rank);
        }
    }

    /// Ends a message that was in no line.
    fn arrive(&mut self, id: FlowId) {
        self.flows.arrive(id, self.now);
        for (rank, _) in self.flows.ends(id) {
            self.advance(rank);
        }
    }

    /// Tells the kernels of a transfer's ranks that it began or ended.
    fn change_speed(&mut self, id: FlowId, change: i32) {
        let slowdown = self.work.slowdown_per_mille;
        for (rank, _) in self.flows.ends(id) {
            let state = &mut self.ranks[rank];
            if let Some((time, version)) = state.change_speed(change, self.now, slowdown) {
                self.foresee(time, Event::Computed { rank: rank as u32, version });
            }
        }
    }

    fn time_of(&self, cause: Cause) -> Nanos {
        match cause {
            Cause::Start => Nanos::ZERO,
            Cause::Action((rank, index)) => self.ranks[rank as usize].done[index as usize].end,
            Cause::Transfer(id) => self.flows.get(id).end,
        }
    }

    /// The slot of what an action needs of another stage.
    fn need(&self, action: Action) -> Option<usize> {
        let Action { stage, micro_batch, kind } = action;
        match kind {
            ActionKind::Forward => {
                Some(self.slot(stage.checked_sub(1)?, micro_batch, Pass::Forward))
            }
            ActionKind::Backward | ActionKind::InputGrad
                if stage + 1 < self.schedule.num_stages() =>
            {
                Some(self.slot(stage + 1, micro_batch, Pass::Backward))
            }
            _ => None,
        }
    }

    fn slot(&self, stage: u32, micro_batch: u32, pass: Pass) -> usize {
        let pass = stage as usize * 2 + pass as usize;
        pass * self.schedule.num_micro_batches() as usize + micro_batch as usize
    }

    fn finish(self) -> Result<Record, SimulationError> {
        if let Some((rank, state)) =
            self.ranks.iter().enumerate().find(|(_, state)| !state.is_finished())
        {
            let step = state.steps.get(state.next).or(state.steps.last()).copied();
            return Err(SimulationError::Stuck { rank, step, time: self.now });
        }
        let waited = self.ranks.iter().map(|rank| rank.waited).collect();
        let (actions, memory) = self.ranks.into_iter().map(|rank| (rank.done, rank.memory)).unzip();
        Ok(Record { actions, flows: self.flows.into_vec(), memory, waited })
    }
}

/// The change of memory that `bytes` more or fewer are.
fn change(bytes: Bytes, sign: i128) -> i128 {
    i128::from(bytes.get()) * sign
}
