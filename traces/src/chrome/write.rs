//! Writes timelines as JSON.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use ir::schedule::{Action, ActionKind};
use ir::units::Nanos;
use serde_json::Value;

use super::{FORMAT, MEMORY, VERSION, stream, thread};
use crate::class::Class;
use crate::lanes::lanes;
use crate::timeline::{Activity, Event, Stream, Timeline, Track};

/// The timeline as JSON text, one event per line; see the [module](super) for its parts.
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
    let threads: Vec<Vec<u64>> = timeline.tracks.iter().map(threads).collect();
    // Names come before all events: Perfetto assigns a name to the thread that last occurred with that number.
    let tracks = timeline.tracks.iter().enumerate();
    let mut lines: Vec<String> =
        tracks.clone().flat_map(|(pid, track)| names(pid, track, &threads[pid])).collect();
    let mut arrivals = Arrivals::new(timeline, &threads);
    for (pid, track) in tracks {
        for (event, tid) in track.events.iter().zip(&threads[pid]) {
            lines.push(event_line(pid, *tid, event));
            if let Some(flow) = arrivals.of_send(event) {
                lines.extend(flow_lines((pid, *tid), event, &flow));
            }
        }
        lines.extend(track.memory.iter().map(|point| {
            let (time, bytes) = (Micros(point.time), point.bytes.get());
            format!(
                r#"{{"ph":"C","pid":{pid},"tid":1,"ts":{time},"name":"{MEMORY}","args":{{"bytes":{bytes}}}}}"#
            )
        }));
    }
    format!(
        "{{\"displayTimeUnit\":\"ms\",\n\"otherData\":{},\n\"traceEvents\":[{}\n]}}\n",
        other_data(timeline),
        on_lines(&lines)
    )
}

/// Members of a list, one per line.
fn on_lines(members: &[String]) -> String {
    if members.is_empty() { String::new() } else { format!("\n{}", members.join(",\n")) }
}

/// Metadata of a timeline that events cannot hold.
fn other_data(timeline: &Timeline) -> String {
    let Timeline { title, work, setting, remark, tracks } = timeline;
    let words = [("work", work), ("setting", setting), ("remark", remark)];
    let words = words.into_iter().filter(|(_, text)| !text.is_empty());
    let words = words.map(|(name, text)| format!(r#""{name}":{},"#, quoted(text)));
    let words = words.collect::<Vec<_>>().concat();
    let track = |track: &Track| {
        let Track { name, rank, num_ranks, memory_capacity, .. } = track;
        let capacity =
            memory_capacity.map(|bytes| format!(r#","memory_capacity_bytes":{}"#, bytes.get()));
        let (name, capacity) = (quoted(name), capacity.unwrap_or_default());
        format!(r#"{{"name":{name},"rank":{rank},"num_ranks":{num_ranks}{capacity}}}"#)
    };
    let (title, tracks) = (quoted(title), on_lines(&tracks.iter().map(track).collect::<Vec<_>>()));
    format!(
        r#"{{"format":"{FORMAT}","version":{VERSION},"title":{title},{words}"tracks":[{tracks}]}}"#
    )
}

/// Names and order of a process and of the threads that it uses.
fn names(pid: usize, track: &Track, threads: &[u64]) -> Vec<String> {
    let line = |tid: u64, what: &str, args: &str| {
        format!(r#"{{"ph":"M","pid":{pid},"tid":{tid},"name":"{what}","args":{{{args}}}}}"#)
    };
    let mut lines = vec![
        line(1, "process_name", &format!(r#""name":{}"#, quoted(&track.name))),
        line(1, "process_sort_index", &format!(r#""sort_index":{pid}"#)),
    ];
    let compute = thread(Stream::Compute, 0);
    let used: BTreeSet<u64> = threads.iter().copied().chain([compute]).collect();
    let used = used.into_iter().filter_map(|tid| Some((stream(tid)?, tid)));
    // Ordered by stream first, so that overlapping events are below those that they overlap.
    let used: BTreeSet<(Stream, u64)> = used.collect();
    for (order, (stream, tid)) in used.into_iter().enumerate() {
        let suffix = if tid == thread(stream, 0) { "" } else { ", overlapped" };
        lines.push(line(tid, "thread_name", &format!(r#""name":"{stream}{suffix}""#)));
        lines.push(line(tid, "thread_sort_index", &format!(r#""sort_index":{order}"#)));
    }
    lines
}

fn event_line(pid: usize, tid: u64, event: &Event) -> String {
    let Event { activity, bytes, .. } = event;
    let (start, duration) = (Micros(event.start), Micros(event.duration()));
    let (category, action) = (Class::of(event).name(), activity.action());
    let micro_batch = if action.kind.has_micro_batch() {
        format!(r#","micro_batch":{}"#, action.micro_batch)
    } else {
        String::new()
    };
    format!(
        r#"{{"ph":"X","pid":{pid},"tid":{tid},"ts":{start},"dur":{duration},"name":"{activity}","cat":"{category}","args":{{"stage":{}{micro_batch},"bytes":{}}}}}"#,
        action.stage,
        bytes.get()
    )
}

/// Arrow from a send to its receive. Both ends are inside their slices, to which viewers bind them.
fn flow_lines((pid, tid): (usize, u64), send: &Event, flow: &Flow) -> [String; 2] {
    let name = match send.activity.action().kind {
        ActionKind::SendForward => "activation",
        _ => "gradient",
    };
    let Flow { id, arrival } = flow;
    let (leaves, arrives) = (Micros(send.start), Micros(send.start.max(arrival.start)));
    let (to_pid, to_tid) = (arrival.pid, arrival.tid);
    [
        format!(
            r#"{{"ph":"s","id":{id},"pid":{pid},"tid":{tid},"ts":{leaves},"name":"{name}","cat":"message"}}"#
        ),
        format!(
            r#"{{"ph":"f","bp":"e","id":{id},"pid":{to_pid},"tid":{to_tid},"ts":{arrives},"name":"{name}","cat":"message"}}"#
        ),
    ]
}

/// The thread of each event of a track.
fn threads(track: &Track) -> Vec<u64> {
    let lanes = lanes(track).into_iter();
    track.events.iter().zip(lanes).map(|(event, lane)| thread(event.stream, lane)).collect()
}

/// Receives without a matching send so far.
struct Arrivals {
    waiting: BTreeMap<Action, VecDeque<Arrival>>,
    num_flows: u64,
}

/// Position and time of a receive.
struct Arrival {
    pid: usize,
    tid: u64,
    start: Nanos,
    end: Nanos,
}

/// A message with both ends in the timeline.
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

    /// The message that `event` sends; `None` if it sends nothing, or if the message would arrive before it leaves.
    fn of_send(&mut self, event: &Event) -> Option<Flow> {
        let Activity::Action(send) = event.activity else { return None };
        let receive = send.partner().filter(|_| send.kind.is_send())?;
        let arrival = self.waiting.get_mut(&receive)?.pop_front()?;
        if arrival.end < event.start {
            return None;
        }
        self.num_flows += 1;
        Some(Flow { id: self.num_flows, arrival })
    }
}

/// Displays a time in microseconds, with as many decimals as its nanoseconds need.
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

/// A text as a JSON string.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
