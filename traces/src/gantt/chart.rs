//! A whole chart: one timeline, or several on one time axis, and the legend.

use std::collections::BTreeSet;

use ir::schedule::ActionKind;
use ir::units::Nanos;
use plotters::backend::DrawingBackend;

use super::boxes::TimeScale;
use super::memory;
use super::options::GanttOptions;
use super::panel::{Panel, RowHeights};
use super::placed::{Placed, axis_heading_width};
use crate::canvas::{Canvas, DrawError, Entry, Font, Legend, Picture, Swatch};
use crate::palette::{Rgb, Theme};
use crate::timeline::{Activity, Timeline};

const MARGIN: f64 = 18.0;
/// From the names of tracks to the plot.
const BESIDE_NAMES: f64 = 8.0;
const BETWEEN_PANELS: f64 = 20.0;
const ABOVE_LEGEND: f64 = 8.0;
/// The least width of a plot; below it not even an axis fits.
const LEAST_PLOT: f64 = 120.0;
/// The thinnest boxes that can be told from each other, one rank from the next.
const LEAST_ROW: f64 = 3.0;

pub(super) struct Chart<'a> {
    panels: Vec<Panel<'a>>,
    legend: Legend,
    rows: RowHeights,
    scale: TimeScale,
    right: f64,
    axis_end: Nanos,
    options: GanttOptions,
    height: u32,
    font: &'a Font,
}

impl<'a> Chart<'a> {
    pub(super) fn new(
        timelines: &[&'a Timeline],
        options: &GanttOptions,
        font: &'a Font,
    ) -> Result<Self, DrawError> {
        let mut panels: Vec<Panel> =
            timelines.iter().map(|timeline| Panel::new(timeline, options)).collect();
        let axis_end = panels.iter().map(|panel| panel.end).max().unwrap_or_default();

        let names = panels.iter().map(|panel| panel.name_width(font));
        let names = names.map(|width| width + BESIDE_NAMES);
        let left = MARGIN + names.fold(axis_heading_width(font), f64::max);
        let right = f64::from(options.paper.width) - MARGIN - 6.0;
        if right - left < LEAST_PLOT {
            return Err(DrawError::TooSmall {
                what: "width",
                given: options.paper.width,
                least: (left + LEAST_PLOT + MARGIN + 6.0).ceil() as u32,
            });
        }
        let pixels_per_nano = (right - left) / axis_end.as_f64().max(1.0);
        let scale = TimeScale { left, pixels_per_nano };

        let longest = (panels.len() > 1).then_some(axis_end);
        for panel in &mut panels {
            panel.set_numbers(font, scale);
            panel.set_heading(font, right - MARGIN, options.time_axis, longest);
        }
        let legend = Legend::new(entries(&panels, options.paper.theme), font, left, right);
        let fixed = 2.0 * MARGIN
            + ABOVE_LEGEND
            + legend.height()
            + BETWEEN_PANELS * panels.len().saturating_sub(1) as f64;
        let rows = row_heights(&panels, fixed, options.height)?;
        let height = fixed + panels.iter().map(|panel| panel.height(rows)).sum::<f64>();
        let height = options.height.unwrap_or(height.ceil() as u32);
        Ok(Self { panels, legend, rows, scale, right, axis_end, options: *options, height, font })
    }
}

impl Picture for Chart<'_> {
    fn title(&self) -> &str {
        self.panels.first().map_or("", |panel| &panel.timeline.title)
    }

    fn size(&self) -> (u32, u32) {
        (self.options.paper.width, self.height)
    }

    fn background(&self) -> Rgb {
        self.options.paper.theme.background()
    }

    fn draw<B: DrawingBackend>(&self, canvas: &mut Canvas<'_, B>) -> Result<(), DrawError> {
        let theme = self.options.paper.theme;
        let mut top = MARGIN - 2.0;
        for panel in &self.panels {
            let placed = Placed {
                panel,
                top,
                margin: MARGIN,
                right: self.right,
                rows: self.rows,
                scale: self.scale,
                axis_end: self.axis_end,
                axis: self.options.time_axis,
                theme,
                font: self.font,
            };
            placed.draw(canvas)?;
            top += panel.height(self.rows) + BETWEEN_PANELS;
        }
        self.legend.draw(canvas, top - BETWEEN_PANELS + ABOVE_LEGEND, theme)
    }
}

