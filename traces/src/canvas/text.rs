//! A line of text in a picture.

use plotters_backend::BackendColor;

use crate::palette::Rgb;

/// Alignment of a text at its x.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Center,
    Right,
}

/// Size, alignment and colour of a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextStyle {
    /// Size of an em, in CSS pixels.
    pub(crate) size: f64,
    /// Alignment at its x.
    pub(crate) align: Align,
    pub(crate) color: Rgb,
}

/// A line of text with its position.
#[derive(Clone, Debug)]
pub(super) struct Text {
    pub(super) content: String,
    pub(super) x: f64,
    pub(super) baseline: f64,
    pub(super) style: TextStyle,
}

/// An opaque colour of the backend.
pub(super) fn opaque(color: Rgb) -> BackendColor {
    BackendColor { alpha: 1.0, rgb: (color.red, color.green, color.blue) }
}
