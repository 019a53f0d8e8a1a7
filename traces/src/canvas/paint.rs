//! Colours as the backends want them.

use plotters_backend::{BackendColor, BackendStyle};

use crate::palette::Rgb;

/// A colour that covers what is below it.
pub(super) fn paint(color: Rgb) -> BackendColor {
    BackendColor { alpha: 1.0, rgb: (color.red, color.green, color.blue) }
}

/// A line of a colour.
pub(super) struct Stroke {
    pub(super) color: Rgb,
    pub(super) width: u32,
}

impl BackendStyle for Stroke {
    fn color(&self) -> BackendColor {
        paint(self.color)
    }

    fn stroke_width(&self) -> u32 {
        self.width
    }
}
