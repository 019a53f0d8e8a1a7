//! Memory as stacked bars: one for each pipeline rank, or for each plan, by what takes it.

use std::borrow::Cow;

use ir::units::Bytes;
use plotters::backend::DrawingBackend;

use crate::canvas::{
    self, Align, Area, Canvas, DrawError, Entry, Font, Format, Legend, Paper, Picture, Swatch,
    Text, Ticks, Title, baseline_around,
};
use crate::palette::Rgb;

/// A bar.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryBar {
    /// What stands below it, such as `rank 3`.
    pub name: String,
    /// What it consists of, from the bottom to the top.
    pub parts: Vec<MemoryPart>,
}

/// A part of a bar. Parts of the same name have the same colour in all bars: that of the place at which the
/// name is met first, parts of nothing among them. What is nothing in all bars is not in the legend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryPart {
    /// What it is, such as `gradients`.
    pub name: String,
    /// How much.
    pub bytes: Bytes,
}

impl MemoryBar {
    /// All parts together.
    pub fn total(&self) -> Bytes {
        self.parts.iter().map(|part| part.bytes).sum()
    }
}

/// How bars are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarsOptions {
    /// Width, theme and pixels.
    pub paper: Paper,
    /// Height of the picture in CSS pixels.
    pub height: u32,
}

impl Default for BarsOptions {
    fn default() -> Self {
        Self { paper: Paper { width: 900, ..Paper::default() }, height: 420 }
    }
}

/// The bars as an SVG document, with a line at `capacity`.
///
/// # Errors
///
/// If the picture is too small for what it must show.
pub fn svg(
    title: &str,
    bars: &[MemoryBar],
    capacity: Option<Bytes>,
    options: &BarsOptions,
) -> Result<String, DrawError> {
    let font = Font::embedded();
    canvas::svg(&Chart::new(title, bars, capacity, options, &font)?, &font)
}

/// The bars as a file of a format, with a line at `capacity`.
///
/// # Errors
///
/// As [`svg`], and if a bitmap has too many pixels.
pub fn draw(
    title: &str,
    bars: &[MemoryBar],
    capacity: Option<Bytes>,
    options: &BarsOptions,
    format: Format,
) -> Result<Vec<u8>, DrawError> {
    let font = Font::embedded();
    let chart = Chart::new(title, bars, capacity, options, &font)?;
    canvas::draw(&chart, &font, format, options.paper.pixel_ratio)
}

const MARGIN: f64 = 18.0;
const LABEL: f64 = 10.5;
const TICK: f64 = 10.0;
/// Of the numbers in parts.
const SIZE: f64 = 9.0;
/// From the top of a bar to the digits above it.
const ABOVE_BAR: f64 = 5.0;
/// From the title to the plot: the heading of the axis, and the total over the highest bar.
const ABOVE_PLOT: f64 = 34.0;
/// Names of bars, and the gap before the legend.
const BELOW_PLOT: f64 = 32.0;
const LEFT_OF_PLOT: f64 = 44.0;
/// What the axis reaches, over the most that is shown: the tick above it often has room, too.
const ROOM: f64 = 1.02;
const WIDEST_BAR: f64 = 64.0;
const LEAST_PLOT: f64 = 60.0;
/// A part at least this high has a line between it and the next.
const HIGH: f64 = 3.0;
const BETWEEN_PARTS: f64 = 0.75;

struct Chart<'a> {
    title: &'a str,
    heading: Title,
    bars: &'a [MemoryBar],
    capacity: Option<Bytes>,
    /// What parts are called, in the order of their colours.
    parts: Vec<&'a str>,
    legend: Legend,
    plot: Area,
    /// What the height of the plot stands for, in GiB.
    most: f64,
    options: BarsOptions,
    font: &'a Font,
}

impl<'a> Chart<'a> {
    fn new(
        title: &'a str,
        bars: &'a [MemoryBar],
        capacity: Option<Bytes>,
        options: &BarsOptions,
        font: &'a Font,
    ) -> Result<Self, DrawError> {
        let Paper { width, theme, .. } = options.paper;
        let mut parts: Vec<&str> = Vec::new();
        for part in bars.iter().flat_map(|bar| &bar.parts) {
            if !parts.contains(&part.name.as_str()) {
                parts.push(&part.name);
            }
        }
        let (left, right) = (MARGIN + LEFT_OF_PLOT, f64::from(width) - MARGIN);
        let mut entries: Vec<Entry> = (0..)
            .zip(&parts)
            .filter(|(_, name)| {
                let parts = bars.iter().flat_map(|bar| &bar.parts);
                parts.filter(|part| part.name == **name).any(|part| part.bytes > Bytes::ZERO)
            })
            .map(|(index, name)| Entry {
                swatch: Swatch::Fill(theme.series(index)),
                text: (*name).to_owned(),
            })
            .collect();
        entries.extend(capacity.map(|capacity| Entry {
            swatch: Swatch::Dashes(theme.limit()),
            text: format!("capacity, {capacity}"),
        }));
        let legend = Legend::new(entries, font, left, right);
        let heading = Title::new(title, font, right - MARGIN);
        let top = MARGIN + heading.height() + ABOVE_PLOT;
        let below = BELOW_PLOT + legend.height() + MARGIN;
        let plot = Area {
            left,
            top,
            width: right - left,
            height: f64::from(options.height) - top - below,
        };
        for (what, given, room) in
            [("width", width, plot.width), ("height", options.height, plot.height)]
        {
            if room < LEAST_PLOT {
                let least = (f64::from(given) - room + LEAST_PLOT).ceil() as u32;
                return Err(DrawError::TooSmall { what, given, least });
            }
        }
        let most = bars.iter().map(MemoryBar::total).max().max(capacity).unwrap_or_default();
        let most = if most == Bytes::ZERO { 1.0 } else { most.as_gib() * ROOM };
        let options = *options;
        Ok(Self { title, heading, bars, capacity, parts, legend, plot, most, options, font })
    }

