//! Draws a panel at its position: heading, rows, time axis, memory.

use ir::units::Nanos;

use super::boxes::{DrawnBox, Look, RowPiece, Slot, TimeScale};
use super::columns::Columns;
use super::memory;
use super::options::{GanttOptions, TimeAxis};
use super::panel::{AXIS, BETWEEN_BOXES, LANE_NAME, NAME, Panel, RowHeights, SMALLEST_NUMBER};
use super::row::Row;
use crate::canvas::{Align, Area, Drawing, Paper, TextStyle, Ticks, baseline_around, text_width};
use crate::palette::Rgb;

const TICK: f64 = 10.0;
/// Gap between the names of rows and the plot.
pub(super) const BESIDE_NAMES: f64 = 8.0;
/// Gap between the heading of the time axis and the plot; it holds half of the first number.
const AXIS_HEADING_GAP: f64 = 18.0;
/// Gap between lanes, and between boxes and the first lane.
const BETWEEN_LANES: f64 = 1.0;
const ABOVE_LANES: f64 = 1.5;
/// Gap between two boxes above each other.
const BETWEEN_HALVES: f64 = 0.75;
/// Width from which a box has a line between it and the next one of the same look.
const WIDE: f64 = 4.0;
/// Share of black in the colour of that line.
const LINE_SHADE: f64 = 0.35;

/// Painter of a panel.
pub(super) struct PanelPainter<'a> {
    pub(super) panel: &'a Panel<'a>,
    pub(super) rows: RowHeights,
    pub(super) scale: TimeScale,
    pub(super) options: &'a GanttOptions,
    pub(super) drawing: &'a mut Drawing,
}

