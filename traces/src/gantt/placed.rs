//! A panel in its place: heading, rows, time axis, memory.

use std::collections::BTreeMap;

use ir::schedule::ActionKind;
use ir::units::Nanos;
use plotters::backend::DrawingBackend;

use super::boxes::{Slot, TimeScale, boxes, slots};
use super::memory::{self, Measure};
use super::options::TimeAxis;
use super::panel::{
    AXIS, BESIDE_NUMBER, BETWEEN_BOXES, LANE_PITCH, LARGEST_NUMBER, NAME, Panel, RowHeights,
    SMALLEST_NUMBER, SUBTITLE, SUBTITLE_LINE, TITLE, TITLE_LINE, stages_of,
};
use crate::canvas::{Align, Area, Canvas, DrawError, Font, Text, Ticks, baseline_around};
use crate::palette::{Rgb, Theme};
use crate::timeline::{Activity, Event, Stream, Track};

const TICK: f64 = 10.0;
/// From the heading of the time axis to the plot: half of the first number lies in it.
const AXIS_HEADING_GAP: f64 = 18.0;
/// The height of a lane; a line keeps it from the next.
const LANE: f64 = 4.0;
/// A box at least this wide has a line between it and the next.
const WIDE: f64 = 4.0;

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
        let sizes = self.panel.numbers.values().map(|size| size * 0.9);
        let number_size = sizes.fold(LARGEST_NUMBER, f64::min);
        let number_size = number_size.min(self.rows.boxes * 0.5).max(SMALLEST_NUMBER);
        for (index, track) in self.panel.tracks.iter().enumerate() {
            self.track(canvas, track, top + index as f64 * pitch, number_size)?;
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
            let measure = Measure::of(self.axis);
            memory::draw(canvas, tracks, area, self.scale, *end, measure, self.theme)?;
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

    fn track<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        track: &Track,
        top: f64,
        number_size: f64,
    ) -> Result<(), DrawError> {
        let left = self.scale.left;
        let width = self.scale.x(self.panel.end) - left;
        if width <= 0.0 {
            return Ok(());
        }
        let height = self.rows.boxes;
        canvas.fill(Area { left, top, width, height }, self.theme.idle())?;
        let stages = stages_of(track);
        let look = |event: &Event| {
            let (color, number) = look(event, &stages, self.theme);
            let kind = event.activity.kind();
            (
                color,
                number.filter(|_| kind.is_some_and(|kind| self.panel.numbers.contains_key(&kind))),
            )
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
                let is_wide = !drawn.is_sum && drawn.right - drawn.left >= WIDE;
                let between = if is_wide { BETWEEN_BOXES } else { 0.0 };
                let width = drawn.right - drawn.left - between;
                let area = Area { left: drawn.left, top, width, height };
                canvas.fill(area, drawn.color)?;
                self.number(canvas, drawn.label, area, number_size, drawn.color)?;
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
        write(unit.heading, self.scale.left - AXIS_HEADING_GAP, Align::Right)?;
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

/// The widest that the heading of a time axis can be, with the gap after it.
pub(super) fn axis_heading_width(font: &Font) -> f64 {
    font.width("time (units)", TICK) + AXIS_HEADING_GAP
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
fn look(event: &Event, stages: &BTreeMap<u32, u32>, theme: Theme) -> (Rgb, Option<u32>) {
    match event.activity {
        Activity::Action(action) if action.kind.is_compute() => {
            let nth = stages.get(&action.stage).copied().unwrap_or_default();
            (theme.shaded(action.kind, action.micro_batch, nth), Some(action.micro_batch))
        }
        Activity::Action(action) => (theme.action(action.kind), None),
        Activity::Collective { .. } => (theme.stream(Stream::Tensor), None),
        Activity::Copy { .. } => (theme.stream(Stream::Host), None),
        Activity::Wait(_) => (theme.waiting(), None),
    }
}
