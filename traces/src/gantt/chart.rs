//! A whole chart: one timeline, or several on one time axis, with a legend.

use std::collections::BTreeSet;

use super::boxes::{Look, TimeScale};
use super::memory;
use super::options::{GanttOptions, TimeAxis};
use super::panel::{Comparison, Panel, RowHeights};
use super::placed::{BESIDE_NAMES, PanelPainter, axis_heading_width};
use super::row::Row;
use crate::canvas::{DrawError, Drawing, Entry, Legend, Swatch};
use crate::class::{Class, DataLane};
use crate::palette::Theme;
use crate::timeline::Timeline;

const MARGIN: f64 = 18.0;
const BETWEEN_PANELS: f64 = 20.0;
const ABOVE_LEGEND: f64 = 8.0;
/// Least width of a plot; below it not even an axis fits.
const LEAST_PLOT: f64 = 120.0;

/// Draws timelines above each other on the same time axis.
///
/// # Errors
///
/// If the picture is too small for what it must show, or the requested part of the step is empty.
pub fn draw(timelines: &[&Timeline], options: &GanttOptions) -> Result<Drawing, DrawError> {
    let paper = options.paper;
    let [from, to] = options.window.of(timelines)?;
    let panels = timelines.iter().map(|timeline| Panel::new(timeline, [from, to], options));
    let mut panels: Vec<Panel> = panels.collect();

    let names = panels.iter().map(|panel| panel.name_width() + BESIDE_NAMES);
    let left = MARGIN + names.fold(axis_heading_width(), f64::max);
    let right = f64::from(paper.width) - MARGIN - 6.0;
    DrawError::check_side("width", paper.width, left + LEAST_PLOT + MARGIN + 6.0)?;
    let scale = TimeScale { left, right, from, to };

    let comparison = comparison(timelines);
    for panel in &mut panels {
        panel.set_rows(scale);
        panel.set_heading(right - MARGIN, options.time_axis, scale, comparison);
    }
    let legend = Legend::new(entries(&panels, options.time_axis, paper.theme), left, right);
    let between = BETWEEN_PANELS * panels.len().saturating_sub(1) as f64;
    let fixed = 2.0 * MARGIN + ABOVE_LEGEND + legend.height() + between;
    let rows = RowHeights::new(panels.iter().map(|panel| panel.tracks.len()).sum());
    let height = fixed + panels.iter().map(|panel| panel.height(rows)).sum::<f64>();

    let mut drawing = Drawing::new(title(&panels), paper.width.into(), height, paper)?;
    let mut top = MARGIN;
    for panel in &panels {
        PanelPainter { panel, rows, scale, options, drawing: &mut drawing }.draw(MARGIN, top);
        top += panel.height(rows) + BETWEEN_PANELS;
    }
    legend.draw(&mut drawing, top - 2.0 - BETWEEN_PANELS + ABOVE_LEGEND, paper.theme);
    Ok(drawing)
}

/// Titles of all panels in the first line, and the notes of each on its own line.
fn title(panels: &[Panel<'_>]) -> String {
    let titles: Vec<&str> = panels.iter().map(|panel| panel.timeline.title.as_str()).collect();
    let mut text = titles.join(" | ");
    for panel in panels {
        text.push('\n');
        if panels.len() > 1 {
            text = text + &panel.timeline.title + ": ";
        }
        text.push_str(&panel.heading.notes.join("; "));
    }
    text
}

/// Comparison of the steps, which is possible where they do the same work.
fn comparison(timelines: &[&Timeline]) -> Comparison {
    let Some((first, rest)) = timelines.split_first().filter(|(_, rest)| !rest.is_empty()) else {
        return Comparison::None;
    };
    if first.work.is_empty() || rest.iter().any(|other| other.work != first.work) {
        return Comparison::OtherWork;
    }
    Comparison::SameWork { first: first.end() }
}

/// Legend of the panels.
fn entries(panels: &[Panel<'_>], axis: TimeAxis, theme: Theme) -> Vec<Entry> {
    let entry = |swatch, text: &str| Entry { swatch, text: text.to_owned() };
    let looks: BTreeSet<Look> = panels.iter().flat_map(Panel::looks).collect();
    let classes: BTreeSet<Class> = looks.iter().map(|look| look.class).collect();
    let (computed, exchanged): (Vec<Class>, Vec<Class>) =
        classes.into_iter().partition(|class| class.is_computed());
    let num_stages = panels.iter().map(Panel::num_stages).max().unwrap_or_default();
    let swatch = |class: Class| {
        let color = class.color(theme);
        if num_stages > 1 && class.is_pass() {
            let shades = looks.iter().filter(|look| look.class == class);
            Swatch::Ramp(shades.map(|look| color.shaded(look.nth, num_stages)).collect())
        } else {
            Swatch::Fill(color)
        }
    };
    let rows = || panels.iter().flat_map(|panel| &panel.rows);
    let mut entries: Vec<Entry> =
        computed.into_iter().map(|class| entry(swatch(class), class.name())).collect();
    if rows().any(|row| row.is_idle) {
        entries.push(entry(Swatch::Fill(theme.idle()), "idle"));
    }
    if panels.iter().any(|panel| !panel.lanes.is_empty()) && !exchanged.is_empty() {
        entries.push(entry(Swatch::None, "below each rank, from top to bottom:"));
    }
    let data = DataLane::of(&panels.iter().map(|panel| panel.timeline).collect::<Vec<_>>());
    let exchanged = exchanged.into_iter();
    entries.extend(exchanged.map(|class| entry(swatch(class), class.name_with(data))));

    let with_memory = || panels.iter().filter(|panel| panel.has_memory);
    let curves = with_memory().map(|panel| memory::chosen(&panel.tracks).len()).max();
    if let Some(curves) = curves {
        let ramp = (0..curves).map(|index| theme.ordered(index, curves)).collect();
        let all = with_memory().map(|panel| panel.timeline.tracks.len()).max().unwrap_or_default();
        let what = axis.memory_name();
        let text = match curves {
            1 => what.to_owned(),
            _ if curves < all => format!("{what}, {curves} of {all} ranks, first to last"),
            _ => format!("{what}, first to last rank"),
        };
        entries.push(entry(Swatch::Ramp(ramp), &text));
    }
    if with_memory().any(|panel| memory::drawn_capacity(&panel.tracks).is_some()) {
        entries.push(entry(Swatch::Dashes(theme.limit()), "memory capacity"));
    }
    let mut remarks = Vec::new();
    if panels.iter().any(Panel::has_numbers) {
        remarks.push("numbers are micro-batches");
    }
    if num_stages > 1 {
        remarks.push("the later a stage of its rank, the paler");
    }
    if rows().any(Row::has_halves) {
        remarks.push("two halves, one above the other: at the same time");
    }
    if with_memory().any(|panel| memory::hides_curves(&panel.tracks)) {
        remarks.push("of equal curves the last rank's is seen");
    }
    if rows().any(Row::has_columns_in_lanes) {
        remarks.push("low bars of exchanges: busy for that share of time");
    }
    if !remarks.is_empty() {
        entries.push(entry(Swatch::None, &remarks.join("; ")));
    }
    entries
}
