//! Race detector: finds uses of memory without an order between them.
//!
//! Each stream and each thread has a vector clock ([`crate::clock`]). A stream merges the clock of the thread that
//! enqueues work on it, and those of the events that it waits for; a thread merges the clocks of what it has waited
//! for. Two uses of the same bytes, at least one of which writes, must be ordered: the clock of the later one's stream
//! must include the earlier one's end when the later one is enqueued. All other pairs are reported, whether or not they
//! were harmless in this run.
//!
//! For each byte, the last write and each stream's last read since that write are stored. That is enough: a clock that
//! does not include an earlier use by a stream does not include the stream's later uses either.

mod finding;
mod memory;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::clock::{Agent, Clock, Stamp};
use crate::recording::{Access, Effect, EventId, NamedAccesses, Range, Recording, StreamId, Usage};
use finding::{Collected, Use};
pub use finding::{MemoryFinding, Mistake, ReportedUse};
use memory::{Memory, Touch};

/// Assumption about the order between threads.
///
/// Locks, channels and reference counts order threads, but a driver sees none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostOrder {
    /// A thread knows all that any thread did or saw before, in the order of the recording. Findings are errors,
    /// however threads are synchronised.
    AsRecorded,
    /// A thread knows nothing of other threads, except that streams, events and memory exist before other threads use
    /// them. Findings may be ordered by synchronisation that the driver does not see.
    WithinThreads,
}

/// The findings of a recording, once for each pair of names and streams.
pub fn detect(recording: &Recording, order: HostOrder) -> Vec<MemoryFinding> {
    let mut detector = Detector {
        recording,
        order,
        streams: BTreeMap::new(),
        threads: BTreeMap::new(),
        events: BTreeMap::new(),
        memory: Memory::default(),
        collected: Collected::new(recording),
    };
    for (index, call) in recording.calls.iter().enumerate() {
        detector.step(index, call.thread, &call.effect);
    }
    detector.collected.findings()
}

struct Detector<'a> {
    recording: &'a Recording,
    order: HostOrder,
    streams: BTreeMap<StreamId, Clock>,
    threads: BTreeMap<u32, Clock>,
    events: BTreeMap<EventId, Clock>,
    memory: Memory,
    collected: Collected<'a>,
}

impl Detector<'_> {
    fn step(&mut self, index: usize, thread: u32, effect: &Effect) {
        let thread = match self.order {
            HostOrder::AsRecorded => 0,
            HostOrder::WithinThreads => thread,
        };
        match effect {
            Effect::Allocate { range, stream } => {
                let stamp = stream.map(|stream| self.give(thread, stream).1);
                self.memory.allocate(*range, index, stamp);
            }
            Effect::Free { start, stream } => self.free(index, thread, *start, *stream),
            Effect::Work { stream, parts } => {
                let (clock, stamp) = self.give(thread, *stream);
                self.collected.within(index, parts);
                self.touch(index, parts, &clock, stamp);
            }
            Effect::Host(part) => {
                let (clock, stamp) = self.act(thread);
                self.touch(index, std::slice::from_ref(part), &clock, stamp);
            }
            // Without an order between threads, nothing is known about it.
            Effect::Unseen(_) if self.order == HostOrder::WithinThreads => {}
            Effect::Unseen(part) => {
                let (clock, stamp) = self.act(thread);
                self.touch(index, std::slice::from_ref(part), &clock, stamp);
            }
            Effect::Record { event, stream } => {
                let (clock, _) = self.give(thread, *stream);
                self.events.insert(*event, clock);
            }
            Effect::Wait { stream, event } => {
                let (mut clock, _) = self.give(thread, *stream);
                // A wait for an event that was never recorded has no effect.
                if let Some(event) = self.events.get(event) {
                    clock.join(event);
                }
                self.streams.insert(*stream, clock);
            }
            Effect::SeeEvent(event) => {
                if let Some(event) = self.events.get(event) {
                    self.threads.entry(thread).or_default().join(event);
                }
            }
            Effect::SeeStream(stream) => {
                let (clock, _) = self.give(thread, *stream);
                self.threads.entry(thread).or_default().join(&clock);
            }
            Effect::SeeDevice(device) => {
                for (index, facts) in (0..).zip(&self.recording.streams) {
                    let clock =
                        self.streams.get(&StreamId(index)).filter(|_| facts.device == *device);
                    if let Some(clock) = clock {
                        self.threads.entry(thread).or_default().join(clock);
                    }
                }
            }
        }
    }

    /// Enqueues work on a stream: the stream's clock and the stamp of the work.
    fn give(&mut self, thread: u32, stream: StreamId) -> (Clock, Stamp) {
        let mut clock = self.streams.get(&stream).cloned().unwrap_or_default();
        if let Some(host) = self.threads.get(&thread) {
            clock.join(host);
        }
        for other in self.recording.implicitly_ordered_with(stream) {
            if let Some(other) = self.streams.get(&other) {
                clock.join(other);
            }
        }
        let stamp = clock.tick(Agent::Stream(stream.0));
        self.streams.insert(stream, clock.clone());
        (clock, stamp)
    }

    /// Records an action of a thread: the thread's clock and the stamp of the action.
    fn act(&mut self, thread: u32) -> (Clock, Stamp) {
        let clock = self.threads.entry(thread).or_default();
        let stamp = clock.tick(Agent::Thread(thread));
        (clock.clone(), stamp)
    }

    fn free(&mut self, index: usize, thread: u32, start: u64, stream: Option<StreamId>) {
        let (clock, stamp) = match stream {
            Some(stream) => self.give(thread, stream),
            None => self.act(thread),
        };
        let Some(range) = self.memory.free(start, index) else { return };
        let touch = Touch { index, part: 0, usage: Usage::Write, stamp };
        self.access(range, touch, &clock);
        self.memory.forget(range);
    }

    /// Checks accesses against earlier ones.
    fn touch(&mut self, index: usize, parts: &[NamedAccesses], clock: &Clock, stamp: Stamp) {
        for (number, part) in parts.iter().enumerate() {
            for Access { range, usage } in part.accesses.iter().filter(|a| !a.range.is_empty()) {
                let touch = Touch { index, part: number, usage: *usage, stamp };
                let used = Use { touch, range: *range };
                match self.memory.lost(*range) {
                    memory::Lost::Nothing => self.access(*range, touch, clock),
                    memory::Lost::Freed(free) => self.collected.freed(free, used),
                    memory::Lost::NeverThere => self.collected.outside(used),
                }
            }
        }
    }

    fn access(&mut self, range: Range, touch: Touch, clock: &Clock) {
        let collected = &mut self.collected;
        self.memory.access(range, touch, |earlier, shared| {
            if !clock.knows(earlier.stamp) {
                collected.race(earlier, Use { touch, range: shared });
            }
        });
    }
}
