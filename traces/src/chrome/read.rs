//! Reads timelines from JSON.

use std::borrow::Cow;
use std::num::IntErrorKind;

use ir::collective::Collective;
use ir::units::{Bytes, Nanos};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{FORMAT, LATEST_NANOS, MEMORY, VERSION, stream};
use crate::timeline::{Activity, CopyDestination, Event, MemoryPoint, Timeline, Track};

/// Reason why a text is not a timeline.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Not JSON, or not of the form of a timeline.
    #[error("not a timeline")]
    Json(#[source] serde_json::Error),
    /// Possibly a trace, but not a timeline of this program.
    #[error(
        "not a timeline of this program: `otherData.format` is {found}, not \"{FORMAT}\"; only traces that this program wrote can be read"
    )]
    Foreign {
        /// Value found instead.
        found: String,
    },
    /// A file of another version.
    #[error("`otherData.version` is {version}; this program reads version {VERSION}")]
    Version {
        /// The version of the file.
        version: String,
    },
    /// An invalid event.
    #[error("`traceEvents[{index}]`: {defect}")]
    Event {
        /// Index in the list, from 0.
        index: usize,
        /// Defect of the event.
        defect: EventDefect,
    },
}

/// Defect of an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EventDefect {
    /// A missing field.
    #[error("`{field}` is missing")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// A word that this program does not write.
    #[error("`{field}` is `{word}`, which is not known here")]
    UnknownWord {
        /// The field.
        field: &'static str,
        /// The word.
        word: String,
    },
    /// A process without a track.
    #[error("`pid` is {pid}, but there are {num_tracks} tracks")]
    NoSuchTrack {
        /// The process.
        pid: u64,
        /// Number of tracks in the file.
        num_tracks: usize,
    },
    /// A thread that belongs to no stream.
    #[error("`tid` is {tid}, which is no stream")]
    NoSuchStream {
        /// The thread.
        tid: u64,
    },
    /// A time that is not a whole number of nanoseconds from 0 on.
    #[error("`{field}` is {text}, but must be microseconds from 0 on with at most three decimals")]
    Time {
        /// The field.
        field: &'static str,
        /// Text of the field.
        text: String,
    },
    /// A time beyond the latest.
    #[error("`{field}` is {text}, which ends after {} microseconds, the latest time", LATEST_NANOS / 1000)]
    TooLate {
        /// The field.
        field: &'static str,
        /// Text of the field.
        text: String,
    },
    /// An event earlier than the one before it on its track.
    #[error("`ts` is earlier than that of its track before it")]
    OutOfOrder,
}

/// Reads a timeline written by [`write`](super::write()).
///
/// # Errors
///
/// A text that is not a timeline of ours, with the place of the error: line and column, or the number of the event.
/// Tracks must be in order of time.
pub fn read(text: &str) -> Result<Timeline, ReadError> {
    let other = other_data(text)?;
    let OtherData { title, work, setting, remark, tracks } = other;
    let mut timeline = Timeline { title, work, setting, remark, tracks: Vec::new() };
    timeline.tracks.extend(tracks.into_iter().map(|track| Track {
        name: track.name,
        rank: track.rank,
        num_ranks: track.num_ranks,
        memory_capacity: track.memory_capacity_bytes.map(Bytes::new),
        ..Track::default()
    }));
    let Events { trace_events } = serde_json::from_str(text).map_err(ReadError::Json)?;
    for (index, event) in trace_events.iter().enumerate() {
        read_event(&mut timeline.tracks, event)
            .map_err(|defect| ReadError::Event { index, defect })?;
    }
    Ok(timeline)
}

/// A file without its events.
#[derive(Deserialize)]
struct Envelope<T> {
    #[serde(rename = "otherData")]
    other_data: Option<T>,
}

/// The events of a file; parsed from the whole text, so that errors count lines from its start.
#[derive(Deserialize)]
struct Events<'a> {
    #[serde(borrow, rename = "traceEvents")]
    trace_events: Vec<RawEvent<'a>>,
}

#[derive(Deserialize)]
struct OtherData {
    title: String,
    #[serde(default)]
    work: String,
    #[serde(default)]
    setting: String,
    #[serde(default)]
    remark: String,
    tracks: Vec<RawTrack>,
}

#[derive(Deserialize)]
struct RawTrack {
    name: String,
    rank: u32,
    num_ranks: u32,
    memory_capacity_bytes: Option<u64>,
}

#[derive(Deserialize)]
struct RawEvent<'a> {
    #[serde(borrow)]
    ph: Cow<'a, str>,
    pid: Option<u64>,
    tid: Option<u64>,
    /// The raw text, since floats do not hold whole nanoseconds.
    #[serde(borrow)]
    ts: Option<&'a RawValue>,
    #[serde(borrow)]
    dur: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    args: Option<RawArgs>,
}

#[derive(Deserialize)]
struct RawArgs {
    bytes: Option<u64>,
}

