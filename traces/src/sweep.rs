//! What the best of several settings reach: a bar for each, with what it is written beside.

use std::borrow::Cow;

use plotters::backend::DrawingBackend;

use crate::canvas::{
    self, Align, Area, Canvas, DrawError, Font, Format, Paper, Picture, Text, Ticks, Title,
    baseline_around,
};
use crate::palette::Rgb;

/// A setting, and what its best reaches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bar {
    /// The setting, such as `64 GPUs`.
    pub name: String,
    /// What it reaches; none where nothing does.
    pub value: Option<f64>,
    /// What is written behind the bar.
    pub note: String,
}

/// The bars, one below the other, as an SVG document; `axis` names what they reach, and its unit.
///
/// # Errors
///
/// If the paper is too narrow for the names.
pub fn svg(title: &str, axis: &str, bars: &[Bar], paper: Paper) -> Result<String, DrawError> {
    let font = Font::embedded();
    canvas::svg(&Chart::new(title, axis, bars, paper, &font)?, &font)
}

/// The same as a file of a format.
///
/// # Errors
///
/// As [`svg`], and if a bitmap has too many pixels.
pub fn draw(
    title: &str,
    axis: &str,
    bars: &[Bar],
    paper: Paper,
    format: Format,
) -> Result<Vec<u8>, DrawError> {
    let font = Font::embedded();
    let chart = Chart::new(title, axis, bars, paper, &font)?;
    canvas::draw(&chart, &font, format, paper.pixel_ratio)
}

const MARGIN: f64 = 18.0;
const NAME: f64 = 11.0;
const NOTE: f64 = 10.0;
const PITCH: f64 = 26.0;
const BAR: f64 = 16.0;
const GAP: f64 = 8.0;
/// Ticks below the bars, and the axis's name below these.
const BELOW: f64 = 40.0;
/// The shortest that the longest bar may be.
const LEAST_PLOT: f64 = 160.0;
const NUM_TICKS: f64 = 5.0;

struct Chart<'a> {
    title: &'a str,
    axis: &'a str,
    heading: Title,
    bars: &'a [Bar],
    /// Where bars begin.
    left: f64,
    /// How long one is that reaches the most.
    length: f64,
    most: f64,
    top: f64,
    paper: Paper,
}

impl<'a> Chart<'a> {
    fn new(
        title: &'a str,
        axis: &'a str,
        bars: &'a [Bar],
        paper: Paper,
        font: &Font,
    ) -> Result<Self, DrawError> {
        let widest = |size: f64, text: fn(&Bar) -> &str| {
            bars.iter().map(|bar| font.width(text(bar), size)).fold(0.0, f64::max)
        };
        let left = MARGIN + widest(NAME, |bar| &bar.name) + GAP;
        let right = f64::from(paper.width) - MARGIN - widest(NOTE, |bar| &bar.note) - GAP;
        if right - left < LEAST_PLOT {
            let least = (f64::from(paper.width) + LEAST_PLOT - (right - left)).ceil() as u32;
            return Err(DrawError::TooSmall { what: "width", given: paper.width, least });
        }
        let heading = Title::new(title, font, f64::from(paper.width) - 2.0 * MARGIN);
        let top = MARGIN + heading.height() + GAP;
        let most = bars.iter().filter_map(|bar| bar.value).fold(0.0, f64::max);
        let length = right - left;
        Ok(Self { title, axis, heading, bars, left, length, most, top, paper })
    }

    fn bottom(&self) -> f64 {
        self.top + PITCH * self.bars.len() as f64
    }
}

impl Picture for Chart<'_> {
    fn title(&self) -> Cow<'_, str> {
        self.title.into()
    }

    fn size(&self) -> (u32, u32) {
        (self.paper.width, (self.bottom() + BELOW + MARGIN).ceil() as u32)
    }

    fn background(&self) -> Rgb {
        self.paper.theme.background()
    }

    fn draw<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>) -> Result<(), DrawError> {
        let theme = self.paper.theme;
        self.heading.draw(canvas, MARGIN, MARGIN, theme)?;
        let most = if self.most > 0.0 { self.most } else { 1.0 };
        for (value, label) in Ticks::new(most, NUM_TICKS).iter() {
            let x = self.left + value / most * self.length;
            let height = self.bottom() - self.top;
            canvas.fill(Area { left: x - 0.5, top: self.top, width: 1.0, height }, theme.grid())?;
            let (content, size, align, color) = (&*label, NOTE, Align::Center, theme.muted_text());
            let baseline = self.bottom() + 14.0;
            canvas.text(&Text { content, x, baseline, size, align, color })?;
        }
        let (content, x, baseline) = (self.axis, self.left, self.bottom() + 30.0);
        let (size, align, color) = (NOTE, Align::Left, theme.muted_text());
        canvas.text(&Text { content, x, baseline, size, align, color })?;
        for (index, bar) in self.bars.iter().enumerate() {
            let middle = self.top + PITCH * (index as f64 + 0.5);
            let (content, x, size, align, color) =
                (&*bar.name, self.left - GAP, NAME, Align::Right, theme.text());
            let baseline = baseline_around(middle, size);
            canvas.text(&Text { content, x, baseline, size, align, color })?;
            let width = bar.value.unwrap_or(0.0) / most * self.length;
            if width > 0.0 {
                let (left, top) = (self.left, middle - BAR / 2.0);
                canvas.fill(Area { left, top, width, height: BAR }, theme.series(0))?;
            }
            let (content, x, size, align, color) =
                (&*bar.note, self.left + width + GAP, NOTE, Align::Left, theme.muted_text());
            let baseline = baseline_around(middle, size);
            canvas.text(&Text { content, x, baseline, size, align, color })?;
        }
        Ok(())
    }
}
