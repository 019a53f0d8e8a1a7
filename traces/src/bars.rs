//! Memory as stacked bars: one for each pipeline rank, or for each plan, with a part for each line of memory.

use ir::units::Bytes;

use crate::canvas::{
    Align, Area, DrawError, Drawing, Entry, Legend, Paper, Swatch, TextStyle, Ticks, Title,
    baseline_around, text_width,
};

/// A stacked bar.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryBar {
    /// Text below it, such as `rank 3`.
    pub name: String,
    /// Parts of the bar, from the bottom to the top.
    pub parts: Vec<MemoryPart>,
}

/// A part of a bar. Parts of the same name have the same colour in all bars, by the order in which names first occur,
/// including empty parts. Parts that are empty in all bars are not in the legend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryPart {
    /// Name, such as `gradients`.
    pub name: String,
    /// Size in bytes.
    pub bytes: Bytes,
}

impl MemoryBar {
    /// Sum of all parts.
    pub fn total(&self) -> Bytes {
        self.parts.iter().map(|part| part.bytes).sum()
    }
}

/// Height of the picture, in CSS pixels.
const HEIGHT: u32 = 420;
const MARGIN: f64 = 18.0;
const LABEL: f64 = 10.5;
const TICK: f64 = 10.0;
/// Text size of numbers in parts.
const SIZE: f64 = 9.0;
/// Distance from the top of a bar to the number above it.
const ABOVE_BAR: f64 = 5.0;
/// Height between title and plot: heading of the axis, and number above the highest bar.
const ABOVE_PLOT: f64 = 34.0;
/// Height below the plot: names of bars, and the gap before the legend.
const BELOW_PLOT: f64 = 32.0;
const LEFT_OF_PLOT: f64 = 44.0;
/// Top of the axis, relative to the largest value shown, so that the tick above it often fits.
const ROOM: f64 = 1.02;
const WIDEST_BAR: f64 = 64.0;
const LEAST_PLOT: f64 = 60.0;
/// Height from which a part has a line between it and the next.
const HIGH: f64 = 3.0;
const BETWEEN_PARTS: f64 = 0.75;

/// Draws the bars, with a line at `capacity`.
///
/// # Errors
///
/// If the picture is too small for what it must show.
pub fn draw(
    title: &str,
    bars: &[MemoryBar],
    capacity: Option<Bytes>,
    paper: Paper,
) -> Result<Drawing, DrawError> {
    let (Paper { width, theme, .. }, mut parts) = (paper, Vec::<&str>::new());
    for part in bars.iter().flat_map(|bar| &bar.parts) {
        if !parts.contains(&part.name.as_str()) {
            parts.push(&part.name);
        }
    }
    let (left, right) = (MARGIN + LEFT_OF_PLOT, f64::from(width) - MARGIN);
    let legend = Legend::new(entries(&parts, bars, capacity, paper), left, right);
    let heading = Title::new(title, right - MARGIN);
    let top = MARGIN + heading.height() + ABOVE_PLOT;
    let below = BELOW_PLOT + legend.height() + MARGIN;
    let plot = Area { left, top, width: right - left, height: f64::from(HEIGHT) - top - below };
    for (what, given, room) in [("width", width, plot.width), ("height", HEIGHT, plot.height)] {
        DrawError::check_side(what, given, f64::from(given) - room + LEAST_PLOT)?;
    }
    let most = bars.iter().map(MemoryBar::total).max().max(capacity).unwrap_or_default();
    let most = if most == Bytes::ZERO { 1.0 } else { most.as_gib() * ROOM };
    let drawing = Drawing::new(title, width.into(), HEIGHT.into(), paper)?;
    let mut chart = Chart { bars, capacity, parts, plot, most, paper, drawing };

    heading.draw(&mut chart.drawing, MARGIN, MARGIN, theme);
    chart.axis();
    let pitch = plot.width / bars.len().max(1) as f64;
    let width = (pitch * 0.62).min(WIDEST_BAR);
    let middle = |index: usize| plot.left + (index as f64 + 0.5) * pitch;
    for (index, bar) in bars.iter().enumerate() {
        chart.bar(bar, middle(index) - width / 2.0, width);
    }
    if let Some(capacity) = capacity {
        let y = chart.y(capacity);
        chart.drawing.dashes(plot.left, plot.right(), y, theme.limit());
    }
    let every = chart.labelled(pitch);
    for (index, bar) in bars.iter().enumerate().step_by(every) {
        let style = TextStyle { size: LABEL, align: Align::Center, color: theme.text() };
        chart.drawing.text(&bar.name, (middle(index), plot.bottom() + 16.0), style);
        // Where bars are closer than numbers, a total could be read as its neighbour's.
        if every == 1 {
            chart.total(bar.total(), middle(index));
        }
    }
    legend.draw(&mut chart.drawing, plot.bottom() + BELOW_PLOT, theme);
    Ok(chart.drawing)
}

