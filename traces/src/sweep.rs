//! The best plan of each of several settings: a bar for each, with a note after it.

use crate::canvas::{
    Align, Area, DrawError, Drawing, Paper, TextStyle, Ticks, Title, baseline_around, text_width,
};

/// A setting, and the value of its best plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bar {
    /// The setting, such as `64 GPUs`.
    pub name: String,
    /// Value of the best plan; `None` where there is no plan.
    pub value: Option<f64>,
    /// Text after the bar.
    pub note: String,
}

const MARGIN: f64 = 18.0;
const NAME: f64 = 11.0;
const NOTE: f64 = 10.0;
const PITCH: f64 = 26.0;
const BAR: f64 = 16.0;
const GAP: f64 = 8.0;
/// Height below the bars: ticks, and the name of the axis.
const BELOW: f64 = 40.0;
/// Least length of the longest bar.
const LEAST_PLOT: f64 = 160.0;
const NUM_TICKS: f64 = 5.0;

/// Draws the bars below each other; `axis` names their value, with its unit.
///
/// # Errors
///
/// If the paper is too narrow for the names, or the picture too high.
pub fn draw(title: &str, axis: &str, bars: &[Bar], paper: Paper) -> Result<Drawing, DrawError> {
    let (width, theme) = (f64::from(paper.width), paper.theme);
    let widest = |size: f64, text: fn(&Bar) -> &str| {
        bars.iter().map(|bar| text_width(text(bar), size)).fold(0.0, f64::max)
    };
    let left = MARGIN + widest(NAME, |bar| &bar.name) + GAP;
    let right = width - MARGIN - widest(NOTE, |bar| &bar.note) - GAP;
    DrawError::check_side("width", paper.width, width + LEAST_PLOT - (right - left))?;
    let heading = Title::new(title, width - 2.0 * MARGIN);
    let top = MARGIN + heading.height() + GAP;
    let plot = Area { left, top, width: right - left, height: PITCH * bars.len() as f64 };
    let mut drawing = Drawing::new(title, width, plot.bottom() + BELOW + MARGIN, paper)?;
    heading.draw(&mut drawing, MARGIN, MARGIN, theme);

    let muted = TextStyle { size: NOTE, align: Align::Left, color: theme.muted_text() };
    let most = bars.iter().filter_map(|bar| bar.value).fold(0.0, f64::max);
    let most = if most > 0.0 { most } else { 1.0 };
    for (value, label) in Ticks::new(most, NUM_TICKS).iter() {
        let x = left + value / most * plot.width;
        drawing.fill(plot.line_down(x), theme.grid());
        let centered = TextStyle { align: Align::Center, ..muted };
        drawing.text(&label, (x, plot.bottom() + 14.0), centered);
    }
    drawing.text(axis, (left, plot.bottom() + 30.0), muted);
    for (index, bar) in bars.iter().enumerate() {
        let middle = top + PITCH * (index as f64 + 0.5);
        let style = TextStyle { size: NAME, align: Align::Right, color: theme.text() };
        drawing.text(&bar.name, (left - GAP, baseline_around(middle, NAME)), style);
        let width = bar.value.unwrap_or(0.0) / most * plot.width;
        if width > 0.0 {
            let area = Area { left, top: middle - BAR / 2.0, width, height: BAR };
            drawing.fill(area, theme.series(0));
        }
        drawing.text(&bar.note, (left + width + GAP, baseline_around(middle, NOTE)), muted);
    }
    Ok(drawing)
}
