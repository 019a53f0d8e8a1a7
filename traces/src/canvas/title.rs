//! Title of a picture, with as many lines as needed.

use super::{Align, Drawing, TextStyle, title_and_notes, wrap};
use crate::palette::Theme;

/// A title broken into lines, with smaller notes below it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Title {
    lines: Vec<String>,
    pub(crate) notes: Vec<String>,
}

const SIZE: f64 = 15.0;
const LINE: f64 = 21.0;
const NOTE_SIZE: f64 = 11.5;
const NOTE_LINE: f64 = 17.0;
/// Distance from a line's baseline to the next line.
const BELOW_BASELINE: f64 = 7.0;

impl Title {
    /// The first line of `text` as the title, the others as notes, none wider than `width`.
    pub(crate) fn new(text: &str, width: f64) -> Self {
        let (title, notes) = title_and_notes(text);
        Self::with_notes(title, notes.lines(), width)
    }

    /// A title and its notes, none wider than `width`.
    pub(crate) fn with_notes<'a>(
        title: &str,
        notes: impl IntoIterator<Item = &'a str>,
        width: f64,
    ) -> Self {
        let notes = notes.into_iter().flat_map(|note| wrap(note, NOTE_SIZE, width));
        Self { lines: wrap(title, SIZE, width), notes: notes.collect() }
    }

    /// Height in CSS pixels.
    pub(crate) fn height(&self) -> f64 {
        self.lines.len() as f64 * LINE + self.notes.len() as f64 * NOTE_LINE
    }

    pub(crate) fn draw(&self, drawing: &mut Drawing, x: f64, top: f64, theme: Theme) {
        let lines = self.lines.iter().map(|line| (line, SIZE, LINE, theme.text()));
        let notes = self.notes.iter().map(|line| (line, NOTE_SIZE, NOTE_LINE, theme.muted_text()));
        let mut baseline = top - BELOW_BASELINE;
        for (content, size, line, color) in lines.chain(notes) {
            baseline += line;
            drawing.text(content, (x, baseline), TextStyle { size, align: Align::Left, color });
        }
    }
}
