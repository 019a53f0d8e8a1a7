//! Times of a rank's events, for the timeline of a step.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use executor_kernels::clock::{DeviceClock, Point, Spans, now};
use executor_kernels::lock::lock;
use ir::units::{Bytes, Nanos};
use traces::timeline::{Activity, Event, MemoryPoint, Stream, Track};

/// Records the start and end of a step's events, from all threads of a rank.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// None while nothing is recorded.
    zero: Mutex<Option<Zero>>,
    events: Mutex<Vec<Recorded>>,
    memory: Mutex<Vec<(Moment, Bytes)>>,
}

/// Time zero of a step.
#[derive(Clone, Debug)]
struct Zero {
    host: Instant,
    /// Time zero of a device with its own clock.
    device: Option<(Arc<dyn DeviceClock>, Point)>,
}

/// A time of the host's clock, or a point on a device's.
#[derive(Clone, Debug)]
enum Moment {
    Host(Nanos),
    Device(Point),
}

#[derive(Debug)]
struct Recorded {
    /// By the host's clock.
    start: Nanos,
    end: Nanos,
    /// Spans of the device's work, where the device has its own clock.
    spans: Spans,
    stream: Stream,
    activity: Activity,
    bytes: Bytes,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self { zero: Mutex::new(None), events: Mutex::default(), memory: Mutex::default() }
    }

    /// Starts recording, at time zero. The device must be idle; `clock` is given if it has its own clock.
    pub(crate) fn start(&self, clock: Option<Arc<dyn DeviceClock>>) -> Result<(), String> {
        let device = clock.map(|clock| clock.point().map(|point| (clock, point))).transpose()?;
        *lock(&self.zero) = Some(Zero { host: now(), device });
        Ok(())
    }

    /// Stops recording, and returns the events as the track of `rank`. Waits for the device.
    pub(crate) fn finish(&self, rank: u32, name: String) -> Result<Track, String> {
        let zero = lock(&self.zero).take();
        let recorded = std::mem::take(&mut *lock(&self.events));
        let memory = std::mem::take(&mut *lock(&self.memory));
        let Some(zero) = zero else {
            return Ok(Track { name, rank, num_ranks: 1, ..Track::default() });
        };
        let events = recorded.into_iter().map(|it| it.event(&zero));
        let mut events = events.collect::<Result<Vec<_>, _>>()?;
        events.sort_by_key(|event| (event.start, event.end));
        let memory = memory.into_iter();
        let memory = memory.map(|(at, bytes)| Ok(MemoryPoint { time: zero.time(&at)?, bytes }));
        let memory = memory.collect::<Result<Vec<_>, String>>()?;
        Ok(Track { name, rank, num_ranks: 1, events, memory, memory_capacity: None })
    }

    /// Runs `run`, and records it if recording is on.
    pub(crate) fn record<T>(
        &self,
        stream: Stream,
        activity: Activity,
        bytes: u64,
        run: impl FnOnce() -> T,
    ) -> T {
        let Some(zero) = lock(&self.zero).clone() else { return run() };
        let spans = Spans::default();
        let start = zero.elapsed();
        let result = match &zero.device {
            Some((clock, _)) if stream == Stream::Compute => {
                // An error of the driver here is reported by its next call.
                let begin = clock.point();
                let result = run();
                if let (Ok(begin), Ok(end)) = (begin, clock.point()) {
                    spans.add(begin, end);
                }
                result
            }
            Some(_) => spans.note(run),
            None => run(),
        };
        let (end, bytes) = (zero.elapsed(), Bytes::new(bytes));
        lock(&self.events).push(Recorded { start, end, spans, stream, activity, bytes });
        result
    }

    /// Records the memory in use from now on, in bytes.
    pub(crate) fn memory(&self, bytes: u64) {
        if let Some(zero) = lock(&self.zero).clone() {
            let of_device = zero.device.as_ref().and_then(|(clock, _)| clock.point().ok());
            let at = of_device.map_or_else(|| Moment::Host(zero.elapsed()), Moment::Device);
            lock(&self.memory).push((at, Bytes::new(bytes)));
        }
    }
}

impl Zero {
    fn elapsed(&self) -> Nanos {
        Nanos::new(u64::try_from(self.host.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn time(&self, moment: &Moment) -> Result<Nanos, String> {
        match (moment, &self.device) {
            (Moment::Host(time), _) => Ok(*time),
            (Moment::Device(point), Some((clock, zero))) => clock.between(zero, point),
            (Moment::Device(_), None) => unreachable!("points are a clock's"),
        }
    }
}

impl Recorded {
    /// The event, from the start of the device's first span to the end of its last; if there are no spans, by the
    /// host's clock.
    fn event(self, zero: &Zero) -> Result<Event, String> {
        let Self { start, end, spans, stream, activity, bytes } = self;
        let mut within: Option<[Nanos; 2]> = None;
        for [begin, end] in spans.all() {
            let [begin, end] =
                [zero.time(&Moment::Device(begin))?, zero.time(&Moment::Device(end))?];
            let [first, last] = within.unwrap_or([begin, end]);
            within = Some([first.min(begin), last.max(end)]);
        }
        let [start, end] = within.unwrap_or([start, end]);
        Ok(Event { start, end: end.max(start), stream, activity, bytes })
    }
}
