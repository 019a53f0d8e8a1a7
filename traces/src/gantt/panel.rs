//! One timeline of a chart: what of it is shown, and how high it is.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use ir::schedule::ActionKind;
use ir::units::Nanos;

use super::boxes::TimeScale;
use super::memory::{self, Measure};
use super::options::{GanttOptions, TimeAxis, Visibility};
use crate::canvas::Font;
use crate::timeline::{Activity, Stream, Timeline, Track};

/// Sizes of text.
pub(super) const TITLE: f64 = 15.0;
pub(super) const SUBTITLE: f64 = 11.5;
pub(super) const NAME: f64 = 11.0;

pub(super) const TITLE_LINE: f64 = 21.0;
pub(super) const SUBTITLE_LINE: f64 = 17.0;
const BELOW_HEADING: f64 = 9.0;
/// From the last row to the memory panel.
pub(super) const AXIS: f64 = 24.0;
const BELOW_MEMORY: f64 = 10.0;
/// From the top of a lane to that of the next.
pub(super) const LANE_PITCH: f64 = 5.0;
/// The line between two boxes.
pub(super) const BETWEEN_BOXES: f64 = 0.75;
/// The smallest number in a box that can be read, and the largest that looks well.
pub(super) const SMALLEST_NUMBER: f64 = 5.5;
pub(super) const LARGEST_NUMBER: f64 = 12.0;
/// What a box leaves free on both sides of its number together.
pub(super) const BESIDE_NUMBER: f64 = 1.0;
/// The most tracks that have lanes without being asked.
const MOST_TRACKS_WITH_LANES: usize = 16;

/// A timeline and what of it is shown.
pub(super) struct Panel<'a> {
    pub(super) timeline: &'a Timeline,
    pub(super) end: Nanos,
    /// Those that are drawn.
    pub(super) tracks: Vec<&'a Track>,
    /// The streams with lanes, on every track the same.
    pub(super) lanes: Vec<Stream>,
    pub(super) has_memory: bool,
    /// The kinds of actions whose boxes have room for numbers, with the largest size that fits.
    pub(super) numbers: BTreeMap<ActionKind, f64>,
    pub(super) title: Vec<String>,
    pub(super) subtitle: Vec<String>,
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
    /// What suits `num_tracks`: few are generous, many are dense.
    pub(super) fn natural(num_tracks: usize) -> Self {
        let boxes = match num_tracks {
            0..=4 => 30.0,
            5..=8 => 26.0,
            9..=16 => 20.0,
            17..=32 => 15.0,
            33..=64 => 11.0,
            _ => 8.0,
        };
        Self::of_pitch(boxes * 1.18)
    }

    /// Rows that take `pitch` each, their lanes left out.
    pub(super) fn of_pitch(pitch: f64) -> Self {
        let gap = (pitch * 0.15).clamp(1.0, 6.0);
        Self { boxes: pitch - gap, gap }
    }
}

impl<'a> Panel<'a> {
    pub(super) fn new(timeline: &'a Timeline, options: &GanttOptions) -> Self {
        let every = timeline.tracks.len().div_ceil(options.max_tracks.max(1) as usize).max(1);
        let tracks: Vec<&Track> = timeline.tracks.iter().step_by(every).collect();
        let used: BTreeSet<Stream> =
            tracks.iter().flat_map(|track| &track.events).map(|event| event.stream).collect();
        let has_lanes = match options.lanes {
            Visibility::Auto => tracks.len() <= MOST_TRACKS_WITH_LANES,
            Visibility::Shown => true,
            Visibility::Hidden => false,
        };
        let is_lane = |stream: &Stream| has_lanes && *stream != Stream::Compute;
        Self {
            timeline,
            end: timeline.end(),
            lanes: used.into_iter().filter(is_lane).collect(),
            has_memory: options.memory != Visibility::Hidden
                && tracks.iter().any(|track| !track.memory.is_empty()),
            tracks,
            numbers: BTreeMap::new(),
            title: Vec::new(),
            subtitle: Vec::new(),
        }
    }

    /// Finds out into which boxes the widest number fits, kind by kind, so that no number is missing
    /// among others.
    pub(super) fn set_numbers(&mut self, font: &Font, scale: TimeScale) {
        let mut durations: BTreeMap<ActionKind, Vec<Nanos>> = BTreeMap::new();
        let mut widest = 0;
        for event in self.tracks.iter().flat_map(|track| &track.events) {
            if let Activity::Action(action) = event.activity
                && action.kind.is_compute()
                && event.end > event.start
            {
                durations.entry(action.kind).or_default().push(event.duration());
                widest = widest.max(action.micro_batch);
            }
        }
        let per_em = font.width(&widest.to_string(), 1.0);
        let largest = durations.into_iter().map(|(kind, mut durations)| {
            let middle = durations.len() / 2;
            let median = durations.select_nth_unstable(middle).1.as_f64();
            let room = median * scale.pixels_per_nano - BETWEEN_BOXES - BESIDE_NUMBER;
            (kind, room / per_em)
        });
        self.numbers = largest.filter(|(_, size)| *size >= SMALLEST_NUMBER).collect();
    }

