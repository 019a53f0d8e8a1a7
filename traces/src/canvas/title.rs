//! What a picture is called, in as many lines as it takes.

use plotters::backend::DrawingBackend;

use super::notes::parts;
use super::{Align, Canvas, DrawError, Font, Text};
use crate::palette::Theme;

/// A title, cut into lines, and lines of less weight below it.
#[derive(Clone, Debug)]
pub(crate) struct Title {
    lines: Vec<String>,
    notes: Vec<String>,
}

const SIZE: f64 = 15.0;
const LINE: f64 = 21.0;
const NOTE_SIZE: f64 = 11.5;
const NOTE_LINE: f64 = 17.0;
/// From a line's baseline to the next line.
const BELOW_BASELINE: f64 = 7.0;

impl Title {
    /// The first line of `text` as the title, the others as notes, all of them no wider than `width`.
    pub(crate) fn new(text: &str, font: &Font, width: f64) -> Self {
        let (title, notes) = parts(text);
        let notes = notes.lines().flat_map(|note| font.wrap(note, NOTE_SIZE, width));
        Self { lines: font.wrap(title, SIZE, width), notes: notes.collect() }
    }

    /// How high it is, in CSS pixels.
    pub(crate) fn height(&self) -> f64 {
        self.lines.len() as f64 * LINE + self.notes.len() as f64 * NOTE_LINE
    }

    pub(crate) fn draw<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        x: f64,
        top: f64,
        theme: Theme,
    ) -> Result<(), DrawError> {
        let lines = self.lines.iter().map(|line| (line, SIZE, LINE, theme.text()));
        let notes = self.notes.iter().map(|line| (line, NOTE_SIZE, NOTE_LINE, theme.muted_text()));
        let mut baseline = top - BELOW_BASELINE;
        for (content, size, line, color) in lines.chain(notes) {
            baseline += line;
            canvas.text(&Text { content, x, baseline, size, align: Align::Left, color })?;
        }
        Ok(())
    }
}
