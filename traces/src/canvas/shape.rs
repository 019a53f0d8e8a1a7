//! Shapes, and the grids to which formats round them.

use super::font::{RISE, baseline_around};
use super::text::Text;
use crate::palette::Rgb;

/// Points of a line or of a polygon.
pub(super) type Points = Vec<(f64, f64)>;

/// A part of a drawing.
#[derive(Clone, Debug)]
pub(super) enum Shape {
    /// A filled rectangle, drawn at least as thick as the format's thinnest line.
    Fill(Area, Rgb),
    /// A line through points, each straight above, below or next to the one before.
    Steps { points: Points, thickness: f64, color: Rgb },
    /// A filled polygon.
    Polygon(Points, Rgb),
    /// A line of text.
    Text(Text),
}

/// A rectangle, in CSS pixels from the upper left corner of the picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Area {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

impl Area {
    pub(crate) fn right(self) -> f64 {
        self.left + self.width
    }

    pub(crate) fn bottom(self) -> f64 {
        self.top + self.height
    }

    /// Horizontal line across the area, centred at `y`.
    pub(crate) fn line_across(self, y: f64) -> Self {
        Self { top: y - 0.5, height: 1.0, ..self }
    }

    /// Vertical line through the area, centred at `x`.
    pub(crate) fn line_down(self, x: f64) -> Self {
        Self { left: x - 0.5, width: 1.0, ..self }
    }

    /// Centre of the area for text of a size: its x and its baseline.
    pub(crate) fn middle(self, size: f64) -> (f64, f64) {
        (self.left + self.width / 2.0, baseline_around(self.top + self.height / 2.0, size))
    }
}

/// Grid of integer units to which a format rounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    /// Units per CSS pixel.
    pub(super) scale: u32,
}

impl Grid {
    pub(super) fn unit(self, pixels: f64) -> i32 {
        (pixels * f64::from(self.scale)).round() as i32
    }

    /// Points in units of the grid, without repeated neighbours.
    pub(super) fn points(self, points: &Points) -> Vec<(i32, i32)> {
        let mut units: Vec<(i32, i32)> =
            points.iter().map(|(x, y)| (self.unit(*x), self.unit(*y))).collect();
        units.dedup();
        units
    }

    /// Upper left and lower right corner in units of the grid, at least one unit apart.
    pub(super) fn corners(self, area: Area) -> ((i32, i32), (i32, i32)) {
        let (left, top) = (self.unit(area.left), self.unit(area.top));
        let right = self.unit(area.right()).max(left + 1);
        ((left, top), (right, self.unit(area.bottom()).max(top + 1)))
    }

    pub(super) fn thickness(self, pixels: f64) -> u32 {
        self.unit(pixels).max(1).cast_unsigned()
    }

    /// Position of the top of a line of text.
    pub(super) fn top_of(self, text: &Text) -> (i32, i32) {
        (self.unit(text.x), self.unit(text.baseline - RISE * text.style.size))
    }
}
