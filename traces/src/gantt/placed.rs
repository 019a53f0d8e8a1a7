//! A panel in its place: heading, rows, time axis, memory.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use ir::schedule::ActionKind;
use ir::units::Nanos;
use plotters::backend::DrawingBackend;

use super::boxes::{Slot, TimeScale, boxes, slots};
use super::panel::{
    AXIS, LANE_PITCH, NAME, Panel, RowHeights, SUBTITLE, SUBTITLE_LINE, TITLE, TITLE_LINE, chunks,
};
use super::{TimeAxis, memory};
use crate::canvas::{Align, Area, Canvas, DrawError, Font, Text, Ticks, baseline_around};
use crate::palette::{Rgb, Theme};
use crate::timeline::{Activity, Event, Stream, Track};

const TICK: f64 = 10.0;
/// The smallest number in a box that can be read.
const SMALLEST_NUMBER: f64 = 5.5;
/// What a box leaves free on both sides of its number together.
const BESIDE_NUMBER: f64 = 1.0;
/// The height of a lane; a line keeps it from the next.
const LANE: f64 = 4.0;
/// A box at least this wide has a line between it and the next.
const WIDE: f64 = 4.0;
const BETWEEN_BOXES: f64 = 0.75;

/// A panel where it is drawn.
pub(super) struct Placed<'a> {
    pub(super) panel: &'a Panel<'a>,
    pub(super) top: f64,
    /// Left edge of the picture's content.
    pub(super) margin: f64,
    /// Right edge of the plot.
    pub(super) right: f64,
    pub(super) rows: RowHeights,
    pub(super) scale: TimeScale,
    /// The end of the axis.
    pub(super) axis_end: Nanos,
    pub(super) axis: TimeAxis,
    pub(super) theme: Theme,
    pub(super) font: &'a Font,
}

