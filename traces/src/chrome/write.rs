//! From a timeline to JSON.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::{self, Write};

use ir::schedule::{Action, ActionKind};
use ir::units::Nanos;
use serde_json::Value;

use super::{FORMAT, MEMORY, VERSION, stream, thread};
use crate::class::Class;
use crate::lanes::lanes;
use crate::timeline::{Activity, Event, Stream, Timeline, Track};

/// The timeline as a JSON text, an event a line; see the [module](super) for its parts.
///
/// Times beyond 2^53 nanoseconds are written, but not read back.
///
/// ```
/// use traces::chrome::{read, write};
/// use traces::timeline::Timeline;
///
/// let timeline = Timeline { title: "an idle step".to_owned(), ..Timeline::default() };
/// assert_eq!(read(&write(&timeline))?, timeline);
/// # Ok::<(), traces::chrome::ReadError>(())
/// ```
pub fn write(timeline: &Timeline) -> String {
    let mut text = String::new();
    write_trace(&mut text, timeline).expect("a string takes all that is written");
    text
}

fn write_trace(out: &mut String, timeline: &Timeline) -> fmt::Result {
    out.push_str("{\"displayTimeUnit\":\"ms\",\n\"otherData\":");
    write_other_data(out, timeline)?;
    out.push_str(",\n\"traceEvents\":[");
    let threads: Vec<Vec<u64>> = timeline.tracks.iter().map(threads).collect();
    let mut lines = Lines { out, is_first: true };
    // Names come before all events: Perfetto gives a name to the thread of that number that it has
    // met last.
    for (pid, track) in timeline.tracks.iter().enumerate() {
        write_names(&mut lines, pid, track, &threads[pid])?;
    }
    let mut arrivals = Arrivals::new(timeline, &threads);
    for (pid, track) in timeline.tracks.iter().enumerate() {
        for (event, tid) in track.events.iter().zip(&threads[pid]) {
            write_event(&mut lines, pid, *tid, event)?;
            if let Some(flow) = arrivals.of_send(event) {
                write_flow(&mut lines, (pid, *tid), event, &flow)?;
            }
        }
        for point in &track.memory {
            let (time, bytes) = (Micros(point.time), point.bytes.get());
            write!(
                lines.next(),
                r#"{{"ph":"C","pid":{pid},"tid":1,"ts":{time},"name":"{MEMORY}","args":{{"bytes":{bytes}}}}}"#
            )?;
        }
    }
    lines.out.push_str("\n]}\n");
    Ok(())
}

