//! Tables that read well in 100 columns.

use super::output::columns;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets};

/// Cells that are wider hold prose, which may be broken.
const PROSE: u16 = 32;

/// The least that is left to prose.
const LEAST_PROSE: u16 = 24;

/// A table with a heading; columns named in `left` are left-aligned, all others right.
pub(crate) fn table(headings: &[&str], left: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(headings.iter().map(|heading| (*heading).to_owned()));
    for (index, heading) in headings.iter().enumerate() {
        if let Some(column) = table.column_mut(index) {
            let aligned =
                if left.contains(heading) { CellAlignment::Left } else { CellAlignment::Right };
            column.set_cell_alignment(aligned);
            column.set_padding((if index == 0 { 2 } else { 1 }, 1));
        }
    }
    table
}

/// The table as text, without blanks at the ends of lines; on a terminal that is narrower, with prose in several lines.
pub(crate) fn render(table: &Table) -> String {
    let widest = table.lines().map(|line| line.trim_end().chars().count()).max().unwrap_or(0);
    let narrower = columns().filter(|columns| *columns < widest);
    let fitted = narrower.and_then(|columns| fitted(table, columns));
    let table = fitted.as_ref().unwrap_or(table);
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// The table in so many columns of a terminal, of which prose has what is left; none where that is too little. Names and
/// numbers are never broken.
fn fitted(table: &Table, columns: usize) -> Option<Table> {
    let widths = table.column_max_content_widths();
    let is_prose = |width: &u16| *width > PROSE;
    let taken: usize = widths
        .iter()
        .map(|width| if is_prose(width) { LEAST_PROSE } else { *width })
        .map(usize::from)
        .sum();
    // A blank on each side of each, and one more before the first.
    let blanks = 2 * widths.len() + 1;
    if !widths.iter().any(is_prose) || taken + blanks > columns {
        return None;
    }
    let mut fitted = table.clone();
    fitted.set_content_arrangement(ContentArrangement::Dynamic);
    fitted.set_width(u16::try_from(columns).ok()?);
    for (index, width) in widths.iter().enumerate().filter(|(_, width)| !is_prose(width)) {
        let constraint =
            ColumnConstraint::LowerBoundary(Width::Fixed(width + if index == 0 { 3 } else { 2 }));
        fitted.column_mut(index)?.set_constraint(constraint);
    }
    Some(fitted)
}

/// A count with a unit: `70.55 B`.
pub(crate) fn count(number: f64) -> String {
    const UNITS: [(f64, &str); 4] = [(1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")];
    match UNITS.into_iter().find(|(scale, _)| number >= *scale) {
        Some((scale, unit)) => format!("{:.2} {unit}", number / scale),
        None => format!("{number:.0}"),
    }
}

/// A share in per cent.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
