//! Timelines as JSON for Perfetto and `chrome://tracing`, written and read.
//!
//! This is also the project's own file format of a timeline: [`read`] returns exactly what [`write()`] was given. Its
//! parts, in the terms of the Trace Event Format:
//!
//! ```text
//! process    pid = index of the track
//! thread     tid = 1 + index of the stream; 8 more for what overlaps events before it
//! ph "M"     names and order of processes and threads, before everything else
//! ph "X"     an event: ts and dur in microseconds, with the decimals that whole nanoseconds need
//! ph "s" "f" a message, from inside its send to inside its receive
//! ph "C"     memory in use
//! otherData  what the format has no place for: title, work and other words, ranks, capacities
//! ```
//!
//! # Source
//!
//! The Trace Event Format of Chrome's trace viewer. Perfetto has one more requirement: slices of one thread either nest
//! or do not overlap, so overlapping actions need threads of their own.

mod read;
mod write;

pub use read::{EventDefect, ReadError, read};
pub use write::write;

use crate::timeline::Stream;

/// Value of `otherData.format` in our files.
const FORMAT: &str = "planner timeline";

/// The version that is written, and the only one that is read.
const VERSION: u64 = 1;

/// Name of the memory counter.
const MEMORY: &str = "memory";

/// The latest time that is read, 104 days: floats in Perfetto and JavaScript hold whole nanoseconds up to here.
const LATEST_NANOS: u64 = 1 << 53;

/// Thread of a stream's events; with a `lane` above 0, of the events that overlap others.
fn thread(stream: Stream, lane: usize) -> u64 {
    (1 + stream as usize + lane * Stream::ALL.len()) as u64
}

/// Stream of a thread's events.
fn stream(thread: u64) -> Option<Stream> {
    let index = thread.checked_sub(1)? % Stream::ALL.len() as u64;
    Stream::ALL.get(index as usize).copied()
}
