//! Predictions over measurements: a panel for each quantity, what was measured along, how far off the prediction
//! is up, both on logarithmic axes.

use std::borrow::Cow;

use plotters::backend::DrawingBackend;

use crate::canvas::{
    self, Align, Area, Canvas, DrawError, Entry, Font, Format, Legend, Paper, Picture, Swatch,
    Text, Title, baseline_around,
};
use crate::palette::{Rgb, Theme};

/// What is predicted and measured in one unit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Panel {
    /// The quantity and its unit, such as `time of a step (s)`.
    pub name: String,
    /// Points by where they are from. Series of the same name look the same in all panels.
    pub series: Vec<Series>,
}

/// Points that belong together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// What they are called in the legend.
    pub name: String,
    /// Measured and predicted values. Those that are not above zero have no place and are left out.
    pub points: Vec<[f64; 2]>,
}

/// The panels side by side as an SVG document. Within a band, predictions are off by `band` of what was
/// measured, as 0.1, at most.
///
/// # Errors
///
/// If the paper is too narrow for that many panels.
pub fn svg(title: &str, panels: &[Panel], band: f64, paper: Paper) -> Result<String, DrawError> {
    let font = Font::embedded();
    canvas::svg(&Chart::new(title, panels, band, paper, &font)?, &font)
}

/// The panels side by side as a file of a format.
///
/// # Errors
///
/// As [`svg`], and if a bitmap has too many pixels.
pub fn draw(
    title: &str,
    panels: &[Panel],
    band: f64,
    paper: Paper,
    format: Format,
) -> Result<Vec<u8>, DrawError> {
    let font = Font::embedded();
    let chart = Chart::new(title, panels, band, paper, &font)?;
    canvas::draw(&chart, &font, format, paper.pixel_ratio)
}

const MARGIN: f64 = 18.0;
const TICK: f64 = 10.0;
/// From the title to the plots: the names of the quantities.
const ABOVE_PLOT: f64 = 26.0;
/// Ticks, what runs along the axis, and the gap before the legend.
const BELOW_PLOT: f64 = 50.0;
/// Ticks to the left of each plot.
const LEFT_OF_PLOT: f64 = 52.0;
const BETWEEN_PANELS: f64 = 18.0;
const LEAST_PLOT: f64 = 120.0;
/// The side of a point.
const POINT: f64 = 4.0;
/// Axes begin and end at least this factor apart.
const LEAST_RANGE: f64 = 1.5;
/// Room between the outermost points and the ends of axes, as a factor.
const ROOM: f64 = 1.15;

struct Chart<'a> {
    title: &'a str,
    heading: Title,
    panels: &'a [Panel],
    /// Names of series, in the order of their looks.
    names: Vec<&'a str>,
    legend: Legend,
    /// Left edges of the plots.
    lefts: Vec<f64>,
    top: f64,
    /// Width and height of each plot.
    side: f64,
    band: f64,
    paper: Paper,
}

impl<'a> Chart<'a> {
    fn new(
        title: &'a str,
        panels: &'a [Panel],
        band: f64,
        paper: Paper,
        font: &Font,
    ) -> Result<Self, DrawError> {
        let mut names: Vec<&str> = Vec::new();
        for series in panels.iter().flat_map(|panel| &panel.series) {
            if !names.contains(&series.name.as_str()) {
                names.push(&series.name);
            }
        }
        let count = panels.len().max(1) as f64;
        let width = f64::from(paper.width);
        let around = LEFT_OF_PLOT * count + BETWEEN_PANELS * (count - 1.0) + 2.0 * MARGIN;
        let side = (width - around) / count;
        if side < LEAST_PLOT {
            let least = (around + LEAST_PLOT * count).ceil() as u32;
            return Err(DrawError::TooSmall { what: "width", given: paper.width, least });
        }
        let pitch = LEFT_OF_PLOT + side + BETWEEN_PANELS;
        let lefts =
            (0..panels.len()).map(|index| MARGIN + LEFT_OF_PLOT + index as f64 * pitch).collect();
        let mut entries: Vec<Entry> = names
            .iter()
            .enumerate()
            .map(|(index, name)| {
                let text = format!("{name} ({})", num_points(panels, name));
                Entry { swatch: look(index, paper), text }
            })
            .collect();
        let swatch = Swatch::Line(paper.theme.text());
        entries.push(Entry { swatch, text: "as measured".to_owned() });
        entries.push(Entry {
            swatch: Swatch::Fill(paper.theme.idle()),
            text: format!("within {:.0} %", band * 100.0),
        });
        let legend = Legend::new(entries, font, MARGIN, width - MARGIN);
        let heading = Title::new(title, font, width - 2.0 * MARGIN);
        let top = MARGIN + heading.height() + ABOVE_PLOT;
        Ok(Self { title, heading, panels, names, legend, lefts, top, side, band, paper })
    }

