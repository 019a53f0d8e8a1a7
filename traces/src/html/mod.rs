//! Timelines as a page to look into: one file, which needs nothing else and no network.
//!
//! The page is `page.html`, with `style.css` and the scripts beside it put in; `columns.rs` packs its
//! data. What a reader without scripts needs, the table of ranks, is plain HTML.

mod columns;
mod legend;
mod still;
mod viewer;

use std::collections::BTreeSet;
use std::fmt::{self, Write};

use ir::text::printable;
use ir::units::{Bytes, Nanos};

use crate::canvas::DrawError;
use crate::class::{Class, DataLane};
use crate::gantt::{TimeAxis, Window};
use crate::timeline::{Event, Timeline, Track};
use legend::{Legend, used};
pub use still::{Table, still};
pub use viewer::viewer;

/// The page and its places, each named in a comment: `<!-- style -->`.
const PAGE: &str = include_str!("page.html");

const STYLE: &str = include_str!("style.css");

/// The parts of the script, in the order of use; they share one scope.
const SCRIPTS: [&str; 8] = [
    include_str!("format.js"),
    include_str!("data.js"),
    include_str!("rows.js"),
    include_str!("view.js"),
    include_str!("paint.js"),
    include_str!("describe.js"),
    include_str!("input.js"),
    include_str!("main.js"),
];

/// How a page shows timelines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageOptions {
    /// What time is counted in.
    pub time_axis: TimeAxis,
    /// What part is shown at first.
    pub window: Window,
}

/// A page that shows timelines one below the other on a common axis of time: to zoom, to pan, to
/// unfold ranks into streams, to search, to select a range, and to follow a micro-batch.
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

/// The page of timelines with its data put in by `put`.
fn with_data(timelines: &[&Timeline], axis: TimeAxis, put: impl Fn(&mut String)) -> String {
    filled(PAGE, |place, page| match place {
        "title" => page.push_str(&title(timelines)),
        "style" => {
            page.push_str(STYLE);
            page.push_str(&legend::colors());
        }
        "legend" => page.push_str(&Legend(timelines).to_string()),
        "summary" => {
            page.extend(timelines.iter().map(|timeline| Summary { timeline, axis }.to_string()));
        }
        "data" => put(page),
        "script" => page.push_str(&SCRIPTS.concat()),
        other => unreachable!("the page has no place `{other}`"),
    })
}

/// A template with its places, each named in a comment, `<!-- title -->`, filled by `fill`, which is told
/// their names.
///
/// # Panics
///
/// If the template does not close a comment.
pub fn filled(template: &str, mut fill: impl FnMut(&str, &mut String)) -> String {
    let mut page = String::new();
    let mut rest = template;
    // What is put in is not searched for places again, so it may hold any text.
    while let Some((before, after)) = rest.split_once("<!-- ") {
        let (place, after) = after.split_once(" -->").expect("the page closes its comments");
        page.push_str(before);
        fill(place, &mut page);
        rest = after;
    }
    page.push_str(rest);
    page
}

/// What a browser's tab says.
fn title(timelines: &[&Timeline]) -> String {
    let titles: Vec<&str> = timelines.iter().map(|timeline| timeline.title.as_str()).collect();
    Escaped(&titles.join(" | ")).to_string()
}

/// A table of a timeline's ranks: where their time goes, and what memory they need.
struct Summary<'a> {
    timeline: &'a Timeline,
    axis: TimeAxis,
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { timeline, axis } = self;
        let end = axis.write(timeline.end());
        let bubble = 100.0 * timeline.bubble_fraction();
        writeln!(
            f,
            "<table><caption>{}: step of {end}, {bubble:.1} % bubble</caption>",
            Escaped(&timeline.title)
        )?;
        let (classes, data) = (used(&[timeline]), DataLane::of(&[timeline]));
        f.write_str("<thead><tr>")?;
        let first = ["track", "ranks", "events", "busy", "busy %"];
        let classes_in_words = classes.iter().map(|class| class.name_beside(data));
        for heading in first.into_iter().chain(classes_in_words).chain(["peak memory", "capacity"])
        {
            write!(f, "<th scope=\"col\">{heading}</th>")?;
        }
        f.write_str("</tr></thead>\n<tbody>\n")?;
        for track in &timeline.tracks {
            self.write_row(f, track, &classes)?;
        }
        f.write_str("</tbody></table>\n")
    }
}

impl Summary<'_> {
    fn write_row(
        &self,
        f: &mut fmt::Formatter<'_>,
        track: &Track,
        classes: &BTreeSet<Class>,
    ) -> fmt::Result {
        let Track { name, rank, num_ranks, events, memory_capacity, .. } = track;
        let ranks = match num_ranks {
            0 | 1 => rank.to_string(),
            _ => format!("{rank} to {}", u64::from(*rank) + u64::from(*num_ranks) - 1),
        };
        let end = self.timeline.end().as_f64();
        let busy = track.busy();
        let share = if end == 0.0 { 0.0 } else { 100.0 * busy.as_f64() / end };
        write!(
            f,
            "<tr><th scope=\"row\">{}</th><td>{ranks}</td><td>{}</td><td>{}</td><td>{share:.1}</td>",
            Escaped(name),
            events.len(),
            self.axis.write(busy)
        )?;
        for class in classes {
            let of_class = events.iter().filter(|event| Class::of(event) == *class);
            let total: Nanos = of_class.map(Event::duration).sum();
            write!(f, "<td>{}</td>", self.axis.write(total))?;
        }
        let memory = |bytes: Option<Bytes>| match (bytes, self.axis) {
            (None, _) => "unknown".to_owned(),
            (Some(bytes), TimeAxis::Clock) => bytes.to_string(),
            (Some(bytes), TimeAxis::Units(_)) => format!("{} in flight", bytes.get()),
        };
        let (peak, capacity) = (memory(track.peak_memory()), memory(*memory_capacity));
        writeln!(f, "<td>{peak}</td><td>{capacity}</td></tr>")
    }
}

/// Prints a text so that HTML shows it as it is, in elements and in quoted attributes.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in printable(self.0).chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}
