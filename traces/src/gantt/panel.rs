//! One timeline of a chart: its visible parts and its height.

use std::collections::{BTreeMap, BTreeSet};

use ir::schedule::ActionKind;
use ir::units::Nanos;

use super::boxes::{Look, TimeScale};
use super::evenly::evenly;
use super::memory;
use super::options::{GanttOptions, TimeAxis, Visibility};
use super::row::Row;
use crate::canvas::{Title, text_width};
use crate::class::DataLane;
use crate::timeline::{Activity, Event, Stream, Timeline, Track};

/// Text size of the names of tracks.
pub(super) const NAME: f64 = 11.0;
const BELOW_HEADING: f64 = 9.0;
/// Height from the last row to the memory panel.
pub(super) const AXIS: f64 = 24.0;
const BELOW_MEMORY: f64 = 10.0;
/// Distance between the tops of lanes, with names and without.
const NAMED_LANE_PITCH: f64 = 10.0;
const LANE_PITCH: f64 = 5.0;
/// Text size of the names of lanes.
pub(super) const LANE_NAME: f64 = 8.0;
/// Width of the line between two boxes that look alike.
pub(super) const BETWEEN_BOXES: f64 = 0.5;
/// The smallest readable number in a box, and the largest that is used.
pub(super) const SMALLEST_NUMBER: f64 = 5.5;
pub(super) const LARGEST_NUMBER: f64 = 12.0;
/// Pixels left free next to the number in a box, on both sides together.
pub(super) const BESIDE_NUMBER: f64 = 1.0;
/// Number of tracks up to which lanes are drawn by default, and up to which lanes have names.
const MOST_TRACKS_WITH_LANES: usize = 32;
const MOST_TRACKS_WITH_NAMED_LANES: usize = 8;

/// A timeline and its visible parts.
pub(super) struct Panel<'a> {
    pub(super) timeline: &'a Timeline,
    pub(super) end: Nanos,
    /// Tracks that are drawn.
    pub(super) tracks: Vec<&'a Track>,
    pub(super) data_lane: DataLane,
    /// Streams with lanes, the same for every track.
    pub(super) lanes: Vec<Stream>,
    /// True if lanes were left out because of the number of tracks.
    has_too_many_lanes: bool,
    pub(super) has_memory: bool,
    /// Row of each track.
    pub(super) rows: Vec<Row>,
    /// Text size of numbers in boxes: the largest at which all numbers fit that can be shown.
    pub(super) number_size: f64,
    /// Width of the widest number, in ems: boxes too narrow for it have no number.
    pub(super) number_width: f64,
    pub(super) heading: Title,
}

/// Relation to the other steps in the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    /// No other steps.
    None,
    /// Steps that do the same work, with the end of the first, which may be this one.
    SameWork { first: Nanos },
    /// Steps that do other or unknown work: times do not compare.
    OtherWork,
}

/// Heights that all rows of a chart share.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowHeights {
    /// Height of boxes.
    pub(super) boxes: f64,
    /// Height from one row's lanes to the next row.
    pub(super) gap: f64,
}

impl RowHeights {
    /// Heights for a number of tracks: generous for few, dense for many.
    pub(super) fn new(num_tracks: usize) -> Self {
        let boxes = match num_tracks {
            0..=4 => 30.0,
            5..=8 => 26.0,
            9..=16 => 20.0,
            17..=32 => 15.0,
            33..=64 => 11.0,
            _ => 8.0,
        };
        let pitch: f64 = boxes * 1.18;
        let gap = (pitch * 0.15).clamp(1.0, 6.0);
        // Multiples of half a pixel, as columns are drawn in these.
        let boxes = ((pitch - gap) * 2.0).floor() / 2.0;
        Self { boxes, gap: pitch - boxes }
    }
}