    fn panel<B: DrawingBackend>(
        &self,
        canvas: &mut Canvas<'_, B>,
        panel: &Panel,
        left: f64,
    ) -> Result<(), DrawError> {
        let theme = self.paper.theme;
        let plot = Area { left, top: self.top, width: self.side, height: self.side };
        let (along, up) = (Axis::of_measured(panel), Axis::of_ratios(panel, self.band));
        let x = |measured: f64| plot.left + along.share(measured) * self.side;
        let y = |ratio: f64| plot.bottom() - up.share(ratio) * self.side;
        let [above, below] = [1.0 + self.band, 1.0 - self.band].map(y);
        canvas.fill(Area { top: above, height: below - above, ..plot }, theme.idle())?;
        let (size, color) = (TICK, theme.muted_text());
        for (value, label) in along.ticks() {
            canvas.fill(Area { left: x(value) - 0.5, width: 1.0, ..plot }, theme.grid())?;
            let (content, x, baseline) = (&*label, x(value), plot.bottom() + 14.0);
            canvas.text(&Text { content, x, baseline, size, align: Align::Center, color })?;
        }
        for (value, label) in up.ratios() {
            canvas.fill(Area { top: y(value) - 0.5, height: 1.0, ..plot }, theme.grid())?;
            let (content, x, baseline) = (&*label, left - 6.0, baseline_around(y(value), size));
            canvas.text(&Text { content, x, baseline, size, align: Align::Right, color })?;
        }
        canvas.frame(plot, 1.0, theme.muted_text())?;
        canvas.fill(Area { top: y(1.0) - 0.5, height: 1.0, ..plot }, theme.text())?;
        for series in &panel.series {
            let index = self.names.iter().position(|name| *name == series.name);
            let look = look(index.unwrap_or_default(), self.paper);
            for point in series.points.iter().filter(|point| has_place(point)) {
                let (x, y) = (x(point[0]), y(ratio(point)));
                let (left, top) = (x - POINT / 2.0, y - POINT / 2.0);
                let area = Area { left, top, width: POINT, height: POINT };
                match look {
                    Swatch::Frame(color) => canvas.frame(area, 1.0, color)?,
                    Swatch::Fill(color) => canvas.fill(area, color)?,
                    _ => {}
                }
            }
        }
        let content = "measured along, predicted over measured up";
        let (x, baseline, align) = (plot.right(), plot.bottom() + 30.0, Align::Right);
        canvas.text(&Text { content, x, baseline, size, align, color })?;
        for (content, line) in self.counts(panel).iter().zip([1.0, 0.0]) {
            let (x, baseline) = (plot.right() - 8.0, plot.bottom() - 10.0 - line * (TICK + 4.0));
            canvas.text(&Text { content, x, baseline, size, align, color })?;
        }
        let (content, x, baseline) = (panel.name.as_str(), plot.left, plot.top - 9.0);
        let (size, align, color) = (11.0, Align::Left, theme.text());
        canvas.text(&Text { content, x, baseline, size, align, color })
    }

    /// How many points a panel has, of whom, and how near they come.
    fn counts(&self, panel: &Panel) -> [String; 2] {
        let points = panel.series.iter().flat_map(|series| &series.points);
        let points: Vec<&[f64; 2]> = points.filter(|point| has_place(point)).collect();
        let is_within = |point: &&&[f64; 2]| (ratio(point) - 1.0).abs() <= self.band;
        let within = points.iter().filter(is_within).count();
        let share = 100.0 * within as f64 / points.len().max(1) as f64;
        let num_sources = panel.series.iter().filter(|it| it.points.iter().any(has_place)).count();
        let of = |count: usize, what: &str| {
            format!("{count} {what}{}", if count == 1 { "" } else { "s" })
        };
        [
            format!("{} of {}", of(points.len(), "point"), of(num_sources, "source")),
            format!("{share:.0} % within {:.0} %", self.band * 100.0),
        ]
    }
}

/// What is predicted of what was measured: 1 where they agree.
fn ratio(point: &[f64; 2]) -> f64 {
    point[1] / point[0]
}

/// How many points of a series have their place in a panel.
fn num_points(panels: &[Panel], name: &str) -> usize {
    let series = panels.iter().flat_map(|panel| &panel.series).filter(|it| it.name == name);
    series.flat_map(|series| &series.points).filter(|point| has_place(point)).count()
}

/// What the `index`-th series is drawn as.
fn look(index: usize, paper: Paper) -> Swatch {
    let color = paper.theme.series(index);
    let is_filled = (index / Theme::NUM_SERIES).is_multiple_of(2);
    if is_filled { Swatch::Fill(color) } else { Swatch::Frame(color) }
}

