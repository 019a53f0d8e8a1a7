//! The data of a page, packed, since a step has a hundred thousand events.
//!
//! JSON holds the small data. Events and memory are numbers in base64: each is the difference from the one before,
//! mostly 0 or small, as a signed variable-length integer.
//!
//! ```text
//! number   zigzag (0, -1, 1, -2, ..), then 7 bits a byte, lowest first, the top bit set on all but
//!          the last byte
//! event    2 kind + 1 and start - end of the event before, if it differs from the last event of its kind on its
//!          row only by the next micro-batch; else 2 kind, start - end of the event before, and the differences
//!          of duration, stage, micro-batch and bytes from the last event of its kind
//! memory   time and bytes, each less that of the point before
//! ```

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ir::collective::Collective;
use ir::schedule::ActionKind;
use ir::text::printable;
use ir::units::{Bytes, Nanos};
use serde::Serialize;

use super::legend::key;
use super::script_json;
use crate::class::{Class, DataLane, action_name};
use crate::gantt::TimeAxis;
use crate::lanes::lanes;
use crate::timeline::{Activity, Event, MemoryPoint, Stream, Timeline, Track};

/// The timelines as JSON that may be in a `script` element.
///
/// `window` is the initial view, from one time to another.
pub(super) fn json(timelines: &[&Timeline], axis: TimeAxis, window: [Nanos; 2]) -> String {
    let mut kinds = Kinds::new(DataLane::of(timelines));
    let timelines = timelines.iter().map(|timeline| TimelineData {
        title: printable(&timeline.title),
        work: printable(&timeline.work),
        setting: printable(&timeline.setting),
        remark: printable(&timeline.remark),
        end_nanoseconds: timeline.end().get(),
        bubble_fraction: timeline.bubble_fraction(),
        tracks: timeline.tracks.iter().map(|track| track_data(track, &mut kinds)).collect(),
    });
    let timelines = timelines.collect();
    let unit_nanoseconds = match axis {
        TimeAxis::Clock => None,
        TimeAxis::Units(unit) => Some(unit.get().max(1)),
    };
    let [view_start_nanoseconds, view_end_nanoseconds] = window.map(Nanos::get);
    script_json(&PageData {
        unit_nanoseconds,
        view_start_nanoseconds,
        view_end_nanoseconds,
        kinds: kinds.list,
        timelines,
    })
}

#[derive(Serialize)]
struct PageData<'a> {
    /// Nanoseconds of a unit of time without a name; `None` where time is in seconds.
    unit_nanoseconds: Option<u64>,
    view_start_nanoseconds: u64,
    view_end_nanoseconds: u64,
    kinds: Vec<KindData>,
    timelines: Vec<TimelineData<'a>>,
}

/// Properties that events of a kind have in common.
#[derive(Clone, PartialEq, Eq, Serialize)]
struct KindData {
    /// Name of its colour in the style sheet.
    class: String,
    class_name: &'static str,
    /// Letters between the numbers of stage and micro-batch.
    word: &'static str,
    /// Name of its action, in words.
    action_name: &'static str,
    has_micro_batch: bool,
    /// True for a pass of a micro-batch through a stage.
    is_pass: bool,
    /// The collective; the action to which it belongs is in the other fields.
    collective: Option<String>,
}

#[derive(Serialize)]
struct TimelineData<'a> {
    title: Cow<'a, str>,
    work: Cow<'a, str>,
    setting: Cow<'a, str>,
    remark: Cow<'a, str>,
    end_nanoseconds: u64,
    bubble_fraction: f64,
    tracks: Vec<TrackData<'a>>,
}

#[derive(Serialize)]
struct TrackData<'a> {
    name: Cow<'a, str>,
    rank: u32,
    num_ranks: u32,
    capacity_bytes: Option<u64>,
    peak_bytes: Option<u64>,
    rows: Vec<RowData>,
    num_points: usize,
    memory: String,
}

/// Events of a stream that do not overlap.
#[derive(Serialize)]
struct RowData {
    stream: &'static str,
    /// 0, or more for events that overlap those of the stream's rows before.
    lane: usize,
    is_compute: bool,
    num_events: usize,
    events: String,
}

