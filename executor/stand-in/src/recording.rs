//! Recording of a program's calls to the driver and to NCCL.
//!
//! A recording has no pointers and no times: it can be written by hand, as in the detector's tests.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

/// Calls in the order in which they were made, over all threads of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// Streams by [`StreamId`].
    pub streams: Vec<StreamFacts>,
    /// Names of threads by number, empty for those without one.
    pub threads: Vec<String>,
    /// Calls in order.
    pub calls: Vec<Call>,
}

/// Number of a stream. Numbers of destroyed streams are not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct StreamId(pub u32);

/// Number of an event. Numbers of destroyed events are not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventId(pub u64);

/// Properties of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamFacts {
    /// Device of the stream.
    pub device: u32,
    /// Relation to the device's default stream.
    pub kind: StreamKind,
}

/// Relation of a stream to the default stream of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// The default stream.
    Default,
    /// Implicitly synchronised with the default stream.
    Blocking,
    /// Independent of the default stream.
    NonBlocking,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Number of the calling thread.
    pub thread: u32,
    /// Effect of the call.
    pub effect: Effect,
}

/// Effect of a call on order or memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Allocation, either in stream order, so that the memory exists for later work of the stream, or at once.
    Allocate {
        /// The allocated bytes.
        range: Range,
        /// The stream, if the allocation is in stream order.
        stream: Option<StreamId>,
    },
    /// Free of the memory that was allocated at an address.
    Free {
        /// The first byte.
        start: u64,
        /// The stream, if the free is in stream order.
        stream: Option<StreamId>,
    },
    /// Work on a stream: one kernel or copy, or several calls that NCCL starts as one.
    Work {
        /// The stream.
        stream: StreamId,
        /// The concurrent parts.
        parts: Vec<NamedAccesses>,
    },
    /// Accesses of the calling thread itself to memory that streams use too.
    Host(NamedAccesses),
    /// Accesses of an unknown thread before the call.
    Unseen(NamedAccesses),
    /// Record of an event, which marks all earlier work of the stream.
    Record {
        /// The event.
        event: EventId,
        /// The stream.
        stream: StreamId,
    },
    /// Wait: later work of the stream waits for the event's current mark.
    Wait {
        /// The stream.
        stream: StreamId,
        /// The event.
        event: EventId,
    },
    /// The thread knows that the event was reached: the thread waited for it or queried it.
    SeeEvent(EventId),
    /// The thread knows that the stream is idle.
    SeeStream(StreamId),
    /// The thread knows that all streams of a device are idle.
    SeeDevice(u32),
}

/// A kernel or function with its memory accesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedAccesses {
    /// The kernel, or the function that was called.
    pub name: Arc<str>,
    /// Memory accesses.
    pub accesses: Vec<Access>,
}

/// A memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The accessed bytes.
    pub range: Range,
    /// Read, write or both.
    pub usage: Usage,
}

/// Kind of a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Usage {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Read and write, or unknown.
    ReadWrite,
}

/// The bytes from `start` up to but not including `end`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    /// The first byte.
    pub start: u64,
    /// The byte after the last.
    pub end: u64,
}

impl Recording {
    /// The streams that a stream waits for implicitly, and that implicitly wait for it: a device's default stream and
    /// the device's blocking streams.
    pub fn implicitly_ordered_with(&self, stream: StreamId) -> Vec<StreamId> {
        let Some(own) = self.streams.get(stream.0 as usize) else { return Vec::new() };
        let kind = match own.kind {
            StreamKind::Default => StreamKind::Blocking,
            StreamKind::Blocking => StreamKind::Default,
            StreamKind::NonBlocking => return Vec::new(),
        };
        let others = (0..).map(StreamId).zip(&self.streams);
        others
            .filter(|(_, other)| other.device == own.device && other.kind == kind)
            .map(|(id, _)| id)
            .collect()
    }
}

impl Usage {
    /// The kind of an access that reads, writes, or both; none if neither.
    pub fn new(reads: bool, writes: bool) -> Option<Self> {
        match (reads, writes) {
            (true, true) => Some(Self::ReadWrite),
            (true, false) => Some(Self::Read),
            (false, true) => Some(Self::Write),
            (false, false) => None,
        }
    }

    /// Returns whether the access may change memory.
    pub fn writes(self) -> bool {
        self != Self::Read
    }
}

impl Access {
    /// A read of `len` bytes.
    pub fn read(start: u64, len: u64) -> Self {
        Self { range: Range::new(start, len), usage: Usage::Read }
    }

    /// A write of `len` bytes.
    pub fn write(start: u64, len: u64) -> Self {
        Self { range: Range::new(start, len), usage: Usage::Write }
    }
}

impl NamedAccesses {
    /// Memory accesses with a name.
    pub fn new(name: impl Into<Arc<str>>, accesses: Vec<Access>) -> Self {
        Self { name: name.into(), accesses }
    }
}

impl Range {
    /// `len` bytes from `start` on.
    pub fn new(start: u64, len: u64) -> Self {
        Self { start, end: start.saturating_add(len) }
    }

    /// Returns whether the range has no bytes.
    pub fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// The bytes in both ranges.
    pub fn overlap(self, other: Self) -> Option<Self> {
        let both = Self { start: self.start.max(other.start), end: self.end.min(other.end) };
        (!both.is_empty()).then_some(both)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}..{:#x}", self.start, self.end)
    }
}

impl fmt::Debug for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for Range {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
