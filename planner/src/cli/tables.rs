//! Text tables that fit into 100 columns, and into narrower terminals.

use comfy_table::{
    Cell, CellAlignment, ColumnConstraint, ContentArrangement, Row, Table, Width, presets,
};
use command_line::terminal::columns;
use ir::units::Bytes;

/// Width in columns up to which a cell is never broken. Wider cells are prose, which may be wrapped.
const PROSE: u16 = 32;

/// Least width of prose, in columns.
const LEAST_PROSE: u16 = 24;

/// Number of GiB in a form that `--headroom` accepts: a whole number, or one with one decimal.
pub(crate) fn gib(bytes: Bytes) -> String {
    let gib = bytes.as_gib();
    if (gib - gib.round()).abs() < 1e-6 { format!("{gib:.0}") } else { format!("{gib:.1}") }
}

/// A table with a heading. Columns in `left` are left-aligned, all others right-aligned.
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

/// Text of a table of `rows`, fitted to the width of stdout.
pub(crate) fn text_table<const N: usize, C: Into<Cell>>(
    headings: [&str; N],
    left: &[&str],
    rows: impl IntoIterator<Item = [C; N]>,
) -> String {
    let mut all = table(&headings, left);
    all.add_rows(rows);
    render(&all)
}

/// Text of a table without trailing blanks, in a narrower form if the terminal needs it.
pub(crate) fn render(table: &Table) -> String {
    columns().map_or_else(|| lines(table), |columns| narrowed(table, columns))
}

/// Fits a table into `columns`: unchanged; with wrapped prose; as records, a heading and cell per line; or, without
/// prose, in groups of columns one below the other, each with the first column.
fn narrowed(table: &Table, columns: usize) -> String {
    let widest = table.lines().map(|line| line.trim_end().chars().count()).max().unwrap_or(0);
    if widest <= columns {
        return lines(table);
    }
    let has_prose = table.column_max_content_widths().iter().any(|width| *width > PROSE);
    let parts = parts(table, columns);
    match fitted(table, columns) {
        Some(fitted) => lines(&fitted),
        None if has_prose && parts.is_none() => records(table, columns),
        None => parts.unwrap_or_else(|| lines(table)),
    }
}

fn lines(table: &Table) -> String {
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Groups of columns one below the other, each with the first column; `None` if a column does not fit next to it.
fn parts(table: &Table, columns: usize) -> Option<String> {
    // Each column has a blank on both sides, and the first has one more.
    let widths: Vec<usize> =
        table.column_max_content_widths().iter().map(|width| usize::from(*width) + 2).collect();
    let first = widths.first()? + 1;
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut width_left = 0;
    for (index, width) in widths.iter().enumerate().skip(1) {
        if first + width > columns + 1 {
            return None;
        }
        match groups.last_mut() {
            Some(group) if *width <= width_left => group.push(index),
            _ => {
                groups.push(vec![index]);
                width_left = columns + 1 - first;
            }
        }
        width_left -= width;
    }
    let part = |group: &Vec<usize>| {
        let mut part = table.clone();
        for index in (1..widths.len()).filter(|index| !group.contains(index)) {
            part.column_mut(index)?.set_constraint(ColumnConstraint::Hidden);
        }
        Some(lines(&part))
    };
    let parts: Option<Vec<String>> = groups.iter().map(part).collect();
    Some(parts?.join("\n"))
}

/// Records: the first cell of each row, and below it the other cells with their headings.
fn records(table: &Table, columns: usize) -> String {
    let headings: Vec<String> = table.header().map_or_else(Vec::new, cells);
    let widest = headings.iter().skip(1).map(|heading| heading.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for row in table.row_iter() {
        let row = cells(row);
        let mut below = Table::new();
        below.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
        below.set_width(u16::try_from(columns).unwrap_or(u16::MAX));
        for (heading, cell) in
            headings.iter().zip(&row).skip(1).filter(|(_, cell)| !cell.is_empty())
        {
            below.add_row([heading, cell]);
        }
        if let Some(column) = below.column_mut(0) {
            column.set_padding((4, 1));
            let width = u16::try_from(widest + 5).unwrap_or(u16::MAX);
            column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width)));
        }
        let name = row.first().map_or("", String::as_str);
        text.extend(["  ", name, "\n", &lines(&below)]);
    }
    text
}

