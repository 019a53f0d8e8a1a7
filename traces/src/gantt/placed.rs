//! A panel in its place: heading, rows, time axis, memory.

use ir::units::Nanos;
use plotters::backend::DrawingBackend;

use super::boxes::{DrawnBox, Look, Piece, Slot, TimeScale};
use super::columns::Columns;
use super::memory::{self, Measure};
use super::options::TimeAxis;
use super::panel::{
    AXIS, BETWEEN_BOXES, LANE_NAME, NAME, Panel, RowHeights, SMALLEST_NUMBER, SUBTITLE,
    SUBTITLE_LINE, TITLE, TITLE_LINE,
};
use super::row::Row;
use crate::canvas::{Align, Area, Canvas, DrawError, Font, Text, Ticks, baseline_around};
use crate::palette::{Rgb, Theme};

const TICK: f64 = 10.0;
/// From the heading of the time axis to the plot: half of the first number lies in it.
const AXIS_HEADING_GAP: f64 = 18.0;
/// From a lane to the next, and from boxes to the first lane.
const BETWEEN_LANES: f64 = 1.0;
const ABOVE_LANES: f64 = 1.5;
/// Between two boxes one above the other.
const BETWEEN_HALVES: f64 = 0.75;
/// A box at least this wide has a line between it and the next that looks alike.
const WIDE: f64 = 4.0;
/// How much darker that line is.
const LINE_SHADE: f64 = 0.35;

/// A panel where it is drawn.
pub(super) struct Placed<'a> {
    pub(super) panel: &'a Panel<'a>,
    pub(super) top: f64,
    /// Left edge of the picture's content.
    pub(super) margin: f64,
    pub(super) rows: RowHeights,
    pub(super) scale: TimeScale,
    /// The least height of what columns are drawn of.
    pub(super) grain: f64,
    pub(super) axis: TimeAxis,
    pub(super) theme: Theme,
}