/// Table of the kinds that occur, numbered in order of occurrence.
struct Kinds {
    data_lane: DataLane,
    numbers: BTreeMap<(Class, ActionKind, Option<Collective>), usize>,
    list: Vec<KindData>,
}

impl Kinds {
    const fn new(data_lane: DataLane) -> Self {
        Self { data_lane, numbers: BTreeMap::new(), list: Vec::new() }
    }

    fn number(&mut self, event: &Event) -> usize {
        let class = Class::of(event);
        let kind = event.activity.action().kind;
        let collective = match event.activity {
            Activity::Action(_) | Activity::Copy { .. } | Activity::Wait(_) => None,
            Activity::Collective { collective, .. } => Some(collective),
        };
        *self.numbers.entry((class, kind, collective)).or_insert_with(|| {
            self.list.push(KindData {
                class: key(class),
                class_name: class.name_with(self.data_lane),
                word: kind.name(),
                action_name: action_name(kind),
                has_micro_batch: kind.has_micro_batch(),
                is_pass: class.is_pass(),
                collective: collective.map(|collective| collective.to_string()),
            });
            self.list.len() - 1
        })
    }
}

fn track_data<'a>(track: &'a Track, kinds: &mut Kinds) -> TrackData<'a> {
    let mut rows: BTreeMap<(Stream, usize), Vec<&Event>> = BTreeMap::new();
    for (event, lane) in track.events.iter().zip(lanes(track)) {
        rows.entry((event.stream, lane)).or_default().push(event);
    }
    let rows = rows.into_iter().map(|((stream, lane), events)| RowData {
        stream: kinds.data_lane.of_stream(stream),
        lane,
        is_compute: stream == Stream::Compute,
        num_events: events.len(),
        events: pack_events(&events, kinds),
    });
    TrackData {
        name: printable(&track.name),
        rank: track.rank,
        num_ranks: track.num_ranks,
        capacity_bytes: track.memory_capacity.map(Bytes::get),
        peak_bytes: track.peak_memory().map(Bytes::get),
        rows: rows.collect(),
        num_points: track.memory.len(),
        memory: pack_memory(&track.memory),
    }
}

/// Changes of duration, stage, micro-batch and bytes from a micro-batch to the next.
const NEXT_MICRO_BATCH: [i128; 4] = [0, 0, 1, 0];

fn pack_events(events: &[&Event], kinds: &mut Kinds) -> String {
    let mut packed = Packed::default();
    let mut end = 0;
    let mut last_of_kind: BTreeMap<usize, [i128; 4]> = BTreeMap::new();
    for event in events {
        let kind = kinds.number(event);
        let action = event.activity.action();
        let gap = i128::from(event.start.get()) - end;
        end = event.end.get().into();
        let now = [
            event.duration().get().into(),
            action.stage.into(),
            action.micro_batch.into(),
            event.bytes.get().into(),
        ];
        let last = last_of_kind.insert(kind, now).unwrap_or_default();
        let changes = [0, 1, 2, 3].map(|field| now[field] - last[field]);
        let is_next = changes == NEXT_MICRO_BATCH;
        packed.push(2 * kind as i128 + i128::from(is_next));
        packed.push(gap);
        if !is_next {
            for change in changes {
                packed.push(change);
            }
        }
    }
    packed.base64()
}

fn pack_memory(points: &[MemoryPoint]) -> String {
    let mut packed = Packed::default();
    let mut last = [0_i128; 2];
    for point in points {
        let now = [point.time.get().into(), point.bytes.get().into()];
        packed.push(now[0] - last[0]);
        packed.push(now[1] - last[1]);
        last = now;
    }
    packed.base64()
}

/// Signed variable-length integers.
#[derive(Default)]
struct Packed(Vec<u8>);

impl Packed {
    fn push(&mut self, number: i128) {
        let mut rest = ((number << 1) ^ (number >> 127)).cast_unsigned();
        while rest >= 0x80 {
            self.0.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.0.push(rest as u8);
    }

    fn base64(&self) -> String {
        STANDARD.encode(&self.0)
    }
}
