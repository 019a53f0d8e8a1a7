//! Timelines as an interactive page: one file, without other files and without a network.
//!
//! The page is `page.html`, with style sheets and the scripts inserted; `columns.rs` packs its data. The table of
//! ranks, for readers without scripts, is plain HTML.

mod columns;
mod legend;
mod parts;
mod viewer;

use crate::canvas::DrawError;
use crate::class::Class;
use crate::gantt::{TimeAxis, Window};
use crate::timeline::Timeline;
use legend::{Legend, key, summary};
pub use parts::{BASE_SCRIPT, Escaped, Table, base_style, color_style, filled, script_json};
pub use viewer::viewer;

/// Template of the page, with places named in comments: `<!-- style -->`.
const PAGE: &str = include_str!("page.html");

const STYLE: &str = include_str!("style.css");

/// Parts of the script, in the order of use; they share one scope.
const SCRIPTS: [&str; 9] = [
    BASE_SCRIPT,
    include_str!("format.js"),
    include_str!("data.js"),
    include_str!("rows.js"),
    include_str!("view.js"),
    include_str!("paint.js"),
    include_str!("describe.js"),
    include_str!("input.js"),
    include_str!("main.js"),
];

/// Options of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageOptions {
    /// Unit of time.
    pub time_axis: TimeAxis,
    /// Part that is shown initially.
    pub window: Window,
}

/// A page with timelines below each other on a common time axis, for zooming, panning, unfolding ranks into streams,
/// searching, selecting a range, and following a micro-batch.
///
/// Times beyond 2^53 nanoseconds are shown to a float's precision.
///
/// # Errors
///
/// [`DrawError::NothingThere`] if nothing lies in the part that is shown at first.
pub fn page(timelines: &[&Timeline], options: &PageOptions) -> Result<String, DrawError> {
    let [from, to] = options.window.of(timelines)?;
    Ok(with_data(timelines, options.time_axis, |page| {
        page.push_str(&columns::json(timelines, options.time_axis, [from, to]));
    }))
}

/// The page of timelines, with its data inserted by `put`.
fn with_data(timelines: &[&Timeline], axis: TimeAxis, put: impl Fn(&mut String)) -> String {
    let titles: Vec<&str> = timelines.iter().map(|timeline| timeline.title.as_str()).collect();
    filled(PAGE, |place, page| match place {
        "title" => page.push_str(&Escaped(&titles.join(" | ")).to_string()),
        "style" => {
            let color = |theme| move |class: Class| (key(class), class.color(theme));
            let colors = color_style(|theme| Class::all().map(color(theme)).collect());
            page.push_str(&(base_style() + STYLE + &colors));
        }
        "legend" => page.push_str(&Legend(timelines).to_string()),
        "summary" => {
            page.extend(timelines.iter().map(|timeline| summary(timeline, axis).to_string()));
        }
        "data" => put(page),
        "script" => page.push_str(&SCRIPTS.concat()),
        other => unreachable!("the page has no place `{other}`"),
    })
}
