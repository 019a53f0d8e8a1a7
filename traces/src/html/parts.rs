//! Parts of all pages: template, styles, scripts, tables, escaped text.

use std::fmt::{self, Write as _};

use ir::text::printable;

use crate::palette::{Rgb, Theme};

/// Script that all pages share, inserted before their own: it creates elements.
pub const BASE_SCRIPT: &str = include_str!("dom.js");

/// Style sheet that all pages share, with the palette's colours, inserted before their own.
pub fn base_style() -> String {
    let colors = |theme: Theme| {
        vec![
            ("paper", theme.background()),
            ("ink", theme.text()),
            ("faint", theme.muted_text()),
            ("line", theme.grid()),
            ("idle", theme.idle()),
            ("alarm", theme.limit()),
        ]
    };
    color_style(colors) + include_str!("base.css")
}

/// Style rule that names the colours of a theme.
pub fn color_style<N: fmt::Display>(colors: impl Fn(Theme) -> Vec<(N, Rgb)>) -> String {
    let [light, dark] = Theme::ALL.map(colors);
    let pairs = light.into_iter().zip(dark);
    let color = |((name, light), (_, dark))| format!("  --{name}: light-dark({light}, {dark});\n");
    format!(":root {{\n{}}}\n", pairs.map(color).collect::<String>())
}

/// A template whose places, named in comments as in `<!-- title -->`, are filled by `fill`, which receives their names.
///
/// # Panics
///
/// If the template does not close a comment.
pub fn filled(template: &str, mut fill: impl FnMut(&str, &mut String)) -> String {
    let mut page = String::new();
    let mut rest = template;
    // Inserted text is not searched for places, so it may hold any text.
    while let Some((before, after)) = rest.split_once("<!-- ") {
        let (place, after) = after.split_once(" -->").expect("the page closes its comments");
        page.push_str(before);
        fill(place, &mut page);
        rest = after;
    }
    page.push_str(rest);
    page
}

/// Table of texts, with the first cell of each row as its heading. Prints as HTML.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Caption above the table.
    pub caption: String,
    /// Headings of the columns.
    pub headings: Vec<String>,
    /// The rows, each as long as the headings or shorter.
    pub rows: Vec<Vec<String>>,
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

/// Displays a text escaped for HTML elements and quoted attributes.
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

/// A value as JSON that may be in a `script` element: no end tag and no comment starts inside it.
pub fn script_json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("plain data is JSON").replace('<', "\\u003c")
}
