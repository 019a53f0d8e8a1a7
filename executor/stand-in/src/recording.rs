//! What a program asked of the driver and of NCCL, call by call.
//!
//! A recording has no pointers to anything and no time: it can be written down by hand, which is
//! how the detector is tested.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

/// Calls in the order in which they were made, over all threads of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// By [`StreamId`].
    pub streams: Vec<StreamFacts>,
    /// By number, with the names of those that have one.
    pub threads: Vec<String>,
    /// What was called.
    pub calls: Vec<Call>,
}

/// Which stream. Numbers of streams that were destroyed are not given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct StreamId(pub u32);

/// Which event. Numbers of events that were destroyed are not given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventId(pub u64);

/// What a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamFacts {
    /// The device that it is of.
    pub device: u32,
    /// How it stands to the device's default stream.
    pub kind: StreamKind,
}

/// How a stream stands to the default stream of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// It is the default stream.
    Default,
    /// What is on it and what is on the default stream wait for each other.
    Blocking,
    /// It has nothing to do with the default stream.
    NonBlocking,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The thread that made it, by number.
    pub thread: u32,
    /// What it does.
    pub action: Action,
}

/// What a call does to the order of things, or to memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Memory comes into being: on a stream, so that it is there for what is after that; or at
    /// once.
    Allocate {
        /// Where it lies.
        range: Range,
        /// The stream, if it is in the order of one.
        stream: Option<StreamId>,
    },
    /// Memory that was allocated at an address ends.
    Free {
        /// The first byte.
        start: u64,
        /// In the order of a stream, or when the call is made.
        stream: Option<StreamId>,
    },
    /// A stream is given something to do: one kernel or copy, or several that NCCL starts as one.
    Work {
        /// The stream.
        stream: StreamId,
        /// What goes on at once.
        parts: Vec<Part>,
    },
    /// The thread itself uses memory that streams use too.
    Host(Part),
    /// A thread of which is not known which it is has used memory before the call.
    Unseen(Part),
    /// An event stands for all that the stream was given before.
    Record {
        /// The event.
        event: EventId,
        /// The stream.
        stream: StreamId,
    },
    /// What the stream is given after this waits for what the event stands for now.
    Wait {
        /// The stream.
        stream: StreamId,
        /// The event.
        event: EventId,
    },
    /// The thread has seen that the event came: it waited for it, or asked and was told so.
    SeeEvent(EventId),
    /// The thread has seen that the stream has nothing to do.
    SeeStream(StreamId),
    /// The thread has seen that no stream of a device has anything to do.
    SeeDevice(u32),
}

/// Something that uses memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The kernel, or the function that was called.
    pub name: Arc<str>,
    /// What it uses.
    pub accesses: Vec<Access>,
}

/// A use of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Where.
    pub range: Range,
    /// To what end.
    pub usage: Usage,
}

/// What is done with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Usage {
    /// It is read.
    Read,
    /// It is written.
    Write,
    /// It is read and written, or nobody knows which.
    ReadWrite,
}

/// The bytes from `start` on, up to but not with `end`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    /// The first byte.
    pub start: u64,
    /// The byte after the last.
    pub end: u64,
}

impl Usage {
    /// What a use is that reads, writes, or both; none that does neither.
    pub fn new(reads: bool, writes: bool) -> Option<Self> {
        match (reads, writes) {
            (true, true) => Some(Self::ReadWrite),
            (true, false) => Some(Self::Read),
            (false, true) => Some(Self::Write),
            (false, false) => None,
        }
    }

    /// Whether memory may be other after it.
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

impl Part {
    /// A use of memory by something of a name.
    pub fn new(name: impl Into<Arc<str>>, accesses: Vec<Access>) -> Self {
        Self { name: name.into(), accesses }
    }
}

impl Range {
    /// `len` bytes from `start` on.
    pub fn new(start: u64, len: u64) -> Self {
        Self { start, end: start.saturating_add(len) }
    }

    /// Whether there is no byte in it.
    pub fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// The bytes that are in both.
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
