//! Predictions against measurements: a panel for each quantity, with the measured value on the x axis and the ratio of
//! predicted to measured on the y axis, both logarithmic.

use crate::canvas::{
    Align, Area, DrawError, Drawing, Entry, Legend, Paper, Swatch, TextStyle, Title,
    baseline_around,
};
use crate::palette::Theme;

/// A quantity, predicted and measured in the same unit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Panel {
    /// The quantity and its unit, such as `time of a step (s)`.
    pub name: String,
    /// Points by source. Series of the same name look the same in all panels.
    pub series: Vec<Series>,
}

/// Points of one source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Measured and predicted values. Points with a value that is not positive are left out.
    pub points: Vec<[f64; 2]>,
}

const MARGIN: f64 = 18.0;
const TICK: f64 = 10.0;
/// Height between title and plots: the names of the quantities.
const ABOVE_PLOT: f64 = 26.0;
/// Height below the plots: ticks, name of the axis, and the gap before the legend.
const BELOW_PLOT: f64 = 50.0;
/// Width of the ticks to the left of each plot.
const LEFT_OF_PLOT: f64 = 52.0;
const BETWEEN_PANELS: f64 = 18.0;
const LEAST_PLOT: f64 = 120.0;
/// Side of a point.
const POINT: f64 = 4.0;
/// Least ratio between the ends of an axis.
const LEAST_RANGE: f64 = 1.5;
/// Factor between the outermost points and the ends of axes.
const ROOM: f64 = 1.15;

/// Draws the panels next to each other. Predictions in the band are off by at most `band` of the measured value.
///
/// # Errors
///
/// If the paper is too narrow for that many panels.
pub fn draw(title: &str, panels: &[Panel], band: f64, paper: Paper) -> Result<Drawing, DrawError> {
    let mut names: Vec<&str> = Vec::new();
    for series in panels.iter().flat_map(|panel| &panel.series) {
        if !names.contains(&series.name.as_str()) {
            names.push(&series.name);
        }
    }
    let (count, width) = (panels.len().max(1) as f64, f64::from(paper.width));
    let around = LEFT_OF_PLOT * count + BETWEEN_PANELS * (count - 1.0) + 2.0 * MARGIN;
    DrawError::check_side("width", paper.width, around + LEAST_PLOT * count)?;
    let side = (width - around) / count;
    let legend = Legend::new(entries(panels, &names, band, paper), MARGIN, width - MARGIN);
    let heading = Title::new(title, width - 2.0 * MARGIN);
    let top = MARGIN + heading.height() + ABOVE_PLOT;
    let below = top + side + BELOW_PLOT;
    let mut drawing = Drawing::new(title, width, below + legend.height() + MARGIN, paper)?;
    heading.draw(&mut drawing, MARGIN, MARGIN, paper.theme);
    let pitch = LEFT_OF_PLOT + side + BETWEEN_PANELS;
    for (index, panel) in panels.iter().enumerate() {
        let left = MARGIN + LEFT_OF_PLOT + index as f64 * pitch;
        let plot = Area { left, top, width: side, height: side };
        draw_panel(&mut drawing, panel, plot, &names, band, paper);
    }
    legend.draw(&mut drawing, below, paper.theme);
    Ok(drawing)
}

/// Names of series with the number of their points, and the meanings of lines and shades.
fn entries(panels: &[Panel], names: &[&str], band: f64, paper: Paper) -> Vec<Entry> {
    let of_series = |(index, name): (usize, &&str)| {
        let text = format!("{name} ({})", num_points(panels, name));
        Entry { swatch: look(index, paper.theme), text }
    };
    let line = Swatch::Line(paper.theme.text());
    let shade = Swatch::Fill(paper.theme.idle());
    let others = [
        Entry { swatch: line, text: "as measured".to_owned() },
        Entry { swatch: shade, text: format!("within {:.0} %", band * 100.0) },
    ];
    names.iter().enumerate().map(of_series).chain(others).collect()
}

