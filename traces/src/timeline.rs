//! Timelines: the events of every rank in a step, and its memory over time.

use std::fmt;

use ir::collective::Collective;
use ir::schedule::{Action, ActionKind};
use ir::units::{Bytes, Nanos};

/// All ranks of a step, from time zero on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// Title: model, GPUs, layout, schedule.
    pub title: String,
    /// Work of the step, such as a model's name and the batch; empty where it is not known. Times of steps are compared
    /// if their work is equal.
    pub work: String,
    /// Other options that distinguish the step from those with the same title: batch, precision, recompute; empty where
    /// the title is enough.
    pub setting: String,
    /// Remark on time that the events do not show; empty where there is none.
    pub remark: String,
    /// A track for each rank, or for several ranks that do the same at the same time; in the order of ranks.
    pub tracks: Vec<Track>,
}

/// The [work](Timeline::work) of a step that trains `model` on `sequences` sequences of `tokens` tokens.
pub fn training_step(model: &str, sequences: u64, tokens: u64) -> String {
    format!("{model}, batch {sequences}, sequence {tokens}")
}

/// A rank, or several equal ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Track {
    /// Name, such as `pipeline rank 3`.
    pub name: String,
    /// The first of its ranks.
    pub rank: u32,
    /// Number of ranks that the track represents.
    pub num_ranks: u32,
    /// Events of these ranks, by start. Events on one stream do not overlap, except for the two actions of a
    /// [`ScheduleStep::Overlapped`](ir::schedule::ScheduleStep::Overlapped) on [`Stream::Compute`], and messages that
    /// are pure delays.
    pub events: Vec<Event>,
    /// Memory in use from each time to the next; empty where it is not known.
    pub memory: Vec<MemoryPoint>,
    /// Capacity of the device's memory.
    pub memory_capacity: Option<Bytes>,
}

/// Event of a rank, with a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Start.
    pub start: Nanos,
    /// End, not before the start.
    pub end: Nanos,
    /// Stream on which it runs.
    pub stream: Stream,
    /// Action, collective, copy or wait.
    pub activity: Activity,
    /// Bytes that it moves: the size of a message; the whole buffer of a collective, as in [`Collective`].
    pub bytes: Bytes,
}

impl Event {
    /// Time from its start to its end.
    pub fn duration(&self) -> Nanos {
        self.end - self.start
    }
}

/// Memory in use from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPoint {
    /// Time of the change.
    pub time: Nanos,
    /// Memory in use.
    pub bytes: Bytes,
}

/// A queue of a rank, whose work runs in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stream {
    /// Passes of micro-batches, and optimizer steps.
    Compute,
    /// Tensor-parallel collectives.
    Tensor,
    /// Context-parallel exchanges.
    Context,
    /// Expert-parallel exchanges.
    Expert,
    /// Messages to other pipeline ranks.
    Send,
    /// Messages from other pipeline ranks.
    Receive,
    /// Gathers and reductions over data-parallel ranks.
    Data,
    /// Copies between device and host.
    Host,
}

impl Stream {
    /// All streams, in the order in which they are shown.
    pub const ALL: [Self; 8] = [
        Self::Compute,
        Self::Tensor,
        Self::Context,
        Self::Expert,
        Self::Send,
        Self::Receive,
        Self::Data,
        Self::Host,
    ];

    /// Name in files and pictures.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Tensor => "tensor parallel",
            Self::Context => "context parallel",
            Self::Expert => "expert parallel",
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Data => "data parallel",
            Self::Host => "host",
        }
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Activity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Activity {
    /// An action of the schedule. On [`Stream::Compute`] it lasts from its first kernel to its last, including the
    /// collectives that it waits for.
    Action(Action),
    /// A collective within an action.
    Collective {
        /// The collective operation.
        collective: Collective,
        /// The action that contains it.
        action: Action,
    },
    /// A copy between device and host, on [`Stream::Host`], with at most one in each direction at a time.
    Copy {
        /// Destination: device or host.
        to: CopyDestination,
        /// The action that needs it.
        action: Action,
    },
    /// A wait on [`Stream::Compute`] for the result of this action: a message in transit, or the exchange of gradients.
    Wait(Action),
}

/// Destination of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CopyDestination {
    /// The GPU or other device.
    Device,
    /// The host of the device.
    Host,
}

impl CopyDestination {
    /// Both sides.
    pub const ALL: [Self; 2] = [Self::Device, Self::Host];
}

impl fmt::Display for CopyDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Device => "device",
            Self::Host => "host",
        })
    }
}

impl Activity {
    /// The action that it is or belongs to.
    pub const fn action(self) -> Action {
        match self {
            Self::Action(action)
            | Self::Collective { action, .. }
            | Self::Copy { action, .. }
            | Self::Wait(action) => action,
        }
    }

    /// Kind of the action, if it is a whole action.
    pub const fn kind(self) -> Option<ActionKind> {
        match self {
            Self::Action(action) => Some(action.kind),
            Self::Collective { .. } | Self::Copy { .. } | Self::Wait(_) => None,
        }
    }
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Action(action) => action.fmt(f),
            Self::Collective { collective, action } => write!(f, "{collective} in {action}"),
            Self::Copy { to, action } => write!(f, "copy to the {to} for {action}"),
            Self::Wait(action) => write!(f, "wait for {action}"),
        }
    }
}

impl Timeline {
    /// End of the last event.
    pub fn end(&self) -> Nanos {
        let ends = self.tracks.iter().flat_map(|track| &track.events).map(|event| event.end);
        ends.max().unwrap_or(Nanos::ZERO)
    }

    /// Share of time, from zero to the end and over all ranks, with neither passes of micro-batches nor optimizer steps
    /// nor waits for exchanges.
    pub fn bubble_fraction(&self) -> f64 {
        let ranks: u64 = self.tracks.iter().map(|track| u64::from(track.num_ranks)).sum();
        let busy: f64 = self
            .tracks
            .iter()
            .map(|track| track.busy().as_f64() * f64::from(track.num_ranks))
            .sum();
        let all = self.end().as_f64() * ranks as f64;
        if all == 0.0 { 0.0 } else { 1.0 - busy / all }
    }
}

impl Track {
    /// Time with at least one event on the compute stream.
    pub fn busy(&self) -> Nanos {
        let mut busy = Nanos::ZERO;
        let mut until = Nanos::ZERO;
        for event in self.events.iter().filter(|event| event.stream == Stream::Compute) {
            busy += event.end.saturating_sub(event.start.max(until));
            until = until.max(event.end);
        }
        busy
    }

    /// Peak of memory in use, if it is known.
    pub fn peak_memory(&self) -> Option<Bytes> {
        self.memory.iter().map(|point| point.bytes).max()
    }
}
