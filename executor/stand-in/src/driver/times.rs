//! When streams do what they are given, where each piece of work takes as long as any other and hosts take no time.
//!
//! It is no prediction: what comes after something in a program's order comes after it in time, and what may go on
//! beside it does.

use std::collections::BTreeMap;

use crate::recording::{Action, EventId, StreamId};

/// How long a piece of work takes: milliseconds.
const WORK: f64 = 0.01;

/// Until when streams are busy, and when events come: in pieces of work.
#[derive(Default)]
pub(super) struct Times {
    streams: BTreeMap<StreamId, u64>,
    events: BTreeMap<EventId, u64>,
}

impl Times {
    /// Follows a call.
    pub(super) fn follow(&mut self, action: &Action) {
        match action {
            Action::Work { stream, .. } => *self.streams.entry(*stream).or_default() += 1,
            Action::Record { event, stream } => {
                let time = self.streams.get(stream).copied().unwrap_or_default();
                self.events.insert(*event, time);
            }
            Action::Wait { stream, event } => {
                let comes = self.events.get(event).copied().unwrap_or_default();
                let busy = self.streams.entry(*stream).or_default();
                *busy = comes.max(*busy);
            }
            _ => {}
        }
    }

    /// Milliseconds from one event to another, as the driver counts them; none where one was not recorded.
    pub(super) fn between(&self, start: EventId, end: EventId) -> Option<f32> {
        let [start, end] = [self.events.get(&start)?, self.events.get(&end)?];
        Some(((*end as f64 - *start as f64) * WORK) as f32)
    }
}