impl PanelPainter<'_> {
    /// Draws the panel from `top` on, with its heading from `margin` on.
    pub(super) fn draw(&mut self, margin: f64, top: f64) {
        let Self { panel, scale, options, .. } = *self;
        panel.heading.draw(self.drawing, margin, top, options.paper.theme);
        let top = top - 2.0 + panel.heading_height();
        let pitch = panel.pitch(self.rows);
        for (index, row) in panel.rows.iter().enumerate() {
            self.row(row, top + index as f64 * pitch);
        }
        self.names(top, pitch);
        let bottom = top + panel.tracks.len() as f64 * pitch;
        self.time_axis(bottom);
        if panel.has_memory {
            let (left, width) = (scale.left, scale.right - scale.left);
            let top = bottom + AXIS + memory::HEADING;
            let area = Area { left, top, width, height: memory::HEIGHT };
            let (axis, theme) = (options.time_axis, options.paper.theme);
            memory::draw(self.drawing, &panel.tracks, area, scale, panel.end, axis, theme);
        }
    }

    fn row(&mut self, row: &Row, top: f64) {
        let left = self.scale.left;
        let width = self.scale.x(self.panel.end) - left;
        if width <= 0.0 {
            return;
        }
        let area = Area { left, top, width, height: self.rows.boxes };
        self.drawing.fill(area, self.options.paper.theme.idle());
        self.pieces(row, &row.compute, area);
        for (index, pieces) in row.lanes.iter().enumerate() {
            let top = self.lane_top(top, index);
            let height = self.panel.lane_pitch() - BETWEEN_LANES;
            self.pieces(row, pieces, Area { left, top, width, height });
        }
    }

    /// Draws the pieces of a row, or of a lane, into its area.
    fn pieces(&mut self, row: &Row, pieces: &[RowPiece], area: Area) {
        let mut columns = Columns::new(area, grain(self.options.paper));
        for (index, piece) in pieces.iter().enumerate() {
            match piece {
                RowPiece::Column(column) => columns.add(column),
                RowPiece::Overlap(left, right) => {
                    let overlap = Area { left: *left, width: right - left, ..area };
                    self.drawing.fill(overlap, self.options.paper.theme.background());
                }
                RowPiece::Box(drawn) => {
                    let next = pieces.get(index + 1);
                    self.one(row, drawn, next.is_some_and(|next| follows(drawn, next)), area);
                }
            }
        }
        for (area, look) in columns.finish() {
            self.drawing.fill(area, self.color(row, look));
        }
    }

    /// Draws a box into its part of the row, with a line after it where the next looks alike.
    fn one(&mut self, row: &Row, drawn: &DrawnBox, is_followed: bool, area: Area) {
        let half = area.height / 2.0;
        let (top, height) = match drawn.slot {
            Slot::Whole => (area.top, area.height),
            Slot::Upper => (area.top, half - BETWEEN_HALVES / 2.0),
            Slot::Lower => (area.top + half + BETWEEN_HALVES / 2.0, half - BETWEEN_HALVES / 2.0),
        };
        let area = Area { left: drawn.left, top, width: drawn.right - drawn.left, height };
        let color = self.color(row, drawn.look);
        self.drawing.fill(area, color);
        if is_followed {
            let line = Area { left: area.right() - BETWEEN_BOXES, width: BETWEEN_BOXES, ..area };
            self.drawing.fill(line, color.mix(Rgb::BLACK, LINE_SHADE));
        }
        let size = self.panel.number_size.min(self.rows.boxes * 0.5).max(SMALLEST_NUMBER);
        let size = size.min(area.height * 0.85);
        let Some(label) = drawn.label.filter(|_| size >= SMALLEST_NUMBER) else { return };
        if let Some(size) = self.panel.number_size_in(area.width, size) {
            let style = TextStyle { size, align: Align::Center, color: color.ink() };
            self.drawing.text(&label.to_string(), area.middle(size), style);
        }
    }

    fn color(&self, row: &Row, look: Look) -> Rgb {
        let color = look.class.color(self.options.paper.theme);
        if look.class.is_pass() { color.shaded(look.nth, row.num_stages) } else { color }
    }

    /// Top of a lane, from the top of its row.
    fn lane_top(&self, top: f64, index: usize) -> f64 {
        top + self.rows.boxes + ABOVE_LANES + index as f64 * self.panel.lane_pitch()
    }

    /// Draws the names of tracks, or of every second, third, ... where rows are thin, and of their lanes.
    fn names(&mut self, top: f64, pitch: f64) {
        let (panel, theme) = (self.panel, self.options.paper.theme);
        let size = (pitch * 0.82).clamp(8.0, NAME);
        let every = ((size + 1.0) / pitch).ceil().max(1.0) as usize;
        let x = self.scale.left - BESIDE_NAMES;
        let style = TextStyle { size, align: Align::Right, color: theme.text() };
        let lane_style = TextStyle { size: LANE_NAME, color: theme.muted_text(), ..style };
        for (index, track) in panel.tracks.iter().enumerate().step_by(every) {
            let top = top + index as f64 * pitch;
            let baseline = baseline_around(top + self.rows.boxes / 2.0, size);
            self.drawing.text(&track.name, (x, baseline), style);
            for (lane, stream) in panel.named_lanes().iter().enumerate() {
                let middle = self.lane_top(top, lane) + panel.lane_pitch() / 2.0;
                let baseline = baseline_around(middle, LANE_NAME) - BETWEEN_LANES / 2.0;
                self.drawing.text(panel.lane_name(*stream), (x, baseline), lane_style);
            }
        }
    }

    fn time_axis(&mut self, top: f64) {
        let TimeScale { left, right, from, to } = self.scale;
        let axis = self.options.time_axis;
        let unit = unit(axis, to);
        let range = [from, to].map(|time| time.as_f64() / unit.nanos);
        let width = right - left;
        let x = |value: f64| left + (value - range[0]) / (range[1] - range[0]) * width;
        let color = self.options.paper.theme.muted_text();
        self.drawing.fill(Area { left, top, width, height: 1.0 }, color);
        let mut write = |content: &str, x: f64, align| {
            self.drawing.text(content, (x, top + 16.0), TextStyle { size: TICK, align, color });
        };
        write(unit.heading, left - AXIS_HEADING_GAP, Align::Right);
        if to == Nanos::ZERO {
            return;
        }
        let ticks = match axis {
            TimeAxis::Clock => Ticks::between(range, width / 90.0),
            TimeAxis::Units(_) => Ticks::whole(range, width / 90.0),
        };
        for (value, label) in ticks.iter() {
            write(&label, x(value), Align::Center);
        }
        for (value, _) in ticks.iter() {
            let left = x(value) - 0.5;
            self.drawing.fill(Area { left, top, width: 1.0, height: 4.0 }, color);
        }
    }
}

/// Least height that a bitmap of the paper shows exactly, at least half a pixel, so that columns are the same in all
/// formats.
fn grain(paper: Paper) -> f64 {
    if paper.pixel_ratio > 1 { 0.5 } else { 1.0 }
}

/// Returns whether a box looks like the next one, touches it, and is wide enough for a line between the two.
fn follows(drawn: &DrawnBox, next: &RowPiece) -> bool {
    const TOUCHING: f64 = 0.5;
    let RowPiece::Box(next) = next else { return false };
    drawn.right - drawn.left >= WIDE
        && (next.look, next.slot) == (drawn.look, drawn.slot)
        && next.left - drawn.right < TOUCHING
}

/// Largest width of the heading of a time axis, with the gap after it.
pub(super) fn axis_heading_width() -> f64 {
    text_width("time (units)", TICK) + AXIS_HEADING_GAP
}

/// Unit of an axis.
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
