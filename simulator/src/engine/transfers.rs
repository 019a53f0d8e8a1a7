//! What ranks exchange: transfers in line on streams, from their turn to their end.

use ir::schedule::{Action, ActionKind};
use traces::timeline::Activity;

use super::flows::FlowId;
use super::{Ends, Engine, Event, Flow};
use crate::simulation::Cause;
use crate::work::{Messages, Transfer};

impl Engine<'_> {
    /// Puts the message of a send on its way.
    pub(super) fn send(&mut self, rank: usize, action: Action) {
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

    pub(super) fn post(
        &mut self,
        rank: usize,
        transfer: Transfer,
        activity: Activity,
        cause: Cause,
    ) {
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
    pub(super) fn queue(&mut self, id: FlowId) {
        for (rank, stream) in self.flows.ends(id) {
            self.ranks[rank].queues[stream as usize].push_back(id);
            self.ranks[rank].posted[stream as usize] += 1;
        }
        self.try_start(id);
    }

    /// Starts a transfer that is first in line everywhere.
    pub(super) fn try_start(&mut self, id: FlowId) {
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

    pub(super) fn transferred(&mut self, id: FlowId, version: u32) {
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
    pub(super) fn arrive(&mut self, id: FlowId) {
        self.flows.arrive(id, self.now);
        for (rank, _) in self.flows.ends(id) {
            self.advance(rank);
        }
    }

    /// Tells the kernels of a transfer's ranks that it began or ended.
    pub(super) fn change_speed(&mut self, id: FlowId, change: i32) {
        let slowdown = self.work.slowdown_per_mille;
        for (rank, _) in self.flows.ends(id) {
            let state = &mut self.ranks[rank];
            if let Some((time, version)) = state.change_speed(change, self.now, slowdown) {
                self.foresee(time, Event::Computed { rank: rank as u32, version });
            }
        }
    }
}