/// What the events of a trace cannot say.
fn write_other_data(out: &mut String, timeline: &Timeline) -> fmt::Result {
    let title = Quoted(&timeline.title);
    write!(out, r#"{{"format":"{FORMAT}","version":{VERSION},"title":{title},"#)?;
    let Timeline { work, setting, remark, .. } = timeline;
    for (name, text) in [("work", work), ("setting", setting), ("remark", remark)] {
        if !text.is_empty() {
            write!(out, r#""{name}":{},"#, Quoted(text))?;
        }
    }
    out.push_str("\"tracks\":[");
    for (index, track) in timeline.tracks.iter().enumerate() {
        let Track { name, rank, num_ranks, .. } = track;
        out.push_str(if index == 0 { "\n" } else { ",\n" });
        let name = Quoted(name);
        write!(out, r#"{{"name":{name},"rank":{rank},"num_ranks":{num_ranks}"#)?;
        if let Some(capacity) = track.memory_capacity {
            write!(out, r#","memory_capacity_bytes":{}"#, capacity.get())?;
        }
        out.push('}');
    }
    out.push_str("]}");
    Ok(())
}

/// Names of a process and of the threads that it uses, and their order.
fn write_names(lines: &mut Lines, pid: usize, track: &Track, threads: &[u64]) -> fmt::Result {
    let name = Quoted(&track.name);
    let mut metadata = |tid: u64, what: &str, args: fmt::Arguments| {
        write!(
            lines.next(),
            r#"{{"ph":"M","pid":{pid},"tid":{tid},"name":"{what}","args":{{{args}}}}}"#
        )
    };
    metadata(1, "process_name", format_args!(r#""name":{name}"#))?;
    metadata(1, "process_sort_index", format_args!(r#""sort_index":{pid}"#))?;
    let compute = thread(Stream::Compute, 0);
    let used: BTreeSet<u64> = threads.iter().copied().chain([compute]).collect();
    let used = used.into_iter().filter_map(|tid| Some((stream(tid)?, tid)));
    // By stream first, so that what overlaps stands below what it overlaps.
    let used: BTreeSet<(Stream, u64)> = used.collect();
    for (order, (stream, tid)) in used.into_iter().enumerate() {
        let suffix = if tid == thread(stream, 0) { "" } else { ", overlapped" };
        metadata(tid, "thread_name", format_args!(r#""name":"{stream}{suffix}""#))?;
        metadata(tid, "thread_sort_index", format_args!(r#""sort_index":{order}"#))?;
    }
    Ok(())
}

fn write_event(lines: &mut Lines, pid: usize, tid: u64, event: &Event) -> fmt::Result {
    let Event { activity, bytes, .. } = event;
    let (start, duration) = (Micros(event.start), Micros(event.duration()));
    let category = Class::of(event).name();
    write!(
        lines.next(),
        r#"{{"ph":"X","pid":{pid},"tid":{tid},"ts":{start},"dur":{duration},"name":"{activity}","cat":"{category}","args":{{"stage":{}"#,
        activity.action().stage
    )?;
    if activity.action().kind.has_micro_batch() {
        write!(lines.out, r#","micro_batch":{}"#, activity.action().micro_batch)?;
    }
    write!(lines.out, r#","bytes":{}}}}}"#, bytes.get())
}

/// An arrow from a send to its receive. Both ends lie inside their slices, to which viewers bind
/// them.
fn write_flow(
    lines: &mut Lines,
    (pid, tid): (usize, u64),
    send: &Event,
    flow: &Flow,
) -> fmt::Result {
    let name = match send.activity.action().kind {
        ActionKind::SendForward => "activation",
        _ => "gradient",
    };
    let Flow { id, arrival } = flow;
    let (leaves, arrives) = (Micros(send.start), Micros(send.start.max(arrival.start)));
    write!(
        lines.next(),
        r#"{{"ph":"s","id":{id},"pid":{pid},"tid":{tid},"ts":{leaves},"name":"{name}","cat":"message"}}"#
    )?;
    let (pid, tid) = (arrival.pid, arrival.tid);
    write!(
        lines.next(),
        r#"{{"ph":"f","bp":"e","id":{id},"pid":{pid},"tid":{tid},"ts":{arrives},"name":"{name}","cat":"message"}}"#
    )
}

/// The thread of each event of a track.
fn threads(track: &Track) -> Vec<u64> {
    let lanes = lanes(track).into_iter();
    track.events.iter().zip(lanes).map(|(event, lane)| thread(event.stream, lane)).collect()
}

/// The receives that no send has been found for yet.
struct Arrivals {
    waiting: BTreeMap<Action, VecDeque<Arrival>>,
    num_flows: u64,
}

/// Where and when a receive is.
struct Arrival {
    pid: usize,
    tid: u64,
    start: Nanos,
    end: Nanos,
}

/// A message whose both ends are in the timeline.
struct Flow {
    id: u64,
    arrival: Arrival,
}

impl Arrivals {
    fn new(timeline: &Timeline, threads: &[Vec<u64>]) -> Self {
        let mut waiting: BTreeMap<Action, VecDeque<Arrival>> = BTreeMap::new();
        for (pid, track) in timeline.tracks.iter().enumerate() {
            for (event, tid) in track.events.iter().zip(&threads[pid]) {
                if let Activity::Action(action) = event.activity
                    && action.kind.is_message()
                    && !action.kind.is_send()
                {
                    let arrival = Arrival { pid, tid: *tid, start: event.start, end: event.end };
                    waiting.entry(action).or_default().push_back(arrival);
                }
            }
        }
        Self { waiting, num_flows: 0 }
    }

    /// The message that `event` sends; none if it sends nothing, or if what it sends ends to arrive
    /// before it leaves.
    fn of_send(&mut self, event: &Event) -> Option<Flow> {
        let Activity::Action(send) = event.activity else { return None };
        let receive = match send.kind {
            ActionKind::SendForward => {
                Action { stage: send.stage.checked_add(1)?, kind: ActionKind::RecvForward, ..send }
            }
            ActionKind::SendBackward => {
                Action { stage: send.stage.checked_sub(1)?, kind: ActionKind::RecvBackward, ..send }
            }
            _ => return None,
        };
        let arrival = self.waiting.get_mut(&receive)?.pop_front()?;
        if arrival.end < event.start {
            return None;
        }
        self.num_flows += 1;
        Some(Flow { id: self.num_flows, arrival })
    }
}

/// The list of events, which starts a line for each.
struct Lines<'a> {
    out: &'a mut String,
    is_first: bool,
}

impl Lines<'_> {
    fn next(&mut self) -> &mut String {
        self.out.push_str(if self.is_first { "\n" } else { ",\n" });
        self.is_first = false;
        self.out
    }
}

/// Prints a time in microseconds, with as many decimals as its nanoseconds need.
struct Micros(Nanos);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0.get() / 1000, self.0.get() % 1000);
        match rest {
            0 => write!(f, "{whole}"),
            _ if rest % 100 == 0 => write!(f, "{whole}.{}", rest / 100),
            _ if rest % 10 == 0 => write!(f, "{whole}.{:02}", rest / 10),
            _ => write!(f, "{whole}.{rest:03}"),
        }
    }
}

/// Prints a text as a JSON string.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Value::from(self.0).fmt(f)
    }
}