impl Placed<'_> {
    pub(super) fn draw<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
    ) -> Result<(), DrawError> {
        self.heading(canvas)?;
        let top = self.top + self.panel.heading_height();
        let pitch = self.panel.pitch(self.rows);
        let numbers = self.numbers();
        for (index, track) in self.panel.tracks.iter().enumerate() {
            self.track(canvas, track, top + index as f64 * pitch, &numbers)?;
        }
        self.names(canvas, top, pitch)?;
        let bottom = top + self.panel.tracks.len() as f64 * pitch;
        self.time_axis(canvas, bottom)?;
        if self.panel.has_memory {
            let area = Area {
                left: self.scale.left,
                top: bottom + AXIS + memory::HEADING,
                width: self.right - self.scale.left,
                height: memory::HEIGHT,
            };
            let Panel { tracks, end, .. } = self.panel;
            memory::draw(canvas, tracks, area, self.scale, *end, self.theme)?;
        }
        Ok(())
    }

    fn heading<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>) -> Result<(), DrawError> {
        let titles =
            self.panel.title.iter().map(|line| (line, TITLE, TITLE_LINE, self.theme.text()));
        let muted = self.theme.muted_text();
        let subtitles =
            self.panel.subtitle.iter().map(|line| (line, SUBTITLE, SUBTITLE_LINE, muted));
        let mut baseline = self.top - 5.0;
        for (content, size, line, color) in titles.chain(subtitles) {
            baseline += line;
            let (x, align) = (self.margin, Align::Left);
            canvas.text(&Text { content, x, baseline, size, align, color })?;
        }
        Ok(())
    }

    /// How numbers are written: at the size at which the widest fits into the narrowest usual box,
    /// and into boxes of those kinds in which it fits at all, so that no number is missing among
    /// others.
    fn numbers(&self) -> Numbers {
        let mut durations: BTreeMap<ActionKind, Vec<Nanos>> = BTreeMap::new();
        let mut widest = 0;
        for event in self.panel.tracks.iter().flat_map(|track| &track.events) {
            if let Activity::Action(action) = event.activity
                && action.kind.is_compute()
                && event.end > event.start
            {
                durations.entry(action.kind).or_default().push(event.duration());
                widest = widest.max(action.micro_batch);
            }
        }
        let per_em = self.font.width(&widest.to_string(), 1.0);
        let largest = durations.into_iter().map(|(kind, mut durations)| {
            let middle = durations.len() / 2;
            let median = durations.select_nth_unstable(middle).1.as_f64();
            let room = median * self.scale.pixels_per_nano - BETWEEN_BOXES - BESIDE_NUMBER;
            (kind, room / per_em)
        });
        let fitting: BTreeMap<ActionKind, f64> =
            largest.filter(|(_, size)| *size >= SMALLEST_NUMBER).collect();
        let size = fitting.values().map(|size| size * 0.9).fold(12.0, f64::min);
        let size = size.min(self.rows.boxes * 0.5).max(SMALLEST_NUMBER);
        Numbers { size, kinds: fitting.into_keys().collect() }
    }

    fn track<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        track: &Track,
        top: f64,
        numbers: &Numbers,
    ) -> Result<(), DrawError> {
        let left = self.scale.left;
        let width = self.scale.x(self.panel.end) - left;
        if width <= 0.0 {
            return Ok(());
        }
        let height = self.rows.boxes;
        canvas.fill(Area { left, top, width, height }, self.theme.idle())?;
        let chunks = chunks(track);
        let look = |event: &Event| {
            let (color, number) = look(event, &chunks, self.theme);
            let kind = event.activity.kind();
            (color, number.filter(|_| kind.is_some_and(|kind| numbers.kinds.contains(&kind))))
        };
        let compute = track.events.iter().filter(|event| event.stream == Stream::Compute);
        let compute: Vec<&Event> = compute.filter(|event| event.end > event.start).collect();
        let slots = slots(&compute, |event| event.activity.kind() == Some(ActionKind::Forward));
        for slot in Slot::ALL {
            let half = height / 2.0;
            let (top, height) = match slot {
                Slot::Whole => (top, height),
                Slot::Upper => (top, half - BETWEEN_BOXES / 2.0),
                Slot::Lower => (top + half + BETWEEN_BOXES / 2.0, half - BETWEEN_BOXES / 2.0),
            };
            let events = compute.iter().zip(&slots);
            let events = events.filter(|(_, of)| **of == slot).map(|(event, _)| *event);
            for drawn in boxes(events, self.scale, look) {
                let between = if drawn.right - drawn.left < WIDE { 0.0 } else { BETWEEN_BOXES };
                let width = drawn.right - drawn.left - between;
                let area = Area { left: drawn.left, top, width, height };
                canvas.fill(area, drawn.color)?;
                self.number(canvas, drawn.label, area, numbers.size, drawn.color)?;
            }
        }
        for (index, stream) in self.panel.lanes.iter().enumerate() {
            let top = top + height + 1.5 + index as f64 * LANE_PITCH;
            let events = track.events.iter().filter(|event| event.stream == *stream);
            for drawn in boxes(events, self.scale, |_| (self.theme.stream(*stream), None)) {
                let (left, width) = (drawn.left, drawn.right - drawn.left);
                canvas.fill(Area { left, top, width, height: LANE }, drawn.color)?;
            }
        }
        Ok(())
    }

    fn number<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        label: Option<u32>,
        area: Area,
        size: f64,
        background: Rgb,
    ) -> Result<(), DrawError> {
        let size = size.min(area.height * 0.85);
        let Some(label) = label.filter(|_| size >= SMALLEST_NUMBER) else { return Ok(()) };
        let content = &label.to_string();
        if self.font.width(content, size) + BESIDE_NUMBER > area.width {
            return Ok(());
        }
        canvas.text(&Text {
            content,
            x: area.left + area.width / 2.0,
            baseline: baseline_around(area.top + area.height / 2.0, size),
            size,
            align: Align::Center,
            color: background.ink(),
        })
    }

    /// The names of tracks, or of every second, third, ... where rows are thin.
    fn names<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        top: f64,
        pitch: f64,
    ) -> Result<(), DrawError> {
        let size = (pitch * 0.82).clamp(8.0, NAME);
        let every = ((size + 1.0) / pitch).ceil().max(1.0) as usize;
        for (index, track) in self.panel.tracks.iter().enumerate().step_by(every) {
            let middle = top + index as f64 * pitch + self.rows.boxes / 2.0;
            canvas.text(&Text {
                content: &track.name,
                x: self.scale.left - 8.0,
                baseline: baseline_around(middle, size),
                size,
                align: Align::Right,
                color: self.theme.text(),
            })?;
        }
        Ok(())
    }

    fn time_axis<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        top: f64,
    ) -> Result<(), DrawError> {
        let unit = unit(self.axis, self.axis_end);
        let most = self.axis_end.as_f64() / unit.nanos;
        let width = self.right - self.scale.left;
        let ticks = match self.axis {
            TimeAxis::Clock => Ticks::new(most, width / 90.0),
            TimeAxis::Units(_) => Ticks::whole(most, width / 90.0),
        };
        let color = self.theme.muted_text();
        canvas.fill(Area { left: self.scale.left, top, width, height: 1.0 }, color)?;
        let mut write = |content: &str, x: f64, align| {
            canvas.text(&Text { content, x, baseline: top + 16.0, size: TICK, align, color })
        };
        write(unit.heading, self.scale.left - 12.0, Align::Right)?;
        if self.axis_end == Nanos::ZERO {
            return Ok(());
        }
        for (value, label) in ticks.iter() {
            write(&label, self.scale.left + value / most * width, Align::Center)?;
        }
        for (value, _) in ticks.iter() {
            let left = self.scale.left + value / most * width - 0.5;
            canvas.fill(Area { left, top, width: 1.0, height: 4.0 }, color)?;
        }
        Ok(())
    }
}

/// How the numbers of micro-batches are written.
struct Numbers {
    size: f64,
    /// In boxes of these kinds.
    kinds: BTreeSet<ActionKind>,
}

/// The widest that the heading of a time axis can be.
pub(super) fn axis_heading_width(font: &Font) -> f64 {
    font.width("time (units)", TICK)
}

/// What an axis counts.
struct Unit {
    nanos: f64,
    heading: &'static str,
}

fn unit(axis: TimeAxis, end: Nanos) -> Unit {
    match (axis, end.get()) {
        (TimeAxis::Units(unit), _) => {
            Unit { nanos: unit.as_f64().max(1.0), heading: "time (units)" }
        }
        (TimeAxis::Clock, 0..1_000) => Unit { nanos: 1.0, heading: "time (ns)" },
        (TimeAxis::Clock, 1_000..1_000_000) => Unit { nanos: 1e3, heading: "time (us)" },
        (TimeAxis::Clock, 1_000_000..2_000_000_000) => Unit { nanos: 1e6, heading: "time (ms)" },
        (TimeAxis::Clock, _) => Unit { nanos: 1e9, heading: "time (s)" },
    }
}

/// The colour of an event on the compute stream, and the number in its box.
fn look(event: &Event, chunks: &BTreeMap<u32, u32>, theme: Theme) -> (Rgb, Option<u32>) {
    match event.activity {
        Activity::Action(action) if action.kind.is_compute() => {
            let chunk = chunks.get(&action.stage).copied().unwrap_or_default();
            (theme.shaded(action.kind, action.micro_batch, chunk), Some(action.micro_batch))
        }
        Activity::Action(action) => (theme.action(action.kind), None),
        Activity::Collective { .. } => (theme.stream(Stream::Tensor), None),
    }
}