fn has_place(point: &[f64; 2]) -> bool {
    point.iter().all(|value| value.is_finite() && *value > 0.0)
}

/// A logarithmic axis.
#[derive(Clone, Copy, Debug)]
struct Axis {
    least: f64,
    most: f64,
}

/// A ratio as what is beyond 1.
fn in_percent(ratio: f64) -> String {
    let percent = (100.0 * (ratio - 1.0)).round();
    let sign = if percent > 0.0 { "+" } else { "" };
    format!("{sign}{percent:.0} %").replace('-', "\u{2212}")
}

impl Axis {
    /// From the least to the largest of all that was measured.
    fn of_measured(panel: &Panel) -> Self {
        let (least, most) = range(panel, |point| point[0]);
        if most == 0.0 {
            return Self { least: 1.0, most: 10.0 };
        }
        let (least, most) = (least / ROOM, most * ROOM);
        Self { least, most: most.max(least * LEAST_RANGE) }
    }

    /// As far up as down, so that what is predicted as measured is in the middle, and beyond the band in any case.
    fn of_ratios(panel: &Panel, band: f64) -> Self {
        let (least, most) = range(panel, ratio);
        let least = least.min(1.0 - band).max(f64::MIN_POSITIVE);
        let most = most.max(least.recip()) * ROOM;
        Self { least: most.recip(), most }
    }

    /// How far along a value lies.
    fn share(&self, value: f64) -> f64 {
        (value / self.least).ln() / (self.most / self.least).ln()
    }

    /// Round ratios about as many as there is room for, in percent beyond what was measured or as factors.
    fn ratios(&self) -> impl Iterator<Item = (f64, String)> {
        const PERCENT: [(f64, &[f64]); 3] = [
            (1.25, &[0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2]),
            (1.8, &[0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.6]),
            (4.0, &[0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0]),
        ];
        const FACTORS: (f64, &[f64]) = (12.0, &[0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0]);
        let factor = |ratio: f64| (ratio, format!("{ratio} \u{d7}"));
        let Self { least, most } = *self;
        let percent = PERCENT.into_iter().find(|(reach, _)| most <= *reach);
        let powers = (most.log10().ceil() as i32).max(1);
        let values: Vec<(f64, String)> = match percent {
            Some((_, values)) => values.iter().map(|ratio| (*ratio, in_percent(*ratio))).collect(),
            None if most <= FACTORS.0 => FACTORS.1.iter().copied().map(factor).collect(),
            None => (-powers..=powers).map(|power| factor(10_f64.powi(power))).collect(),
        };
        values.into_iter().filter(move |(value, _)| (least..=most).contains(value))
    }

    /// Powers of ten, and where there are few of them, 2 and 5 times these.
    fn ticks(&self) -> impl Iterator<Item = (f64, String)> {
        let Self { least, most } = *self;
        let is_long = most / least > 1e3;
        let first = least.log10().floor() as i32;
        let last = most.log10().ceil() as i32;
        let steps = if is_long { &[1.0][..] } else { &[1.0, 2.0, 5.0] };
        (first..=last)
            .flat_map(move |power| steps.iter().map(move |step| (power, step * 10_f64.powi(power))))
            .filter(move |(_, value)| (least..=most).contains(value))
            .map(|(power, value)| {
                let decimals = usize::try_from(-power).unwrap_or(0);
                let is_plain = (-3..6).contains(&power);
                let label =
                    if is_plain { format!("{value:.decimals$}") } else { format!("{value:.0e}") };
                (value, label)
            })
    }
}

/// The least and the largest of a value of points that have a place; infinity and 0 where there are none.
fn range(panel: &Panel, value: impl Fn(&[f64; 2]) -> f64) -> (f64, f64) {
    let points = panel.series.iter().flat_map(|series| &series.points);
    let values = points.filter(|point| has_place(point)).map(value);
    values
        .fold((f64::INFINITY, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)))
}

impl Picture for Chart<'_> {
    fn title(&self) -> Cow<'_, str> {
        self.title.into()
    }

    fn size(&self) -> (u32, u32) {
        let below = BELOW_PLOT + self.legend.height() + MARGIN;
        (self.paper.width, (self.top + self.side + below).ceil() as u32)
    }

    fn background(&self) -> Rgb {
        self.paper.theme.background()
    }

    fn draw<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>) -> Result<(), DrawError> {
        let theme = self.paper.theme;
        self.heading.draw(canvas, MARGIN, MARGIN, theme)?;
        for (panel, left) in self.panels.iter().zip(&self.lefts) {
            self.panel(canvas, panel, *left)?;
        }
        self.legend.draw(canvas, self.top + self.side + BELOW_PLOT, theme)
    }
}