/// Legend of the parts, without those that are empty in all bars, and of the line at the capacity.
fn entries(
    parts: &[&str],
    bars: &[MemoryBar],
    capacity: Option<Bytes>,
    paper: Paper,
) -> Vec<Entry> {
    let is_there = |name: &str| {
        let parts = bars.iter().flat_map(|bar| &bar.parts);
        parts.filter(|part| part.name == name).any(|part| part.bytes > Bytes::ZERO)
    };
    let of_part = |(index, name): (usize, &&str)| Entry {
        swatch: Swatch::Fill(paper.theme.series(index)),
        text: (*name).to_owned(),
    };
    let of_capacity = capacity.map(|capacity| Entry {
        swatch: Swatch::Dashes(paper.theme.limit()),
        text: format!("capacity, {capacity}"),
    });
    let there = parts.iter().enumerate().filter(|(_, name)| is_there(name));
    there.map(of_part).chain(of_capacity).collect()
}

/// State of the drawing.
struct Chart<'a> {
    bars: &'a [MemoryBar],
    capacity: Option<Bytes>,
    /// Names of parts, in the order of their colours.
    parts: Vec<&'a str>,
    plot: Area,
    /// Height of the plot, in GiB.
    most: f64,
    paper: Paper,
    drawing: Drawing,
}

impl Chart<'_> {
    fn y(&self, bytes: Bytes) -> f64 {
        self.plot.bottom() - bytes.as_gib() / self.most * self.plot.height
    }

    fn axis(&mut self) {
        let (theme, plot) = (self.paper.theme, self.plot);
        let style = TextStyle { size: TICK, align: Align::Right, color: theme.muted_text() };
        for (value, label) in Ticks::new(self.most, plot.height / 44.0).iter() {
            let y = plot.bottom() - value / self.most * plot.height;
            let line = if value > 0.0 { theme.grid() } else { theme.muted_text() };
            self.drawing.fill(plot.line_across(y), line);
            self.drawing.text(&label, (plot.left - 8.0, baseline_around(y, TICK)), style);
        }
        let heading = TextStyle { align: Align::Left, ..style };
        self.drawing.text("memory (GiB)", (MARGIN, plot.top - 20.0), heading);
    }

    /// Draws the parts of a bar, each with its size where that fits.
    fn bar(&mut self, bar: &MemoryBar, left: f64, width: f64) {
        let mut below = Bytes::ZERO;
        for part in &bar.parts {
            let (bottom, top) = (self.y(below), self.y(below + part.bytes));
            below += part.bytes;
            if part.bytes == Bytes::ZERO {
                continue;
            }
            let between = if bottom - top < HIGH { 0.0 } else { BETWEEN_PARTS };
            let height = bottom - top - between;
            let series = self.parts.iter().position(|name| *name == part.name);
            let color = self.paper.theme.series(series.unwrap_or_default());
            let area = Area { left, top: top + between, width, height };
            self.drawing.fill(area, color);
            let size = label(part.bytes);
            if area.height >= SIZE + 2.0 && text_width(&size, SIZE) + 4.0 <= area.width {
                let style = TextStyle { size: SIZE, align: Align::Center, color: color.ink() };
                self.drawing.text(&size, area.middle(SIZE), style);
            }
        }
    }

    /// Draws a bar's total above it, or above the capacity where they would overlap, on a patch of background that
    /// hides grid lines.
    fn total(&mut self, total: Bytes, x: f64) {
        let theme = self.paper.theme;
        let is_too_much = self.capacity.is_some_and(|capacity| total > capacity);
        let color = if is_too_much { theme.limit() } else { theme.text() };
        let above = self.y(total) - ABOVE_BAR;
        let lies_on = |line: f64| (above - LABEL - 2.0..above + 3.0).contains(&line);
        let line = self.capacity.map(|capacity| self.y(capacity)).filter(|line| lies_on(*line));
        let (content, baseline) = (label(total), line.map_or(above, |line| line - ABOVE_BAR));
        let (width, height) = (text_width(&content, LABEL) + 4.0, LABEL + 2.0);
        let patch = Area { left: x - width / 2.0, top: baseline - LABEL, width, height };
        self.drawing.fill(patch, theme.background());
        let style = TextStyle { size: LABEL, align: Align::Center, color };
        self.drawing.text(&content, (x, baseline), style);
    }

    /// Interval between bars with labels, so that labels do not overlap.
    fn labelled(&self, pitch: f64) -> usize {
        let widths = self
            .bars
            .iter()
            .map(|bar| text_width(&label(bar.total()), LABEL).max(text_width(&bar.name, LABEL)));
        let widest = widths.fold(0.0, f64::max) + 6.0;
        (widest / pitch).ceil().max(1.0) as usize
    }
}

/// Size in GiB, as on the axis, without the unit.
fn label(bytes: Bytes) -> String {
    format!("{:.1}", bytes.as_gib())
}
