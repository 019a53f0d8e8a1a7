//! Simulated times of streams and events, where each task takes equally long and the host takes no time.
//!
//! These times are no prediction: they only keep the order of a program, and show work as overlapped where it may
//! overlap.

use std::collections::BTreeMap;

use crate::recording::{Effect, EventId, StreamId};

/// Time of a task in milliseconds.
const WORK: f64 = 0.01;

/// Time at which each stream becomes idle, and of each event, in tasks.
#[derive(Default)]
pub(super) struct Times {
    streams: BTreeMap<StreamId, u64>,
    events: BTreeMap<EventId, u64>,
}

impl Times {
    /// Advances the times by a call.
    pub(super) fn follow(&mut self, effect: &Effect) {
        match effect {
            Effect::Work { stream, .. } => *self.streams.entry(*stream).or_default() += 1,
            Effect::Record { event, stream } => {
                let time = self.streams.get(stream).copied().unwrap_or_default();
                self.events.insert(*event, time);
            }
            Effect::Wait { stream, event } => {
                let comes = self.events.get(event).copied().unwrap_or_default();
                let busy = self.streams.entry(*stream).or_default();
                *busy = comes.max(*busy);
            }
            _ => {}
        }
    }

    /// Milliseconds from one event to another, as the driver returns them; none where one was not recorded.
    pub(super) fn between(&self, start: EventId, end: EventId) -> Option<f32> {
        let [start, end] = [self.events.get(&start)?, self.events.get(&end)?];
        Some(((*end as f64 - *start as f64) * WORK) as f32)
    }
}
