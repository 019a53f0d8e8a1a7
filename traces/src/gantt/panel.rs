//! One timeline of a chart: what of it is shown, and how high it is.

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

/// Size of the names of tracks.
pub(super) const NAME: f64 = 11.0;
const BELOW_HEADING: f64 = 9.0;
/// From the last row to the memory panel.
pub(super) const AXIS: f64 = 24.0;
const BELOW_MEMORY: f64 = 10.0;
/// From the top of a lane to that of the next, where lanes have names and where they do not.
const NAMED_LANE_PITCH: f64 = 10.0;
const LANE_PITCH: f64 = 5.0;
/// Of lanes' names.
pub(super) const LANE_NAME: f64 = 8.0;
/// The line between two boxes that look alike.
pub(super) const BETWEEN_BOXES: f64 = 0.5;
/// The smallest number in a box that can be read, and the largest that looks well.
pub(super) const SMALLEST_NUMBER: f64 = 5.5;
pub(super) const LARGEST_NUMBER: f64 = 12.0;
/// Pixels that a box leaves free beside its number, on both sides together.
pub(super) const BESIDE_NUMBER: f64 = 1.0;
/// The most tracks that have lanes without being asked, and the most whose lanes have names.
const MOST_TRACKS_WITH_LANES: usize = 32;
const MOST_TRACKS_WITH_NAMED_LANES: usize = 8;

/// A timeline and what of it is shown.
pub(super) struct Panel<'a> {
    pub(super) timeline: &'a Timeline,
    pub(super) end: Nanos,
    /// Tracks that are drawn.
    pub(super) tracks: Vec<&'a Track>,
    pub(super) data_lane: DataLane,
    /// The streams with lanes, on every track the same.
    pub(super) lanes: Vec<Stream>,
    /// Whether there would be more lanes, but for the number of tracks.
    has_too_many_lanes: bool,
    pub(super) has_memory: bool,
    /// Row of each track.
    pub(super) rows: Vec<Row>,
    /// The size of the numbers in boxes: the largest at which those that find room do.
    pub(super) number_size: f64,
    /// The widest number, in ems: what has no room for it has none for others, lest a few stand alone.
    pub(super) number_width: f64,
    pub(super) heading: Title,
}

/// Other steps in the picture, which a step is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    /// Nothing.
    None,
    /// Steps that do the same, of which the first ends here; this one may be it.
    SameWork { first: Nanos },
    /// Steps of which that is not known, or that do something else: times do not compare.
    OtherWork,
}

/// The heights that all rows of a chart share.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowHeights {
    /// Of the boxes.
    pub(super) boxes: f64,
    /// From one row's lanes to the next row.
    pub(super) gap: f64,
}

impl RowHeights {
    /// Heights that suit so many tracks: few are generous, many are dense.
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
        // Halves of a pixel, of which columns are drawn.
        let boxes = ((pitch - gap) * 2.0).floor() / 2.0;
        Self { boxes, gap: pitch - boxes }
    }
}

impl<'a> Panel<'a> {
    /// Panel of `timeline` from one time to another.
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

    /// Finds out what is drawn of each track.
    pub(super) fn set_rows(&mut self, scale: TimeScale) {
        let row = |track: &&Track| Row::new(track, &self.lanes, scale);
        self.rows = self.tracks.iter().map(row).collect();
        let labels = self.rows.iter().flat_map(Row::boxes).filter_map(|drawn| drawn.label);
        let widths = labels.map(|label| text_width(&label.to_string(), 1.0));
        self.number_width = widths.fold(0.0, f64::max);
        self.number_size = self.usual_number_size(scale);
    }

    /// The size at which the widest number fits into the boxes of each kind that has room for it.
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

    /// Subtitle: the step's work, time, bubble and peak memory, and the part of it that is shown.
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

    /// Width of the names of its tracks and lanes.
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

    /// Whether there is room for the names of lanes.
    fn has_named_lanes(&self) -> bool {
        self.tracks.len() <= MOST_TRACKS_WITH_NAMED_LANES
    }

    /// The lanes whose names are written.
    pub(super) fn named_lanes(&self) -> &[Stream] {
        if self.has_named_lanes() { &self.lanes } else { &[] }
    }

    /// From the top of a lane to that of the next.
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

    /// Looks of its pieces.
    pub(super) fn looks(&self) -> BTreeSet<Look> {
        self.rows.iter().flat_map(Row::looks).collect()
    }

    /// Largest number of stages of its tracks.
    pub(super) fn num_stages(&self) -> u32 {
        self.rows.iter().map(|row| row.num_stages).max().unwrap_or_default()
    }

    /// The size of a number in a box of so many pixels, of `usual` size if it can be: in narrower boxes the
    /// smallest, lest a whole kind of passes has none; none where that has no room.
    pub(super) fn number_size_in(&self, width: f64, usual: f64) -> Option<f64> {
        let has_room = |size: &f64| self.number_width * size + BESIDE_NUMBER <= width;
        [usual, SMALLEST_NUMBER].into_iter().find(has_room)
    }

    /// Whether some box has a number.
    pub(super) fn has_numbers(&self) -> bool {
        let boxes = self.rows.iter().flat_map(Row::boxes).filter(|drawn| drawn.label.is_some());
        let mut widths = boxes.map(|drawn| drawn.right - drawn.left - BETWEEN_BOXES);
        widths.any(|width| self.number_size_in(width, self.number_size).is_some())
    }
}

/// Difference of a step from the first one, in words.
fn compared(first: Nanos, end: Nanos) -> String {
    let share = 100.0 * (end.as_f64() / first.as_f64().max(1.0) - 1.0);
    let words = if share < 0.0 { "shorter" } else { "longer" };
    let share = format!("{:.1}", share.abs());
    if share == "0.0" { String::new() } else { format!(", {share} % {words} than the first") }
}