    /// Breaks the heading into lines of `width`.
    pub(super) fn set_heading(
        &mut self,
        font: &Font,
        width: f64,
        axis: TimeAxis,
        others: Option<Nanos>,
    ) {
        self.title = font.wrap(&self.timeline.title, TITLE, width);
        self.subtitle = font.wrap(&self.summary(axis, others), SUBTITLE, width);
    }

    /// Step time, bubble, peak memory, and which tracks are shown, in words. `longest` is the end of
    /// the longer of two timelines.
    fn summary(&self, axis: TimeAxis, longest: Option<Nanos>) -> String {
        if self.end == Nanos::ZERO {
            return "no events".to_owned();
        }
        let step = match axis {
            TimeAxis::Clock => format!("step {}", self.end),
            TimeAxis::Units(unit) => {
                let steps = self.end.as_f64() / unit.as_f64().max(1.0);
                format!("step {} units", (steps * 100.0).round() / 100.0)
            }
        };
        let shorter = longest.filter(|longest| *longest > self.end).map(|longest| {
            let saved = (longest - self.end).as_f64() / longest.as_f64();
            format!(", {:.1} % shorter", 100.0 * saved)
        });
        let mut parts = vec![step + &shorter.unwrap_or_default()];
        parts.push(format!("bubble {:.1} %", 100.0 * self.timeline.bubble_fraction()));
        if let Some(peak) = self.timeline.tracks.iter().filter_map(Track::peak_memory).max() {
            let capacity = memory::capacity(&self.timeline.tracks.iter().collect::<Vec<_>>());
            let of = capacity.map(|capacity| format!(" of {capacity}")).unwrap_or_default();
            parts.push(match Measure::of(axis) {
                Measure::Gib => format!("peak memory {peak}{of}"),
                Measure::Kept => format!("at most {} in flight", peak.get()),
            });
        }
        if self.tracks.len() < self.timeline.tracks.len() {
            let (shown, all) = (self.tracks.len(), self.timeline.tracks.len());
            parts.push(format!(
                "{shown} of {all} tracks shown, every {}",
                ordinal(all.div_ceil(shown))
            ));
        }
        parts.join("  ·  ")
    }

    /// How wide the names of its tracks are.
    pub(super) fn name_width(&self, font: &Font) -> f64 {
        let widths = self.tracks.iter().map(|track| font.width(&track.name, NAME));
        widths.fold(0.0, f64::max)
    }

    /// Everything but its rows: heading, axis, memory.
    pub(super) fn fixed_height(&self) -> f64 {
        let memory = memory::HEADING + memory::HEIGHT + BELOW_MEMORY;
        self.heading_height() + AXIS + if self.has_memory { memory } else { 0.0 }
    }

    pub(super) fn heading_height(&self) -> f64 {
        self.title.len() as f64 * TITLE_LINE
            + self.subtitle.len() as f64 * SUBTITLE_LINE
            + BELOW_HEADING
    }

    /// What the lanes take of each row.
    pub(super) fn lanes_height(&self) -> f64 {
        match self.lanes.len() {
            0 => 0.0,
            count => count as f64 * LANE_PITCH + 1.0,
        }
    }

    pub(super) fn height(&self, rows: RowHeights) -> f64 {
        self.fixed_height() + self.tracks.len() as f64 * self.pitch(rows)
    }

    pub(super) fn pitch(&self, rows: RowHeights) -> f64 {
        rows.boxes + rows.gap + self.lanes_height()
    }

    /// The kinds of actions on compute streams, in their usual order.
    pub(super) fn kinds(&self) -> BTreeSet<ActionKind> {
        let events = self.tracks.iter().flat_map(|track| &track.events);
        let compute = events.filter(|event| event.stream == Stream::Compute);
        compute.filter_map(|event| event.activity.kind()).collect()
    }

    /// Whether some track has several stages.
    pub(super) fn has_several_stages(&self) -> bool {
        self.tracks.iter().any(|track| stages_of(track).len() > 1)
    }
}

/// Which of the track's stages each is, in their order.
pub(super) fn stages_of(track: &Track) -> BTreeMap<u32, u32> {
    let events = track.events.iter().filter(|event| event.stream == Stream::Compute);
    let stages: BTreeSet<u32> = events.map(|event| event.activity.action().stage).collect();
    stages.into_iter().zip(0..).collect()
}

/// `2nd`, `3rd`, `4th`.
fn ordinal(number: usize) -> String {
    let suffix = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{suffix}")
}
