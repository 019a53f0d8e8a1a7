//! Timelines as a page to look into: one file, which needs nothing else and no network.
//!
//! The page is `page.html`, with `style.css` and the scripts beside it put in; `columns.rs` packs its
//! data. What a reader without scripts needs, the table of ranks, is plain HTML.

mod columns;
mod legend;

use std::fmt::{self, Write};

use ir::units::{Bytes, Seconds};

use crate::timeline::{Timeline, Track};
use legend::Legend;

/// The page and its places, each named in a comment: `<!-- style -->`.
const PAGE: &str = include_str!("page.html");

const STYLE: &str = include_str!("style.css");

/// The parts of the script, in the order of use; they share one scope.
const SCRIPTS: [&str; 7] = [
    include_str!("format.js"),
    include_str!("data.js"),
    include_str!("rows.js"),
    include_str!("view.js"),
    include_str!("paint.js"),
    include_str!("input.js"),
    include_str!("main.js"),
];

/// A page that shows timelines one below the other on a common axis of time: to zoom, to pan, to
/// unfold ranks into streams, and to follow a micro-batch.
///
/// Times beyond 2^53 nanoseconds are shown to a float's precision.
pub fn page(timelines: &[&Timeline]) -> String {
    let mut page = String::new();
    let mut rest = PAGE;
    // What is put in is not searched for places again, so it may hold any text.
    while let Some((before, after)) = rest.split_once("<!-- ") {
        let (place, after) = after.split_once(" -->").expect("the page closes its comments");
        page.push_str(before);
        match place {
            "title" => page.push_str(&title(timelines)),
            "style" => {
                page.push_str(STYLE);
                page.push_str(&legend::colors());
            }
            "legend" => page.push_str(&Legend(timelines).to_string()),
            "summary" => {
                page.extend(timelines.iter().map(|timeline| Summary(timeline).to_string()));
            }
            "data" => page.push_str(&columns::json(timelines)),
            "script" => page.push_str(&SCRIPTS.concat()),
            other => unreachable!("the page has no place `{other}`"),
        }
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

/// A table of a timeline's ranks.
struct Summary<'a>(&'a Timeline);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(timeline) = self;
        let end = Seconds::from(timeline.end());
        let bubble = 100.0 * timeline.bubble_fraction();
        writeln!(
            f,
            "<table><caption>{}: step of {end}, {bubble:.1} % bubble</caption>",
            Escaped(&timeline.title)
        )?;
        f.write_str(
            "<thead><tr><th scope=\"col\">track</th><th scope=\"col\">ranks</th>\
             <th scope=\"col\">events</th><th scope=\"col\">busy</th>\
             <th scope=\"col\">busy %</th><th scope=\"col\">peak memory</th>\
             <th scope=\"col\">capacity</th></tr></thead>\n<tbody>\n",
        )?;
        for track in &timeline.tracks {
            write_row(f, track, timeline.end().as_f64())?;
        }
        f.write_str("</tbody></table>\n")
    }
}

fn write_row(f: &mut fmt::Formatter<'_>, track: &Track, end: f64) -> fmt::Result {
    let Track { name, rank, num_ranks, events, memory_capacity, .. } = track;
    let ranks = match num_ranks {
        0 | 1 => rank.to_string(),
        _ => format!("{rank} to {}", u64::from(*rank) + u64::from(*num_ranks) - 1),
    };
    let busy = track.busy();
    let share = if end == 0.0 { 0.0 } else { 100.0 * busy.as_f64() / end };
    let bytes = |bytes: Option<Bytes>| bytes.map_or("unknown".into(), |b| b.to_string());
    let (peak, capacity) = (bytes(track.peak_memory()), bytes(*memory_capacity));
    writeln!(
        f,
        "<tr><th scope=\"row\">{}</th><td>{ranks}</td><td>{}</td><td>{busy}</td>\
         <td>{share:.1}</td><td>{peak}</td><td>{capacity}</td></tr>",
        Escaped(name),
        events.len(),
    )
}

/// Prints a text so that HTML shows it as it is, in elements and in quoted attributes.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                // HTML has no way to write it.
                '\0' => f.write_char('\u{fffd}')?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}
