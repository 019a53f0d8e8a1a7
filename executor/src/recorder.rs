//! When things happened on a rank, for the timeline of a step.

use std::sync::Mutex;
use std::time::Instant;

use ir::units::{Bytes, Nanos};
use traces::timeline::{Activity, Event, MemoryPoint, Stream, Track};

use crate::lock::lock;

/// Notes when events of a step start and end, from all threads of a rank.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// Time zero of the step; none while nothing is recorded.
    start: Mutex<Option<Instant>>,
    events: Mutex<Vec<Event>>,
    memory: Mutex<Vec<MemoryPoint>>,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self { start: Mutex::new(None), events: Mutex::default(), memory: Mutex::default() }
    }

    /// Records from now on, which is time zero.
    pub(crate) fn start(&self) {
        *lock(&self.start) = Some(now());
    }

    /// What was recorded, as the track of `rank`; nothing is recorded any more.
    pub(crate) fn finish(&self, rank: u32, name: String) -> Track {
        *lock(&self.start) = None;
        let mut events = std::mem::take(&mut *lock(&self.events));
        events.sort_by_key(|event| (event.start, event.end));
        let memory = std::mem::take(&mut *lock(&self.memory));
        Track { name, rank, num_ranks: 1, events, memory, memory_capacity: None }
    }

    /// Runs something, and records it if recording is on.
    pub(crate) fn record<T>(
        &self,
        stream: Stream,
        activity: Activity,
        bytes: u64,
        run: impl FnOnce() -> T,
    ) -> T {
        let Some(zero) = *lock(&self.start) else { return run() };
        let start = since(zero);
        let result = run();
        let event = Event { start, end: since(zero), stream, activity, bytes: Bytes::new(bytes) };
        lock(&self.events).push(event);
        result
    }

    /// Notes how much memory is in use from now on.
    pub(crate) fn memory(&self, bytes: u64) {
        if let Some(zero) = *lock(&self.start) {
            let point = MemoryPoint { time: since(zero), bytes: Bytes::new(bytes) };
            lock(&self.memory).push(point);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the executor measures what it runs")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

fn since(zero: Instant) -> Nanos {
    Nanos::new(u64::try_from(zero.elapsed().as_nanos()).unwrap_or(u64::MAX))
}
