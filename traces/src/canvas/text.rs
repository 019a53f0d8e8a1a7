//! A line of text in a picture.

use plotters_backend::BackendColor;

use crate::palette::Rgb;

/// Which part of a text is at its x.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Center,
    Right,
}

/// Size, place and colour of a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextStyle {
    /// The em, in CSS pixels.
    pub(crate) size: f64,
    /// Which part of the text is at its x.
    pub(crate) align: Align,
    pub(crate) color: Rgb,
}

/// A line of text and where it goes.
#[derive(Clone, Debug)]
pub(super) struct Text {
    pub(super) content: String,
    pub(super) x: f64,
    pub(super) baseline: f64,
    pub(super) style: TextStyle,
}

/// A colour that covers what is below it.
pub(super) fn opaque(color: Rgb) -> BackendColor {
    BackendColor { alpha: 1.0, rgb: (color.red, color.green, color.blue) }
}
