//! What a picture is called, in as many lines as it takes.

use plotters::backend::DrawingBackend;

use super::{Align, Canvas, DrawError, Font, Text};
use crate::palette::Theme;

/// A title, cut into lines.
#[derive(Clone, Debug)]
pub(crate) struct Title {
    lines: Vec<String>,
}

const SIZE: f64 = 15.0;
const LINE: f64 = 21.0;
/// From a line's baseline to the next line.
const BELOW_BASELINE: f64 = 7.0;

impl Title {
    /// In lines that are no wider than `width`.
    pub(crate) fn new(text: &str, font: &Font, width: f64) -> Self {
        Self { lines: font.wrap(text, SIZE, width) }
    }

    /// How high it is, in CSS pixels.
    pub(crate) fn height(&self) -> f64 {
        self.lines.len() as f64 * LINE
    }

    pub(crate) fn draw<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        x: f64,
        top: f64,
        theme: Theme,
    ) -> Result<(), DrawError> {
        let mut baseline = top - BELOW_BASELINE;
        for content in &self.lines {
            baseline += LINE;
            let (size, align, color) = (SIZE, Align::Left, theme.text());
            canvas.text(&Text { content, x, baseline, size, align, color })?;
        }
        Ok(())
    }
}