impl<'a> Panel<'a> {
    /// The panel of `timeline` from one time to another.
    pub(super) fn new(
        timeline: &'a Timeline,
        [from, to]: [Nanos; 2],
        options: &GanttOptions,
    ) -> Self {
        let tracks = evenly(&timeline.tracks.iter().collect::<Vec<_>>(), options.max_tracks);
        let events = tracks.iter().flat_map(|track| &track.events);
        let is_seen =
            |event: &&Event| event.start < event.end && event.start < to && event.end > from;
        let used: BTreeSet<Stream> = events.filter(is_seen).map(|event| event.stream).collect();
        let lanes: Vec<Stream> =
            used.into_iter().filter(|stream| *stream != Stream::Compute).collect();
        let has_too_many_lanes = options.lanes == Visibility::Auto
            && tracks.len() > MOST_TRACKS_WITH_LANES
            && !lanes.is_empty();
        let has_lanes = options.lanes != Visibility::Hidden && !has_too_many_lanes;
        Self {
            timeline,
            end: timeline.end(),
            data_lane: DataLane::of(&[timeline]),
            lanes: if has_lanes { lanes } else { Vec::new() },
            has_too_many_lanes,
            has_memory: options.memory != Visibility::Hidden
                && tracks.iter().any(|track| !track.memory.is_empty()),
            tracks,
            rows: Vec::new(),
            number_size: SMALLEST_NUMBER,
            number_width: 0.0,
            heading: Title::default(),
        }
    }

    /// Computes the pieces of each track.
    pub(super) fn set_rows(&mut self, scale: TimeScale) {
        let row = |track: &&Track| Row::new(track, &self.lanes, scale);
        self.rows = self.tracks.iter().map(row).collect();
        let labels = self.rows.iter().flat_map(Row::boxes).filter_map(|drawn| drawn.label);
        let widths = labels.map(|label| text_width(&label.to_string(), 1.0));
        self.number_width = widths.fold(0.0, f64::max);
        self.number_size = self.usual_number_size(scale);
    }

    /// Text size at which the widest number fits the boxes of each kind that can show numbers.
    fn usual_number_size(&self, scale: TimeScale) -> f64 {
        let mut durations: BTreeMap<ActionKind, Vec<Nanos>> = BTreeMap::new();
        let events = self.tracks.iter().flat_map(|track| &track.events);
        for event in events.filter(|event| scale.shows(event)) {
            if let Activity::Action(action) = event.activity
                && action.kind.is_compute()
                && event.end > event.start
            {
                durations.entry(action.kind).or_default().push(event.duration());
            }
        }
        let largest = durations.into_values().map(|mut durations| {
            let middle = durations.len() / 2;
            let median = durations.select_nth_unstable(middle).1.as_f64();
            let room = median * scale.pixels_per_nano() - BETWEEN_BOXES - BESIDE_NUMBER;
            room / self.number_width * 0.9
        });
        let size = largest.filter(|size| *size >= SMALLEST_NUMBER).reduce(f64::min);
        size.unwrap_or(SMALLEST_NUMBER).min(LARGEST_NUMBER)
    }

    /// Breaks the heading into lines of `width`.
    pub(super) fn set_heading(
        &mut self,
        width: f64,
        axis: TimeAxis,
        scale: TimeScale,
        comparison: Comparison,
    ) {
        let Timeline { title, setting, .. } = self.timeline;
        let summary = self.summary(axis, scale, comparison);
        self.heading = Title::with_notes(title, [setting.as_str(), &summary], width);
    }

    /// Subtitle: the step's work, time, bubble and peak memory, and the visible part.
    fn summary(&self, axis: TimeAxis, scale: TimeScale, comparison: Comparison) -> String {
        if self.end == Nanos::ZERO {
            return "no events".to_owned();
        }
        let Timeline { work, setting, remark, .. } = self.timeline;
        let mut parts = Vec::new();
        if comparison == Comparison::OtherWork && setting.is_empty() && !work.is_empty() {
            parts.push(work.clone());
        }
        let compared = match comparison {
            Comparison::SameWork { first } => compared(first, self.end),
            Comparison::None | Comparison::OtherWork => String::new(),
        };
        parts.push(format!("step {}{compared}", axis.write(self.end)));
        parts.push(format!("bubble {:.1} %", 100.0 * self.timeline.bubble_fraction()));
        if let Some(peak) = self.timeline.tracks.iter().filter_map(Track::peak_memory).max() {
            let capacity = memory::capacity(&self.timeline.tracks.iter().collect::<Vec<_>>());
            let of = capacity.map(|capacity| format!(" of {capacity}")).unwrap_or_default();
            parts.push(match axis {
                TimeAxis::Clock => format!("peak memory {peak}{of}"),
                TimeAxis::Units(_) => format!("at most {} in flight", peak.get()),
            });
        }
        if !remark.is_empty() {
            parts.push(remark.clone());
        }
        if scale.from > Nanos::ZERO || scale.to < self.end {
            let [from, to] = [scale.from, scale.to.min(self.end)].map(|time| axis.write(time));
            parts.push(format!("shown from {from} to {to}"));
        }
        if self.tracks.len() < self.timeline.tracks.len() {
            let (shown, all) = (self.tracks.len(), self.timeline.tracks.len());
            parts.push(format!("{shown} of {all} ranks drawn, the first and the last among them"));
        }
        if self.rows.iter().any(Row::has_columns) {
            parts.push(
                "passes too narrow to draw one by one: colours by their share of time".to_owned(),
            );
        }
        if self.has_too_many_lanes {
            parts.push("exchanges and messages not drawn".to_owned());
        }
        parts.join("  ·  ")
    }

