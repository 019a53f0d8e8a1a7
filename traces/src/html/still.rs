//! Pictures that do not move as a page: the drawing for light and for dark rooms, and its numbers.

use std::fmt;

use super::{Escaped, filled};
use crate::palette::Theme;

/// The page and its places, each named in a comment.
const PAGE: &str = include_str!("still.html");

/// Numbers in rows, of which the first of each row names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// What it shows.
    pub caption: String,
    /// What each column is.
    pub headings: Vec<String>,
    /// The rows, each as long as the headings or shorter.
    pub rows: Vec<Vec<String>>,
}

/// A page with a picture and a table of its numbers: one file, which needs nothing else, no scripts and
/// no network. Of the two drawings, SVG documents both, a browser shows that of its theme.
pub fn still(title: &str, [light, dark]: [&str; 2], table: &Table) -> String {
    filled(PAGE, |place, page| match place {
        "title" => page.push_str(&Escaped(title).to_string()),
        "style" => page.push_str(&colors()),
        "light" => page.push_str(light),
        "dark" => page.push_str(dark),
        "table" => page.push_str(&table.to_string()),
        other => unreachable!("the page has no place `{other}`"),
    })
}

/// The colours around the picture.
fn colors() -> String {
    let color = |name: &str, color: fn(Theme) -> crate::palette::Rgb| {
        let [light, dark] = Theme::ALL.map(color);
        format!("  --{name}: light-dark({light}, {dark});\n")
    };
    [
        color("paper", Theme::background),
        color("ink", Theme::text),
        color("faint", Theme::muted_text),
        color("line", Theme::grid),
    ]
    .concat()
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<table><caption>{}</caption>\n<thead><tr>", Escaped(&self.caption))?;
        for heading in &self.headings {
            write!(f, "<th scope=\"col\">{}</th>", Escaped(heading))?;
        }
        f.write_str("</tr></thead>\n<tbody>\n")?;
        for row in &self.rows {
            f.write_str("<tr>")?;
            for (index, cell) in row.iter().enumerate() {
                match index {
                    0 => write!(f, "<th scope=\"row\">{}</th>", Escaped(cell))?,
                    _ => write!(f, "<td>{}</td>", Escaped(cell))?,
                }
            }
            f.write_str("</tr>\n")?;
        }
        f.write_str("</tbody></table>\n")
    }
}