fn cells(row: &Row) -> Vec<String> {
    row.cell_iter().map(Cell::content).collect()
}

/// Fits a table into `columns` by wrapping prose to the remaining width; `None` if that width is too small. Names and
/// numbers are never broken.
fn fitted(table: &Table, columns: usize) -> Option<Table> {
    let widths = table.column_max_content_widths();
    let is_prose = |width: &u16| *width > PROSE;
    let taken: usize = widths
        .iter()
        .map(|width| if is_prose(width) { LEAST_PROSE } else { *width })
        .map(usize::from)
        .sum();
    // Each column has a blank on both sides, and the first has one more.
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

/// Unit of throughput in headings: tokens, or samples for models without a sequence.
pub(crate) const fn unit_of_rate(has_sequence: bool) -> &'static str {
    if has_sequence { "tok/s/GPU" } else { "samples/s/GPU" }
}

/// A share as a percentage.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Relative difference of `one` from `other` as a percentage, with its sign.
pub(crate) fn percent_more(one: f64, other: f64) -> String {
    format!("{:+.1} %", (one / other - 1.0) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn widest(text: &str) -> usize {
        text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
    }

    fn plans() -> Table {
        let mut plans = table(&["", "layout", "ZeRO", "step s", "GiB", "fastest"], &["layout"]);
        plans.add_row(["1", "tp4-sp-cp2-pp16", "1", "6.37", "68.5", "17 %"]);
        plans.add_row(["2", "tp8-pp2", "3", "16.37", "8.5", "7 %"]);
        plans
    }

    /// A table that fits is unchanged. Otherwise groups of columns follow each other, each with the first column, and
    /// no cell is lost.
    #[test]
    fn columns_follow_columns() {
        let plans = plans();
        let whole = narrowed(&plans, 100);
        assert_eq!(whole, lines(&plans));
        for columns in [60, 40, 34, 26] {
            let text = narrowed(&plans, columns);
            assert!(widest(&text) <= columns, "{columns}:\n{text}");
            for cell in plans.row_iter().flat_map(cells).chain(cells(plans.header().unwrap())) {
                assert!(text.contains(&cell), "{columns}: no {cell} in\n{text}");
            }
        }
        assert_eq!(
            narrowed(&plans, 34),
            "     layout           ZeRO  step s\n\
             \x20 1  tp4-sp-cp2-pp16     1    6.37\n\
             \x20 2  tp8-pp2             3   16.37\n\
             \n\
             \x20     GiB  fastest\n\
             \x20 1  68.5     17 %\n\
             \x20 2   8.5      7 %\n"
        );
    }

    /// Prose is wrapped if enough width is left for it; otherwise rows become records.
    #[test]
    fn prose_is_broken() {
        let mut frameworks =
            table(&["framework", "what it is", "ZeRO"], &["framework", "what it is"]);
        frameworks.add_row(["one", "a framework of which there is a good deal to be told", "0 1"]);
        frameworks.add_row(["another", "short", ""]);
        for columns in [60, 50, 30, 20] {
            let text = narrowed(&frameworks, columns);
            assert!(widest(&text) <= columns, "{columns}:\n{text}");
        }
        let narrow = narrowed(&frameworks, 30);
        let expected = "  one\n    what it is  a framework\n";
        assert!(
            narrow.starts_with(expected) && narrow.contains("\n    ZeRO        0 1\n"),
            "{narrow}"
        );
        assert!(narrow.ends_with("\n  another\n    what it is  short\n"), "{narrow}");
    }
}