    /// Width of the names of tracks and lanes.
    pub(super) fn name_width(&self) -> f64 {
        let tracks = self.tracks.iter().map(|track| text_width(&track.name, NAME));
        let lanes = self.named_lanes().iter();
        let lanes = lanes.map(|stream| text_width(self.lane_name(*stream), LANE_NAME));
        tracks.chain(lanes).fold(0.0, f64::max)
    }

    /// Name of a stream's lane.
    pub(super) const fn lane_name(&self, stream: Stream) -> &'static str {
        self.data_lane.of_stream(stream)
    }

    /// Returns whether the names of lanes fit.
    fn has_named_lanes(&self) -> bool {
        self.tracks.len() <= MOST_TRACKS_WITH_NAMED_LANES
    }

    /// Lanes with names.
    pub(super) fn named_lanes(&self) -> &[Stream] {
        if self.has_named_lanes() { &self.lanes } else { &[] }
    }

    /// Distance between the tops of lanes.
    pub(super) fn lane_pitch(&self) -> f64 {
        if self.has_named_lanes() { NAMED_LANE_PITCH } else { LANE_PITCH }
    }

    pub(super) fn heading_height(&self) -> f64 {
        self.heading.height() + BELOW_HEADING
    }

    /// Height of all lanes of a row.
    fn lanes_height(&self) -> f64 {
        match self.lanes.len() {
            0 => 0.0,
            count => count as f64 * self.lane_pitch() + 1.0,
        }
    }

    pub(super) fn height(&self, rows: RowHeights) -> f64 {
        let memory = memory::HEADING + memory::HEIGHT + BELOW_MEMORY;
        let fixed = self.heading_height() + AXIS + if self.has_memory { memory } else { 0.0 };
        fixed + self.tracks.len() as f64 * self.pitch(rows)
    }

    pub(super) fn pitch(&self, rows: RowHeights) -> f64 {
        rows.boxes + rows.gap + self.lanes_height()
    }

    /// Looks of all pieces.
    pub(super) fn looks(&self) -> BTreeSet<Look> {
        self.rows.iter().flat_map(Row::looks).collect()
    }

    /// Largest number of stages of a track.
    pub(super) fn num_stages(&self) -> u32 {
        self.rows.iter().map(|row| row.num_stages).max().unwrap_or_default()
    }

    /// Text size of a number in a box of `width` pixels: `usual` if it fits, or else the smallest size, so that no
    /// whole kind of passes is without numbers; `None` where that does not fit either.
    pub(super) fn number_size_in(&self, width: f64, usual: f64) -> Option<f64> {
        let has_room = |size: &f64| self.number_width * size + BESIDE_NUMBER <= width;
        [usual, SMALLEST_NUMBER].into_iter().find(has_room)
    }

    /// Returns whether any box shows a number.
    pub(super) fn has_numbers(&self) -> bool {
        let boxes = self.rows.iter().flat_map(Row::boxes).filter(|drawn| drawn.label.is_some());
        let mut widths = boxes.map(|drawn| drawn.right - drawn.left - BETWEEN_BOXES);
        widths.any(|width| self.number_size_in(width, self.number_size).is_some())
    }
}

/// Difference of a step's time from the first one, in words.
fn compared(first: Nanos, end: Nanos) -> String {
    let share = 100.0 * (end.as_f64() / first.as_f64().max(1.0) - 1.0);
    let words = if share < 0.0 { "shorter" } else { "longer" };
    let share = format!("{:.1}", share.abs());
    if share == "0.0" { String::new() } else { format!(", {share} % {words} than the first") }
}