impl Placed<'_> {
    pub(super) fn draw<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
    ) -> Result<(), DrawError> {
        self.heading(canvas)?;
        let top = self.top + self.panel.heading_height();
        let pitch = self.panel.pitch(self.rows);
        for (index, row) in self.panel.rows.iter().enumerate() {
            self.row(canvas, row, top + index as f64 * pitch)?;
        }
        self.names(canvas, top, pitch)?;
        let bottom = top + self.panel.tracks.len() as f64 * pitch;
        self.time_axis(canvas, bottom)?;
        if self.panel.has_memory {
            let area = Area {
                left: self.scale.left,
                top: bottom + AXIS + memory::HEADING,
                width: self.scale.right - self.scale.left,
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

    fn row<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        row: &Row,
        top: f64,
    ) -> Result<(), DrawError> {
        let left = self.scale.left;
        let width = self.scale.x(self.panel.end) - left;
        if width <= 0.0 {
            return Ok(());
        }
        let height = self.rows.boxes;
        canvas.fill(Area { left, top, width, height }, self.theme.idle())?;
        self.pieces(canvas, row, &row.compute, Area { left, top, width, height })?;
        for (index, pieces) in row.lanes.iter().enumerate() {
            let top = self.lane_top(top, index);
            let height = self.panel.lane_pitch() - BETWEEN_LANES;
            self.pieces(canvas, row, pieces, Area { left, top, width, height })?;
        }
        Ok(())
    }

    /// Draws the pieces of a row, or of a lane, into its area.
    fn pieces<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        row: &Row,
        pieces: &[Piece],
        area: Area,
    ) -> Result<(), DrawError> {
        let mut columns = Columns::new(area, self.grain);
        for (index, piece) in pieces.iter().enumerate() {
            match piece {
                Piece::Column(column) => columns.add(column),
                Piece::Overlap(left, right) => {
                    let overlap = Area { left: *left, width: right - left, ..area };
                    canvas.fill(overlap, self.theme.background())?;
                }
                Piece::Box(drawn) => {
                    let is_followed =
                        pieces.get(index + 1).is_some_and(|next| follows(drawn, next));
                    self.one(canvas, row, drawn, is_followed, area)?;
                }
            }
        }
        for (area, look) in columns.finish() {
            canvas.fill(area, self.color(row, look))?;
        }
        Ok(())
    }

    /// Draws a box into its part of the row, with a line after it where the next looks alike.
    fn one<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        row: &Row,
        drawn: &DrawnBox,
        is_followed: bool,
        area: Area,
    ) -> Result<(), DrawError> {
        let half = area.height / 2.0;
        let (top, height) = match drawn.slot {
            Slot::Whole => (area.top, area.height),
            Slot::Upper => (area.top, half - BETWEEN_HALVES / 2.0),
            Slot::Lower => (area.top + half + BETWEEN_HALVES / 2.0, half - BETWEEN_HALVES / 2.0),
        };
        let area = Area { left: drawn.left, top, width: drawn.right - drawn.left, height };
        let color = self.color(row, drawn.look);
        canvas.fill(area, color)?;
        if is_followed {
            let line = Area { left: area.right() - BETWEEN_BOXES, width: BETWEEN_BOXES, ..area };
            canvas.fill(line, color.mix(Rgb::BLACK, LINE_SHADE))?;
        }
        self.number(canvas, drawn.label, area, color)
    }

    fn color(&self, row: &Row, look: Look) -> Rgb {
        let color = look.class.color(self.theme);
        if look.class.is_pass() { color.shaded(look.nth, row.num_stages) } else { color }
    }

    /// The top of a lane, by that of its row.
    fn lane_top(&self, top: f64, index: usize) -> f64 {
        top + self.rows.boxes + ABOVE_LANES + index as f64 * self.panel.lane_pitch()
    }

    fn number<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        label: Option<u32>,
        area: Area,
        background: Rgb,
    ) -> Result<(), DrawError> {
        let size = self.panel.number_size.min(self.rows.boxes * 0.5).max(SMALLEST_NUMBER);
        let size = size.min(area.height * 0.85);
        let Some(label) = label.filter(|_| size >= SMALLEST_NUMBER) else { return Ok(()) };
        let Some(size) = self.panel.number_size_in(area.width, size) else { return Ok(()) };
        let content = &label.to_string();
        canvas.text(&Text {
            content,
            x: area.left + area.width / 2.0,
            baseline: baseline_around(area.top + area.height / 2.0, size),
            size,
            align: Align::Center,
            color: background.ink(),
        })
    }

    /// The names of tracks, or of every second, third, ... where rows are thin, and of their lanes.
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
            if self.panel.has_named_lanes() {
                self.lane_names(canvas, top + index as f64 * pitch)?;
            }
        }
        Ok(())
    }

    fn lane_names<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        top: f64,
    ) -> Result<(), DrawError> {
        for (index, stream) in self.panel.lanes.iter().enumerate() {
            let middle = self.lane_top(top, index) + self.panel.lane_pitch() / 2.0;
            canvas.text(&Text {
                content: self.panel.lane_name(*stream),
                x: self.scale.left - 8.0,
                baseline: baseline_around(middle, LANE_NAME) - BETWEEN_LANES / 2.0,
                size: LANE_NAME,
                align: Align::Right,
                color: self.theme.muted_text(),
            })?;
        }
        Ok(())
    }

    fn time_axis<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        top: f64,
    ) -> Result<(), DrawError> {
        let TimeScale { left, right, from, to } = self.scale;
        let unit = unit(self.axis, to);
        let range = [from, to].map(|time| time.as_f64() / unit.nanos);
        let width = right - left;
        let x = |value: f64| left + (value - range[0]) / (range[1] - range[0]) * width;
        let color = self.theme.muted_text();
        canvas.fill(Area { left, top, width, height: 1.0 }, color)?;
        let mut write = |content: &str, x: f64, align| {
            canvas.text(&Text { content, x, baseline: top + 16.0, size: TICK, align, color })
        };
        write(unit.heading, left - AXIS_HEADING_GAP, Align::Right)?;
        if to == Nanos::ZERO {
            return Ok(());
        }
        let ticks = match self.axis {
            TimeAxis::Clock => Ticks::between(range, width / 90.0),
            TimeAxis::Units(_) => Ticks::whole(range, width / 90.0),
        };
        for (value, label) in ticks.iter() {
            write(&label, x(value), Align::Center)?;
        }
        for (value, _) in ticks.iter() {
            let left = x(value) - 0.5;
            canvas.fill(Area { left, top, width: 1.0, height: 4.0 }, color)?;
        }
        Ok(())
    }
}

/// Whether a box looks like what comes right after it, and is wide enough for a line between the two.
fn follows(drawn: &DrawnBox, next: &Piece) -> bool {
    const TOUCHING: f64 = 0.5;
    let Piece::Box(next) = next else { return false };
    drawn.right - drawn.left >= WIDE
        && (next.look, next.slot) == (drawn.look, drawn.slot)
        && next.left - drawn.right < TOUCHING
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
        (TimeAxis::Clock, 1_000..1_000_000) => Unit { nanos: 1e3, heading: "time (\u{b5}s)" },
        (TimeAxis::Clock, 1_000_000..2_000_000_000) => Unit { nanos: 1e6, heading: "time (ms)" },
        (TimeAxis::Clock, _) => Unit { nanos: 1e9, heading: "time (s)" },
    }
}
