//! Pages of pictures that do not move: the drawing for light and for dark rooms, and its numbers.

use super::{Escaped, Table, base_style, filled};

/// The page and its places, each named in a comment.
const PAGE: &str = include_str!("still.html");

/// A page with a picture and a table of its numbers: one file, which needs nothing else, no scripts and
/// no network. Of the two drawings, SVG documents both, a browser shows that of its theme.
pub fn still(title: &str, [light, dark]: [&str; 2], table: &Table) -> String {
    filled(PAGE, |place, page| match place {
        "title" => page.push_str(&Escaped(title).to_string()),
        "style" => page.push_str(&base_style()),
        "light" => page.push_str(light),
        "dark" => page.push_str(dark),
        "table" => page.push_str(&table.to_string()),
        other => unreachable!("the page has no place `{other}`"),
    })
}
