//! Legend below a picture, with as many lines as needed.

use super::{Align, Area, Drawing, TextStyle, baseline_around, text_width, wrap};
use crate::palette::{Rgb, Theme};

/// The mark in front of an entry.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Swatch {
    Fill(Rgb),
    /// An outline.
    Frame(Rgb),
    /// Several shades of one colour, next to each other.
    Ramp(Vec<Rgb>),
    Dashes(Rgb),
    Line(Rgb),
    /// No mark: the entry is a remark.
    None,
    /// No mark: the entry continues the line above.
    Same,
}

/// A mark and its text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) swatch: Swatch,
    pub(crate) text: String,
}

/// Entries with their positions.
#[derive(Clone, Debug)]
pub(crate) struct Legend {
    /// Left edge, line and entry.
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
    /// Places entries one after the other from `left` on, with a new line where `right` is reached.
    pub(crate) fn new(entries: impl IntoIterator<Item = Entry>, left: f64, right: f64) -> Self {
        let (mut places, mut x, mut line) = (Vec::new(), left, 0);
        for entry in entries {
            let width = entry.swatch.width() + text_width(&entry.text, SIZE);
            if x > left && x + width > right {
                (x, line) = (left, line + 1);
            }
            let before = entry.swatch.width();
            let mut texts = wrap(&entry.text, SIZE, right - left - before).into_iter();
            let Some(first) = texts.next() else { continue };
            let is_remark = entry.swatch == Swatch::None;
            places.push((x, line, Entry { text: first, ..entry }));
            x += width + BETWEEN;
            for text in texts {
                line += 1;
                x = left + before + text_width(&text, SIZE) + BETWEEN;
                let swatch = if is_remark { Swatch::None } else { Swatch::Same };
                places.push((left + before, line, Entry { swatch, text }));
            }
        }
        let num_lines = if places.is_empty() { 0 } else { line + 1 };
        Self { places, num_lines }
    }

    /// Height in CSS pixels.
    pub(crate) fn height(&self) -> f64 {
        f64::from(self.num_lines) * LINE
    }

    pub(crate) fn draw(&self, drawing: &mut Drawing, top: f64, theme: Theme) {
        for (left, line, Entry { swatch, text }) in &self.places {
            let middle = top + (f64::from(*line) + 0.5) * LINE;
            swatch.draw(drawing, *left, middle);
            let at = (left + swatch.width(), baseline_around(middle, SIZE));
            let color = if *swatch == Swatch::None { theme.muted_text() } else { theme.text() };
            drawing.text(text, at, TextStyle { size: SIZE, align: Align::Left, color });
        }
    }
}

impl Swatch {
    /// Width of the mark, with the gap after it.
    fn width(&self) -> f64 {
        match self {
            Self::Fill(_) | Self::Frame(_) => SWATCH + GAP,
            Self::Ramp(_) => RAMP + GAP,
            Self::Dashes(_) | Self::Line(_) => DASHES + GAP,
            Self::None | Self::Same => 0.0,
        }
    }

    fn draw(&self, drawing: &mut Drawing, left: f64, middle: f64) {
        let area = |left, width| Area { left, top: middle - SWATCH / 2.0, width, height: SWATCH };
        match self {
            Self::Fill(color) => drawing.fill(area(left, SWATCH), *color),
            Self::Frame(color) => drawing.frame(area(left, SWATCH), OUTLINE, *color),
            Self::Ramp(colors) => {
                let width = RAMP / colors.len().max(1) as f64;
                for (color, index) in colors.iter().zip(0..) {
                    drawing.fill(area(left + f64::from(index) * width, width), *color);
                }
            }
            Self::Dashes(color) => drawing.dashes(left, left + DASHES, middle, *color),
            Self::Line(color) => drawing.fill(area(left, DASHES).line_across(middle), *color),
            Self::None | Self::Same => {}
        }
    }
}
