//! A timeline as a Gantt chart: ranks down, time across.
//!
//! Boxes are passes of micro-batches with their numbers; what overlaps on a rank is drawn at half
//! height, one above the other. Other streams lie in thin lanes below their rank, memory in a panel
//! below all ranks. Boxes thinner than a pixel are summed up pixel by pixel, so a picture's size does
//! not depend on the number of events.

mod boxes;
mod chart;
mod memory;
mod panel;
mod placed;

use ir::units::Nanos;

use crate::canvas::{self, Font};
use crate::canvas::{DrawError, Paper};
use crate::timeline::Timeline;
use chart::Chart;

/// How a timeline is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GanttOptions {
    /// Width, theme and pixels.
    pub paper: Paper,
    /// Height of the picture in CSS pixels; where there is none, tracks get the height that suits
    /// their number.
    pub height: Option<u32>,
    /// What the time axis counts.
    pub time_axis: TimeAxis,
    /// Whether streams other than compute have lanes.
    pub lanes: Visibility,
    /// Whether memory has a panel. It needs memory in the timeline in any case.
    pub memory: Visibility,
    /// The most tracks that are drawn. Of more, every second, third, ... is, and the picture says so.
    pub max_tracks: u32,
}

impl Default for GanttOptions {
    fn default() -> Self {
        Self {
            paper: Paper::default(),
            height: None,
            time_axis: TimeAxis::Clock,
            lanes: Visibility::Auto,
            memory: Visibility::Auto,
            max_tracks: 64,
        }
    }
}

/// What a time axis counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeAxis {
    /// Seconds, or the thousandths of them that suit the step.
    #[default]
    Clock,
    /// Steps of this length, without a unit: for schedules whose actions cost whole numbers.
    Units(Nanos),
}

/// Whether a part of a picture is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Visibility {
    /// Where there is something to show, and room for it.
    #[default]
    Auto,
    /// Where there is something to show.
    Shown,
    /// Never.
    Hidden,
}

/// The timeline as an SVG document.
///
/// # Errors
///
/// If the picture is too small for what it must show.
pub fn svg(timeline: &Timeline, options: &GanttOptions) -> Result<String, DrawError> {
    let font = Font::embedded();
    canvas::svg(&Chart::new(&[timeline], options, &font)?, &font)
}

/// The timeline as a PNG file.
///
/// # Errors
///
/// As [`svg`], and if the picture has too many pixels.
pub fn png(timeline: &Timeline, options: &GanttOptions) -> Result<Vec<u8>, DrawError> {
    let font = Font::embedded();
    let chart = Chart::new(&[timeline], options, &font)?;
    canvas::png(&chart, &font, options.paper.pixel_ratio)
}

/// Two timelines one above the other on the same time axis, as an SVG document.
///
/// # Errors
///
/// As [`svg()`].
pub fn compare_svg(
    upper: &Timeline,
    lower: &Timeline,
    options: &GanttOptions,
) -> Result<String, DrawError> {
    let font = Font::embedded();
    canvas::svg(&Chart::new(&[upper, lower], options, &font)?, &font)
}

/// Two timelines one above the other on the same time axis, as a PNG file.
///
/// # Errors
///
/// As [`png()`].
pub fn compare_png(
    upper: &Timeline,
    lower: &Timeline,
    options: &GanttOptions,
) -> Result<Vec<u8>, DrawError> {
    let font = Font::embedded();
    let chart = Chart::new(&[upper, lower], options, &font)?;
    canvas::png(&chart, &font, options.paper.pixel_ratio)
}
