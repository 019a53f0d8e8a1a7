//! A timeline as a Gantt chart: ranks down, time across.
//!
//! Boxes are passes of micro-batches with their numbers; what overlaps on a rank is drawn at half
//! height, one above the other. Other streams lie in thin lanes below their rank, memory in a panel
//! below all ranks. Where events are too narrow to be seen one by one, bars in columns of some pixels say
//! what share of their time goes to what, so a picture's size does not depend on the number of events.

mod boxes;
mod chart;
mod columns;
mod evenly;
mod memory;
mod options;
mod panel;
mod placed;
mod row;

use crate::canvas::{self, DrawError, Font, Format};
use crate::timeline::Timeline;
use chart::Chart;
pub use options::{GanttOptions, TimeAxis, Visibility, Window};

/// Timelines one above the other on the same time axis, as an SVG document.
///
/// # Errors
///
/// If the picture is too small for what it must show, or what is asked for is not there.
pub fn svg(timelines: &[&Timeline], options: &GanttOptions) -> Result<String, DrawError> {
    let font = Font::embedded();
    canvas::svg(&Chart::new(timelines, options, &font)?, &font)
}

/// The same as a file of a format.
///
/// # Errors
///
/// As [`svg`], and if a bitmap has too many pixels.
pub fn draw(
    timelines: &[&Timeline],
    options: &GanttOptions,
    format: Format,
) -> Result<Vec<u8>, DrawError> {
    let font = Font::embedded();
    let chart = Chart::new(timelines, options, &font)?;
    canvas::draw(&chart, &font, format, options.paper.pixel_ratio)
}
