//! State of the fake driver, cuBLASLt and NCCL.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::codes::Code;
use super::comms::Comms;
use super::config::Config;
use super::context::current;
use super::descriptors::Descriptors;
use super::loaded::Kernels;
use super::queues::Queues;
use super::snapshots::Snapshots;
use super::space::Space;
use super::task::Moment;
use super::times::Times;
use crate::recording::{
    Access, Call, Effect, EventId, NamedAccesses, Recording, StreamFacts, StreamId, StreamKind,
    Usage,
};
use crate::report::{Counts, DeviceFacts, ProcessReport};

/// The whole state.
pub(super) struct State {
    pub(super) config: Config,
    pub(super) recording: Recording,
    pub(super) counts: Counts,
    pub(super) space: Space,
    pub(super) kernels: Kernels,
    pub(super) comms: Comms,
    pub(super) descriptors: Descriptors,
    pub(super) snapshots: Snapshots,
    pub(super) queues: Queues,
    pub(super) times: Times,
    pub(super) streams: BTreeMap<usize, Stream>,
    pub(super) events: BTreeMap<usize, Event>,
    /// The sticky error, with which all later calls to the driver fail.
    pub(super) broken: Option<Code>,
    num_handles: usize,
}

/// A stream, by its handle.
#[derive(Clone, Copy)]
pub(super) struct Stream {
    pub(super) id: StreamId,
    pub(super) device: u32,
    /// The communicator for whose missing ranks the stream waits without end.
    pub(super) stuck: Option<usize>,
}

/// An event, by its handle.
#[derive(Clone, Copy)]
pub(super) struct Event {
    pub(super) id: EventId,
    /// True where the event records times.
    pub(super) is_timed: bool,
    /// The point that it marks, if it was recorded.
    pub(super) moment: Option<Moment>,
    /// `stuck` of the stream on which it was recorded last.
    pub(super) stuck: Option<usize>,
}

/// Handles of default streams: null, legacy and per-thread.
const DEFAULT_STREAMS: [usize; 3] = [0, 1, 2];

impl State {
    pub(super) fn from_environment() -> Self {
        let config = Config::from_environment();
        let default_stream =
            |device| StreamFacts { device: device as u32, kind: StreamKind::Default };
        let streams = (0..config.devices.len()).map(default_stream).collect();
        Self {
            config,
            recording: Recording { streams, ..Recording::default() },
            counts: Counts::default(),
            space: Space::default(),
            kernels: Kernels::default(),
            comms: Comms::default(),
            descriptors: Descriptors::default(),
            snapshots: Snapshots::default(),
            queues: Queues::default(),
            times: Times::default(),
            streams: BTreeMap::new(),
            events: BTreeMap::new(),
            broken: None,
            num_handles: 0,
        }
    }

    /// A new handle. It is not a valid address.
    pub(super) fn new_handle(&mut self) -> usize {
        const FIRST: usize = 0x5_0000;
        const STEP: usize = 16;
        self.num_handles += 1;
        FIRST + self.num_handles * STEP
    }

    /// The stream of a handle; for a default stream, that of the thread's device.
    pub(super) fn stream(&self, handle: usize) -> Result<Stream, Code> {
        if DEFAULT_STREAMS.contains(&handle) {
            let device = current()?;
            return Ok(Stream { id: StreamId(device), device, stuck: None });
        }
        self.streams.get(&handle).copied().ok_or(Code::INVALID_HANDLE)
    }

    /// Records a call.
    pub(super) fn record(&mut self, effect: Effect) {
        self.times.follow(&effect);
        let thread = threads::current(&mut self.recording.threads);
        self.recording.calls.push(Call { thread, effect });
    }

    /// Records memory accesses of a stream.
    pub(super) fn record_work(&mut self, stream: StreamId, name: &Arc<str>, accesses: Vec<Access>) {
        let parts = vec![NamedAccesses { name: Arc::clone(name), accesses }];
        self.record(Effect::Work { stream, parts });
    }

    /// Counts and records a wait of a thread.
    pub(super) fn see(&mut self, function: &str, effect: Effect) {
        self.check_snapshots();
        *self.counts.host_waits.entry(function.to_owned()).or_default() += 1;
        self.record(effect);
    }

    /// Counts an error of the program.
    pub(super) fn misuse(&mut self, what: String) {
        *self.counts.misuses.entry(what).or_default() += 1;
    }

    /// Records which sources of copies were changed by the host since they were hashed.
    pub(super) fn check_snapshots(&mut self) {
        let space = &self.space;
        for range in self.snapshots.changed(|range| space.holds(range)) {
            let access = Access { range, usage: Usage::Write };
            self.record(Effect::Unseen(NamedAccesses::new("written by the host", vec![access])));
        }
    }

    /// The report on all calls until now.
    pub(super) fn report(&self) -> ProcessReport {
        let devices = self.config.devices.iter().map(|index| DeviceFacts {
            index: *index,
            architecture: self.config.architecture,
            memory_bytes: self.config.memory_bytes,
        });
        let counts = Counts { calls: self.config.failures.counts(), ..self.counts.clone() };
        ProcessReport::new(devices.collect(), counts, &self.recording, self.comms.members())
    }

    /// Writes the report to the configured file, if there is one.
    pub(super) fn write_report(&self) {
        let Some(path) = &self.config.report else { return };
        let text = serde_json::to_string_pretty(&self.report()).expect("a report is plain values");
        // An error cannot be reported any more: the report is just missing.
        let _ = std::fs::write(path, text);
    }
}

mod threads {
    //! Threads by number, in the order of their first calls.

    use std::cell::Cell;

    thread_local! {
        static NUMBER: Cell<Option<u32>> = const { Cell::new(None) };
    }

    /// The number of this thread, whose name is added to those of the others.
    pub(super) fn current(names: &mut Vec<String>) -> u32 {
        NUMBER.get().unwrap_or_else(|| {
            let number = names.len() as u32;
            // The thread may have been started by another copy of the standard library, or without the standard
            // library.
            let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap_or_default();
            names.push(name.trim().to_owned());
            NUMBER.set(Some(number));
            number
        })
    }
}
