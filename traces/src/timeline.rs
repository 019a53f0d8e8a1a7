//! Timelines: the events of every rank in a step, and its memory.

use std::fmt;

use ir::collective::Collective;
use ir::schedule::{Action, ActionKind};
use ir::units::{Bytes, Nanos};

/// The ranks of a step side by side, from time zero on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// Title: model, GPUs, layout, schedule.
    pub title: String,
    /// Work of the step, such as a model's name and the batch; empty where that is not known. Times of
    /// steps are compared where it is the same.
    pub work: String,
    /// Other choices that tell the step from those of the same title: batch, precision, recompute; empty
    /// where the title says all.
    pub setting: String,
    /// Remark on time that the events do not tell apart; empty where there is none.
    pub remark: String,
    /// A track for each rank, or one for several that do the same at the same time; in the order of
    /// ranks.
    pub tracks: Vec<Track>,
}

/// The [work](Timeline::work) of a step that trains `model` on so many sequences of so many tokens.
pub fn training_step(model: &str, sequences: u64, tokens: u64) -> String {
    format!("{model}, batch {sequences}, sequence {tokens}")
}

/// A rank, or several that are alike.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Track {
    /// Name, such as `pipeline rank 3`.
    pub name: String,
    /// The first of its ranks.
    pub rank: u32,
    /// Number of ranks that it stands for.
    pub num_ranks: u32,
    /// Events of these ranks, by start. On one stream nothing overlaps, but for the two actions of a
    /// [`Step::Overlapped`](ir::schedule::Step::Overlapped) on [`Stream::Compute`], and messages that
    /// are a mere delay.
    pub events: Vec<Event>,
    /// Memory in use from a moment on, to the next; by time, empty where it is not known.
    pub memory: Vec<MemoryPoint>,
    /// Capacity of memory.
    pub memory_capacity: Option<Bytes>,
}

/// Event of a rank: something that takes time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it starts.
    pub start: Nanos,
    /// When it has ended, not before its start.
    pub end: Nanos,
    /// Where it runs.
    pub stream: Stream,
    /// Action, collective, copy or wait.
    pub activity: Activity,
    /// Bytes that it moves: of a message, its size; of a collective, the whole buffer
    /// as [`Collective`] has it.
    pub bytes: Bytes,
}

impl Event {
    /// Time from its start to its end.
    pub fn duration(&self) -> Nanos {
        self.end - self.start
    }
}

/// Memory in use from a moment on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPoint {
    /// The moment.
    pub time: Nanos,
    /// Memory in use.
    pub bytes: Bytes,
}

/// A queue of a rank, whose work is done one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stream {
    /// Passes of micro-batches, optimizer steps.
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
    /// Gathering and reduction over data-parallel ranks.
    Data,
    /// Copies between device and host.
    Host,
}

impl Stream {
    /// All of them, in the order in which they are shown.
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

    /// Its name in files and pictures.
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
    /// An action of the schedule. On [`Stream::Compute`] it lasts from its first kernel to its last,
    /// the collectives that it waits for included.
    Action(Action),
    /// A collective that an action contains.
    Collective {
        /// Which.
        collective: Collective,
        /// In which action.
        action: Action,
    },
    /// A copy between the device and its host, on [`Stream::Host`], where one each way may be under way.
    Copy {
        /// To which of the two.
        to: Side,
        /// For which action.
        action: Action,
    },
    /// Nothing, on [`Stream::Compute`], as the rank waits for what this action brings: a message on its
    /// way, or the exchange of gradients.
    Wait(Action),
}

/// End of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The device.
    Device,
    /// Its host.
    Host,
}

impl Side {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Device, Self::Host];
}

impl fmt::Display for Side {
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

    /// Its kind, if it is an action and no part of one.
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
    /// When everything has ended.
    pub fn end(&self) -> Nanos {
        let ends = self.tracks.iter().flat_map(|track| &track.events).map(|event| event.end);
        ends.max().unwrap_or(Nanos::ZERO)
    }

    /// The share of time, from zero to the end and over all ranks, in which no pass of a micro-batch
    /// and no optimizer step runs, nor any exchange is waited for.
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
    /// Time in which at least one event is on its compute stream.
    pub fn busy(&self) -> Nanos {
        let mut busy = Nanos::ZERO;
        let mut until = Nanos::ZERO;
        for event in self.events.iter().filter(|event| event.stream == Stream::Compute) {
            busy += event.end.saturating_sub(event.start.max(until));
            until = until.max(event.end);
        }
        busy
    }

    /// The most memory in use at any moment, if it is known.
    pub fn peak_memory(&self) -> Option<Bytes> {
        self.memory.iter().map(|point| point.bytes).max()
    }
}
