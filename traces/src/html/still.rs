//! Static pages: a drawing for the light and for the dark theme, and the table of its numbers.

use super::{Escaped, Table, base_style, filled};

/// Template of the page, with places named in comments.
const PAGE: &str = include_str!("still.html");

/// A page with a picture and a table of its numbers: one file, without scripts, other files or a network. Of the two
/// SVG drawings, a browser shows that of its theme.
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