fn draw_panel(
    drawing: &mut Drawing,
    panel: &Panel,
    plot: Area,
    names: &[&str],
    band: f64,
    paper: Paper,
) {
    let theme = paper.theme;
    let (along, up) = (Axis::of_measured(panel), Axis::of_ratios(panel, band));
    let x = |measured: f64| plot.left + along.share(measured) * plot.width;
    let y = |ratio: f64| plot.bottom() - up.share(ratio) * plot.height;
    let [above, below] = [1.0 + band, 1.0 - band].map(y);
    drawing.fill(Area { top: above, height: below - above, ..plot }, theme.idle());
    let right = TextStyle { size: TICK, align: Align::Right, color: theme.muted_text() };
    for (value, label) in along.ticks() {
        drawing.fill(plot.line_down(x(value)), theme.grid());
        let style = TextStyle { align: Align::Center, ..right };
        drawing.text(&label, (x(value), plot.bottom() + 14.0), style);
    }
    for (value, label) in up.ratios() {
        drawing.fill(plot.line_across(y(value)), theme.grid());
        drawing.text(&label, (plot.left - 6.0, baseline_around(y(value), TICK)), right);
    }
    drawing.frame(plot, 1.0, theme.muted_text());
    drawing.fill(plot.line_across(y(1.0)), theme.text());
    for series in &panel.series {
        let index = names.iter().position(|name| *name == series.name);
        let look = look(index.unwrap_or_default(), theme);
        for point in series.points.iter().filter(|point| has_place(point)) {
            let (left, top) = (x(point[0]) - POINT / 2.0, y(ratio(point)) - POINT / 2.0);
            let area = Area { left, top, width: POINT, height: POINT };
            match look {
                Swatch::Frame(color) => drawing.frame(area, 1.0, color),
                Swatch::Fill(color) => drawing.fill(area, color),
                _ => {}
            }
        }
    }
    let along = "measured along, predicted over measured up";
    drawing.text(along, (plot.right(), plot.bottom() + 30.0), right);
    for (content, line) in counts(panel, band).iter().zip([1.0, 0.0]) {
        let baseline = plot.bottom() - 10.0 - line * (TICK + 4.0);
        drawing.text(content, (plot.right() - 8.0, baseline), right);
    }
    let style = TextStyle { size: 11.0, align: Align::Left, color: theme.text() };
    drawing.text(&panel.name, (plot.left, plot.top - 9.0), style);
}

/// Numbers of points and sources of a panel, and the share of points within the band.
fn counts(panel: &Panel, band: f64) -> [String; 2] {
    let points = panel.series.iter().flat_map(|series| &series.points);
    let points: Vec<&[f64; 2]> = points.filter(|point| has_place(point)).collect();
    let is_within = |point: &&&[f64; 2]| (ratio(point) - 1.0).abs() <= band;
    let within = points.iter().filter(is_within).count();
    let share = 100.0 * within as f64 / points.len().max(1) as f64;
    let num_sources = panel.series.iter().filter(|it| it.points.iter().any(has_place)).count();
    let of =
        |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    [
        format!("{} of {}", of(points.len(), "point"), of(num_sources, "source")),
        format!("{share:.0} % within {:.0} %", band * 100.0),
    ]
}

/// Ratio of predicted to measured value.
fn ratio(point: &[f64; 2]) -> f64 {
    point[1] / point[0]
}

/// Number of points of a series that can be drawn.
fn num_points(panels: &[Panel], name: &str) -> usize {
    let series = panels.iter().flat_map(|panel| &panel.series).filter(|it| it.name == name);
    series.flat_map(|series| &series.points).filter(|point| has_place(point)).count()
}

/// Mark of the points of the `index`-th series.
fn look(index: usize, theme: Theme) -> Swatch {
    let color = theme.series(index);
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

/// A ratio as the percentage beyond 1.
fn in_percent(ratio: f64) -> String {
    let percent = (100.0 * (ratio - 1.0)).round();
    let sign = if percent > 0.0 { "+" } else { "" };
    format!("{sign}{percent:.0} %").replace('-', "\u{2212}")
}

impl Axis {
    /// Axis from the least to the largest measured value.
    fn of_measured(panel: &Panel) -> Self {
        let (least, most) = range(panel, |point| point[0]);
        if most == 0.0 {
            return Self { least: 1.0, most: 10.0 };
        }
        let (least, most) = (least / ROOM, most * ROOM);
        Self { least, most: most.max(least * LEAST_RANGE) }
    }

    /// Axis of ratios, symmetric about 1 and beyond the band in any case.
    fn of_ratios(panel: &Panel, band: f64) -> Self {
        let (least, most) = range(panel, ratio);
        let least = least.min(1.0 - band).max(f64::MIN_POSITIVE);
        let most = most.max(least.recip()) * ROOM;
        Self { least: most.recip(), most }
    }

    /// Position of a value, from 0 to 1.
    fn share(&self, value: f64) -> f64 {
        (value / self.least).ln() / (self.most / self.least).ln()
    }

    /// Round ratios, as many as fit, in percent beyond 1 or as factors.
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

    /// Powers of ten, and 2 and 5 times these where there are few.
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

/// Least and largest value of the points that can be drawn; infinity and 0 where there are none.
fn range(panel: &Panel, value: impl Fn(&[f64; 2]) -> f64) -> (f64, f64) {
    let points = panel.series.iter().flat_map(|series| &series.points);
    let values = points.filter(|point| has_place(point)).map(value);
    values
        .fold((f64::INFINITY, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)))
}
