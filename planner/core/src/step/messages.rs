//! Messages between stages that a rank waits for.

use ir::framework::MessageOverlap;
use ir::schedule::{ActionKind, ScheduleKind};
use ir::units::{Nanos, Seconds};
use simulator::TimedMessage;

use super::assignment::{Assignment, Stage};

impl Assignment<'_> {
    /// True if ranks compute nothing while they exchange messages. Zero-bubble schedules never wait, or there would be
    /// bubbles.
    pub(super) fn waits_for_messages(&self, schedule: ScheduleKind) -> bool {
        self.problem.hardware.framework.pipeline_parallel.messages == MessageOverlap::Awaited
            && !schedule.splits_backward()
    }

    /// Time that a pass waits until its message is sent, and for the collectives of all ranks for a shared vocabulary.
    pub(super) fn waited_messages(
        &self,
        schedule: ScheduleKind,
        stage: usize,
        kind: ActionKind,
    ) -> Nanos {
        if !self.waits_for_messages(schedule) {
            return Nanos::ZERO;
        }
        let [forward, backward] = self.vocabulary_exchanges(stage);
        let Stage { send_forward, send_backward, .. } = &*self.stages[stage];
        let habits = &self.problem.hardware.framework.pipeline_parallel;
        let wait = Nanos::from(Seconds::new(habits.microseconds_per_awaited_message * 1e-6));
        let time = |message: &TimedMessage| match message.time {
            Nanos::ZERO => Nanos::ZERO,
            time => time + wait,
        };
        match kind {
            ActionKind::Forward => time(send_forward) + forward,
            ActionKind::Backward => time(send_backward) + backward,
            _ => Nanos::ZERO,
        }
    }
}
