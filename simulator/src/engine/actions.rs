//! What a rank does: actions, part by part, in the order of its list.

use ir::schedule::{Action, ActionKind, Step};
use ir::units::Nanos;
use traces::timeline::{Activity, Stream};

use super::ranks::{Pass, Thread};
use super::{Ends, Engine, Event, Flow};
use crate::simulation::{Cause, Done};
use crate::work::{Segment, Transfer};

impl Engine<'_> {
    /// Does the next part of an action, if it need not wait; says whether it did.
    pub(super) fn advance_thread(&mut self, rank: usize, thread: usize) -> bool {
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
                let clock = state.without_kernels(self.now);
                let Some(running) = state.threads[thread].as_mut() else { return false };
                let (target, since) = *running.awaits.get_or_insert((posted, clock));
                if state.transferred[stream as usize] < target {
                    return false;
                }
                running.awaits = None;
                running.next += 1;
                // Until all have come to a collective, its ranks wait for each other, not for it.
                let last = state.last_flow[stream as usize].map(|last| self.flows.get(last));
                let since = match last {
                    Some(Flow { ends: Ends::Group, start, .. }) => {
                        since.max(clock.saturating_sub(self.now - *start))
                    }
                    _ => since,
                };
                state.count_waiting(stream, since, self.now);
            }
        }
        true
    }

    /// Starts whatever stands next in the rank's list and need not wait; says whether anything did.
    pub(super) fn take_steps(&mut self, rank: usize) -> bool {
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
    pub(super) fn take(&mut self, rank: usize, thread: usize, action: Action) -> bool {
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

    pub(super) fn post_all(&mut self, rank: usize, action: Action, transfers: &[Transfer]) {
        let cause = self.ranks[rank].last_action();
        for transfer in transfers {
            self.post(rank, *transfer, Activity::Action(action), cause);
        }
    }

    /// Begins an action that computes, if its data and its parameters are there.
    pub(super) fn begin_action(&mut self, rank: usize, thread: usize, action: Action) -> bool {
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

    pub(super) fn end_action(&mut self, rank: usize, thread: usize) {
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

    pub(super) fn start_kernel(&mut self, rank: usize, thread: usize, time: Nanos) {
        let slowdown = self.work.slowdown_per_mille;
        let event = self.ranks[rank].start_kernel(thread, time, self.now, slowdown);
        self.foresee(event.0, Event::Computed { rank: rank as u32, version: event.1 });
    }

    pub(super) fn computed(&mut self, rank: usize, version: u32) {
        let state = &mut self.ranks[rank];
        if state.kernel.as_ref().is_none_or(|kernel| kernel.version != version) {
            return;
        }
        if let Some(thread) = state.end_kernel(self.now)
            && let Some(thread) = &mut state.threads[thread]
        {
            thread.computes = false;
        }
        // Of an overlapped pair, the one that waits for the kernels goes first.
        let waiting = 1 - state.last_kernel_thread;
        while self.advance_thread(rank, waiting) {}
        self.advance(rank);
    }
}