/// Rows of natural height, or such that the picture gets the height that is asked for.
fn row_heights(
    panels: &[Panel<'_>],
    fixed: f64,
    height: Option<u32>,
) -> Result<RowHeights, DrawError> {
    let num_rows: usize = panels.iter().map(|panel| panel.tracks.len()).sum();
    let natural = RowHeights::natural(num_rows);
    let Some(given) = height else { return Ok(natural) };
    let without_boxes: f64 = panels
        .iter()
        .map(|panel| panel.fixed_height() + panel.tracks.len() as f64 * panel.lanes_height())
        .sum();
    let room = f64::from(given) - fixed - without_boxes;
    let rows = RowHeights::of_pitch(room / num_rows.max(1) as f64);
    if room < 0.0 || num_rows > 0 && rows.boxes < LEAST_ROW {
        let least = fixed + without_boxes + (LEAST_ROW + 1.0) * num_rows as f64;
        let least = least.ceil() as u32;
        return Err(DrawError::TooSmall { what: "height", given, least });
    }
    Ok(rows)
}

/// What the colours of these panels mean.
fn entries(panels: &[Panel<'_>], theme: Theme) -> Vec<Entry> {
    let fill = |color, text: &str| Entry { swatch: Swatch::Fill(color), text: text.to_owned() };
    let kinds: BTreeSet<_> = panels.iter().flat_map(Panel::kinds).collect();
    let mut entries: Vec<Entry> =
        kinds.iter().map(|kind| fill(theme.action(*kind), name(*kind))).collect();
    if panels.iter().any(|panel| panel.end > Nanos::ZERO) {
        entries.push(fill(theme.idle(), "idle"));
    }
    let events =
        || panels.iter().flat_map(|panel| &panel.timeline.tracks).flat_map(|it| &it.events);
    if events().any(|event| matches!(event.activity, Activity::Wait(_))) {
        entries.push(fill(theme.waiting(), "waiting for an exchange"));
    }
    let lanes: BTreeSet<_> = panels.iter().flat_map(|panel| &panel.lanes).collect();
    entries.extend(lanes.into_iter().map(|stream| fill(theme.stream(*stream), stream.name())));

    let with_memory = || panels.iter().filter(|panel| panel.has_memory);
    let curves = with_memory().map(|panel| memory::chosen(&panel.tracks).len()).max();
    if let Some(curves) = curves {
        let ramp = (0..curves).map(|index| theme.ordered(index, curves)).collect();
        let text = if curves == 1 { "memory" } else { "memory, first to last track" };
        entries.push(Entry { swatch: Swatch::Ramp(ramp), text: text.to_owned() });
    }
    if with_memory().any(|panel| memory::capacity(&panel.tracks).is_some()) {
        let swatch = Swatch::Dashes(theme.limit());
        entries.push(Entry { swatch, text: "memory capacity".to_owned() });
    }
    let mut remarks = Vec::new();
    if panels.iter().any(|panel| !panel.numbers.is_empty()) {
        remarks.push("numbers are micro-batches");
    }
    if panels.iter().any(Panel::has_several_stages) {
        remarks.push("later stages of a rank are lighter");
    }
    if !remarks.is_empty() {
        entries.push(Entry { swatch: Swatch::None, text: remarks.join("; ") });
    }
    entries
}

/// What a kind of action is called where there is room.
fn name(kind: ActionKind) -> &'static str {
    match kind {
        ActionKind::Forward => "forward",
        ActionKind::Backward => "backward",
        ActionKind::InputGrad => "input gradient",
        ActionKind::WeightGrad => "weight gradient",
        ActionKind::SendForward => "send activations",
        ActionKind::RecvForward => "receive activations",
        ActionKind::SendBackward => "send gradients",
        ActionKind::RecvBackward => "receive gradients",
        ActionKind::Unshard => "gather parameters",
        ActionKind::Reshard => "free parameters",
        ActionKind::ReduceGrad => "reduce gradients",
        ActionKind::OptimizerStep => "optimizer step",
    }
}