    fn y(&self, bytes: Bytes) -> f64 {
        self.plot.bottom() - bytes.as_gib() / self.most * self.plot.height
    }

    fn axis<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>) -> Result<(), DrawError> {
        let theme = self.options.paper.theme;
        let (left, color, size) = (self.plot.left, theme.muted_text(), TICK);
        for (value, label) in Ticks::new(self.most, self.plot.height / 44.0).iter() {
            let at = self.plot.bottom() - value / self.most * self.plot.height;
            let line = if value > 0.0 { theme.grid() } else { color };
            canvas.fill(Area { top: at - 0.5, height: 1.0, ..self.plot }, line)?;
            let (content, baseline) = (&*label, baseline_around(at, size));
            let (x, align) = (left - 8.0, Align::Right);
            canvas.text(&Text { content, x, baseline, size, align, color })?;
        }
        let (x, baseline, align) = (MARGIN, self.plot.top - 20.0, Align::Left);
        canvas.text(&Text { content: "memory (GiB)", x, baseline, size, align, color })
    }

    fn bar<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        bar: &MemoryBar,
        left: f64,
        width: f64,
    ) -> Result<(), DrawError> {
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
            let color = self.options.paper.theme.series(series.unwrap_or_default());
            let area = Area { left, top: top + between, width, height };
            canvas.fill(area, color)?;
            self.size(canvas, part.bytes, area, color)?;
        }
        Ok(())
    }

    /// How large a part is, in it, where there is room.
    fn size<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        bytes: Bytes,
        area: Area,
        background: Rgb,
    ) -> Result<(), DrawError> {
        let content = &*label(bytes);
        if area.height < SIZE + 2.0 || self.font.width(content, SIZE) + 4.0 > area.width {
            return Ok(());
        }
        let (x, align) = (area.left + area.width / 2.0, Align::Center);
        let baseline = baseline_around(area.top + area.height / 2.0, SIZE);
        canvas.text(&Text { content, x, baseline, size: SIZE, align, color: background.ink() })
    }

    fn name<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        bar: &MemoryBar,
        x: f64,
    ) -> Result<(), DrawError> {
        let (baseline, color) = (self.plot.bottom() + 16.0, self.options.paper.theme.text());
        let (content, size, align) = (bar.name.as_str(), LABEL, Align::Center);
        canvas.text(&Text { content, x, baseline, size, align, color })
    }
    /// The bar's total above it, and above the capacity where it would lie on that; on a patch that keeps
    /// lines of the grid out of the digits.
    fn total<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        bar: &MemoryBar,
        x: f64,
    ) -> Result<(), DrawError> {
        let theme = self.options.paper.theme;
        let total = bar.total();
        let is_too_much = self.capacity.is_some_and(|capacity| total > capacity);
        let color = if is_too_much { theme.limit() } else { theme.text() };
        let above = self.y(total) - ABOVE_BAR;
        let lies_on = |line: f64| (above - LABEL - 2.0..above + 3.0).contains(&line);
        let line = self.capacity.map(|capacity| self.y(capacity)).filter(|line| lies_on(*line));
        let (content, baseline) = (&*label(total), line.map_or(above, |line| line - ABOVE_BAR));
        let (width, height) = (self.font.width(content, LABEL) + 4.0, LABEL + 2.0);
        let patch = Area { left: x - width / 2.0, top: baseline - LABEL, width, height };
        canvas.fill(patch, theme.background())?;
        let (size, align) = (LABEL, Align::Center);
        canvas.text(&Text { content, x, baseline, size, align, color })
    }

    /// Every how many bars there is room for labels.
    fn labelled(&self, pitch: f64) -> usize {
        let widths = self.bars.iter().map(|bar| {
            let total = self.font.width(&label(bar.total()), LABEL);
            total.max(self.font.width(&bar.name, LABEL))
        });
        let widest = widths.fold(0.0, f64::max) + 6.0;
        (widest / pitch).ceil().max(1.0) as usize
    }
}

impl Picture for Chart<'_> {
    fn title(&self) -> Cow<'_, str> {
        self.title.into()
    }

    fn size(&self) -> (u32, u32) {
        (self.options.paper.width, self.options.height)
    }

    fn background(&self) -> Rgb {
        self.options.paper.theme.background()
    }

    fn draw<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>) -> Result<(), DrawError> {
        let theme = self.options.paper.theme;
        self.heading.draw(canvas, MARGIN, MARGIN, theme)?;
        self.axis(canvas)?;
        let pitch = self.plot.width / self.bars.len().max(1) as f64;
        let width = (pitch * 0.62).min(WIDEST_BAR);
        let middle = |index: usize| self.plot.left + (index as f64 + 0.5) * pitch;
        for (index, bar) in self.bars.iter().enumerate() {
            self.bar(canvas, bar, middle(index) - width / 2.0, width)?;
        }
        if let Some(capacity) = self.capacity {
            canvas.dashes(self.plot.left, self.plot.right(), self.y(capacity), theme.limit())?;
        }
        let every = self.labelled(pitch);
        for (index, bar) in self.bars.iter().enumerate().step_by(every) {
            self.name(canvas, bar, middle(index))?;
            // Among bars that are closer than numbers, a total could be read as its neighbour's.
            if every == 1 {
                self.total(canvas, bar, middle(index))?;
            }
        }
        self.legend.draw(canvas, self.plot.bottom() + BELOW_PLOT, theme)
    }
}

/// In GiB as the axis, without the unit.
fn label(bytes: Bytes) -> String {
    format!("{:.1}", bytes.as_gib())
}