/// Metadata of a file, once it is recognised as a timeline.
fn other_data(text: &str) -> Result<OtherData, ReadError> {
    let foreign = |found: &str| ReadError::Foreign { found: shortened(found) };
    // Chrome's other form, a bare list of events, has no metadata.
    if text.trim_start().starts_with('[') {
        return Err(foreign("absent"));
    }
    let envelope: Envelope<Value> = serde_json::from_str(text).map_err(ReadError::Json)?;
    let of_ours = |field: &str| envelope.other_data.as_ref().and_then(|other| other.get(field));
    match of_ours("format") {
        Some(format) if format == FORMAT => {}
        Some(format) => return Err(foreign(&format.to_string())),
        None => return Err(foreign("absent")),
    }
    match of_ours("version") {
        Some(version) if *version == VERSION => {}
        version => {
            let version = version.map_or("absent".to_owned(), Value::to_string);
            return Err(ReadError::Version { version: shortened(&version) });
        }
    }
    // Parsed again from the start of the text, so that errors count its lines.
    let whole: Envelope<OtherData> = serde_json::from_str(text).map_err(ReadError::Json)?;
    Ok(whole.other_data.expect("it was there before"))
}

fn read_event(tracks: &mut [Track], raw: &RawEvent) -> Result<(), EventDefect> {
    match &*raw.ph {
        "X" => {
            let name = required("name", raw.name.as_deref())?;
            let activity = activity(name).ok_or_else(|| unknown("name", name))?;
            let tid = required("tid", raw.tid)?;
            let stream = stream(tid).ok_or(EventDefect::NoSuchStream { tid })?;
            let start = time("ts", raw.ts)?;
            let end = start + time("dur", raw.dur)?;
            if end.get() > LATEST_NANOS {
                let text = raw.dur.map_or(String::new(), |dur| shortened(dur.get()));
                return Err(EventDefect::TooLate { field: "dur", text });
            }
            let bytes = raw.args.as_ref().and_then(|args| args.bytes).unwrap_or(0);
            let events = &mut track(tracks, raw)?.events;
            in_order(events.last().map(|event| event.start), start)?;
            events.push(Event { start, end, stream, activity, bytes: Bytes::new(bytes) });
        }
        "C" => {
            let name = required("name", raw.name.as_deref())?;
            if name != MEMORY {
                return Err(unknown("name", name));
            }
            let time = time("ts", raw.ts)?;
            let bytes = required("args.bytes", raw.args.as_ref().and_then(|args| args.bytes))?;
            let memory = &mut track(tracks, raw)?.memory;
            in_order(memory.last().map(|point| point.time), time)?;
            memory.push(MemoryPoint { time, bytes: Bytes::new(bytes) });
        }
        // Names and arrows repeat other data, for viewers.
        "M" | "s" | "f" => _ = track(tracks, raw)?,
        word => return Err(unknown("ph", word)),
    }
    Ok(())
}

/// The track of an event's process.
fn track<'a>(tracks: &'a mut [Track], raw: &RawEvent) -> Result<&'a mut Track, EventDefect> {
    let pid = required("pid", raw.pid)?;
    let num_tracks = tracks.len();
    let track = usize::try_from(pid).ok().and_then(|index| tracks.get_mut(index));
    track.ok_or(EventDefect::NoSuchTrack { pid, num_tracks })
}

/// The activity that prints as `name`.
fn activity(name: &str) -> Option<Activity> {
    if let Ok(action) = name.parse() {
        return Some(Activity::Action(action));
    }
    if let Some(action) = name.strip_prefix("wait for ") {
        return Some(Activity::Wait(action.parse().ok()?));
    }
    for to in CopyDestination::ALL {
        if let Some(action) = name.strip_prefix(&format!("copy to the {to} for ")) {
            return Some(Activity::Copy { to, action: action.parse().ok()? });
        }
    }
    let (collective, action) = name.split_once(" in ")?;
    let collective = Collective::ALL.into_iter().find(|known| known.to_string() == collective)?;
    Some(Activity::Collective { collective, action: action.parse().ok()? })
}

/// Time from a decimal number of microseconds, parsed as digits, so that it is exact.
fn time(field: &'static str, raw: Option<&RawValue>) -> Result<Nanos, EventDefect> {
    let text = required(field, raw)?.get();
    let malformed = || EventDefect::Time { field, text: shortened(text) };
    let too_late = || EventDefect::TooLate { field, text: shortened(text) };
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !is_digits(whole) || !is_digits(decimals) || decimals.len() > 3 {
        return Err(malformed());
    }
    let whole: u64 =
        whole.parse().map_err(|error: std::num::ParseIntError| match error.kind() {
            IntErrorKind::PosOverflow => too_late(),
            _ => malformed(),
        })?;
    let rest: u64 = format!("{decimals:0<3}").parse().map_err(|_| malformed())?;
    let nanos = whole.checked_mul(1000).and_then(|nanos| nanos.checked_add(rest));
    nanos.filter(|nanos| *nanos <= LATEST_NANOS).map(Nanos::new).ok_or_else(too_late)
}

fn in_order(before: Option<Nanos>, time: Nanos) -> Result<(), EventDefect> {
    if before.is_some_and(|before| before > time) { Err(EventDefect::OutOfOrder) } else { Ok(()) }
}

fn required<T>(field: &'static str, value: Option<T>) -> Result<T, EventDefect> {
    value.ok_or(EventDefect::Missing { field })
}

fn unknown(field: &'static str, word: &str) -> EventDefect {
    EventDefect::UnknownWord { field, word: shortened(word) }
}

/// Start of a text from a file, short enough for a message.
fn shortened(text: &str) -> String {
    text.chars().take(60).collect()
}
