//! Tables that read well in 100 columns.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

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

/// The table as text, without blanks at the ends of lines.
pub(crate) fn render(table: &Table) -> String {
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
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
