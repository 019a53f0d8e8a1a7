//! What the colours mean, in a line below a picture, or in as many as it takes.

use plotters::backend::DrawingBackend;

use super::font::baseline_around;
use super::{Align, Area, Canvas, DrawError, Font, Text};
use crate::palette::{Rgb, Theme};

/// The mark in front of a word.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Swatch {
    Fill(Rgb),
    /// The outline alone.
    Frame(Rgb),
    /// Several shades of one thing, side by side.
    Ramp(Vec<Rgb>),
    Dashes(Rgb),
    Line(Rgb),
    /// None: the words are a remark.
    None,
    /// None: the words go on from the line above.
    Same,
}

/// A mark and what it stands for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) swatch: Swatch,
    pub(crate) text: String,
}

/// Entries with their places.
#[derive(Clone, Debug)]
pub(crate) struct Legend {
    /// Left edge and line of each entry.
    places: Vec<(f64, u32, Entry)>,
    num_lines: u32,
}

const SIZE: f64 = 11.0;
const LINE: f64 = 19.0;
const SWATCH: f64 = 11.0;
const OUTLINE: f64 = 2.0;
const RAMP: f64 = 44.0;
const DASHES: f64 = 26.0;
const GAP: f64 = 6.0;
const BETWEEN: f64 = 18.0;

impl Legend {
    /// Entries one after the other from `left` on, a new line where `right` is reached.
    pub(crate) fn new(
        entries: impl IntoIterator<Item = Entry>,
        font: &Font,
        left: f64,
        right: f64,
    ) -> Self {
        let (mut places, mut x, mut line) = (Vec::new(), left, 0);
        for entry in entries {
            let width = entry.swatch.width() + font.width(&entry.text, SIZE);
            if x > left && x + width > right {
                (x, line) = (left, line + 1);
            }
            let before = entry.swatch.width();
            let mut texts = font.wrap(&entry.text, SIZE, right - left - before).into_iter();
            let Some(first) = texts.next() else { continue };
            let is_remark = entry.swatch == Swatch::None;
            places.push((x, line, Entry { text: first, ..entry }));
            x += width + BETWEEN;
            for text in texts {
                line += 1;
                x = left + before + font.width(&text, SIZE) + BETWEEN;
                let swatch = if is_remark { Swatch::None } else { Swatch::Same };
                places.push((left + before, line, Entry { swatch, text }));
            }
        }
        let num_lines = if places.is_empty() { 0 } else { line + 1 };
        Self { places, num_lines }
    }

    /// How high it is, in CSS pixels.
    pub(crate) fn height(&self) -> f64 {
        f64::from(self.num_lines) * LINE
    }

    pub(crate) fn draw<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        top: f64,
        theme: Theme,
    ) -> Result<(), DrawError> {
        for (left, line, Entry { swatch, text }) in &self.places {
            let middle = top + (f64::from(*line) + 0.5) * LINE;
            swatch.draw(canvas, *left, middle)?;
            canvas.text(&Text {
                content: text,
                x: left + swatch.width(),
                baseline: baseline_around(middle, SIZE),
                size: SIZE,
                align: Align::Left,
                color: if *swatch == Swatch::None { theme.muted_text() } else { theme.text() },
            })?;
        }
        Ok(())
    }
}

impl Swatch {
    /// With the gap after it.
    fn width(&self) -> f64 {
        match self {
            Self::Fill(_) | Self::Frame(_) => SWATCH + GAP,
            Self::Ramp(_) => RAMP + GAP,
            Self::Dashes(_) | Self::Line(_) => DASHES + GAP,
            Self::None | Self::Same => 0.0,
        }
    }

    fn draw<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        left: f64,
        middle: f64,
    ) -> Result<(), DrawError> {
        let area = |left, width| Area { left, top: middle - SWATCH / 2.0, width, height: SWATCH };
        match self {
            Self::Fill(color) => canvas.fill(area(left, SWATCH), *color),
            Self::Frame(color) => canvas.frame(area(left, SWATCH), OUTLINE, *color),
            Self::Ramp(colors) => {
                let width = RAMP / colors.len().max(1) as f64;
                let places = colors.iter().zip(0..);
                places.into_iter().try_for_each(|(color, index)| {
                    canvas.fill(area(left + f64::from(index) * width, width), *color)
                })
            }
            Self::Dashes(color) => canvas.dashes(left, left + DASHES, middle, *color),
            Self::Line(color) => {
                canvas.fill(Area { left, top: middle - 0.5, width: DASHES, height: 1.0 }, *color)
            }
            Self::None | Self::Same => Ok(()),
        }
    }
}
