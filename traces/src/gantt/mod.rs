//! A timeline as a Gantt chart: ranks down, time across.
//!
//! Boxes are passes of micro-batches with their numbers; what overlaps on a rank is drawn at half
//! height, one above the other. Other streams lie in thin lanes below their rank, memory in a panel
//! below all ranks. Boxes thinner than a pixel are summed up pixel by pixel, so a picture's size does
//! not depend on the number of events.

mod boxes;
mod chart;
mod memory;
mod options;
mod panel;
mod placed;

use crate::canvas::{self, DrawError, Font};
use crate::timeline::Timeline;
use chart::Chart;
pub use options::{GanttOptions, TimeAxis, Visibility};

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
