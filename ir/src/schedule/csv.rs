//! PyTorch's pipeline-order CSV: one row per rank, one cell per step, empty where idle.

use std::fmt::Write as _;

use super::{ActionKind, ParseActionError, Schedule, ScheduleError, ScheduleStep, StagePlacement};

/// A CSV that is not a schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CsvError {
    /// A cell that is not an action.
    #[error("row {row}, column {column}: `{cell}`")]
    Cell {
        /// The row, from 1.
        row: usize,
        /// The column, from 1.
        column: usize,
        /// The cell, shortened.
        cell: String,
        /// Reason why the cell is not an action.
        #[source]
        source: ParseActionError,
    },
    /// A row without a pass.
    #[error("row {row} has no pass; a row is a pipeline rank, with its passes")]
    Row {
        /// The row, from 1.
        row: usize,
    },
    /// A CSV of empty cells.
    #[error("the CSV has no action; a row is a rank, a cell an action such as `2F0`")]
    Empty,
    /// Actions that do not form a valid schedule; rows are ranks from 0.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
}

/// Parses a pipeline-order CSV with computation alone, or with communication and sharding.
///
/// Empty cells are skipped; so are quotes and spaces around a cell, a byte-order mark, and empty
/// lines at the end. The placement of stages and the number of micro-batches are inferred.
///
/// # Errors
///
/// The first cell that is not an action, a row that has no pass, or the defect of the schedule.
pub fn read_csv(text: &str) -> Result<Schedule, CsvError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).trim_end();
    let mut ranks = Vec::new();
    for (line, row) in text.lines().zip(1..) {
        let mut steps = Vec::with_capacity(line.len() / 5);
        for (cell, column) in line.split(',').zip(1..) {
            let cell = cell.trim().trim_matches('"').trim();
            if cell.is_empty() {
                continue;
            }
            let step = cell.parse::<ScheduleStep>().map_err(|source| CsvError::Cell {
                row,
                column,
                cell: cell.chars().take(40).flat_map(char::escape_debug).collect(),
                source,
            })?;
            steps.push(step);
        }
        ranks.push(steps);
    }
    let micro_batches = ranks.iter().flatten().flat_map(|step: &ScheduleStep| step.actions());
    let last = micro_batches.map(|action| action.micro_batch).max().ok_or(CsvError::Empty)?;
    let is_idle = |steps: &Vec<ScheduleStep>| {
        !steps.iter().flat_map(|step| step.actions()).any(|action| action.kind.is_compute())
    };
    if let Some(rank) = ranks.iter().position(is_idle) {
        return Err(CsvError::Row { row: rank + 1 });
    }
    let placement = StagePlacement::infer(&ranks);
    Ok(Schedule::new(ranks, placement, last.saturating_add(1))?)
}

/// The schedule as pipeline-order CSV, without idle cells: PyTorch loads it as `compute_only` if it has computation
/// alone, and as `compute_comms` else.
///
/// PyTorch has no name for the optimizer's step, so the file leaves steps out, and loses the time of updates.
pub fn write_csv(schedule: &Schedule) -> String {
    let is_known = |step: &&ScheduleStep| !matches!(step, ScheduleStep::One(action) if action.kind == ActionKind::OptimizerStep);
    let mut text = String::new();
    for steps in schedule.ranks() {
        for (index, step) in steps.iter().filter(is_known).enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(text, "{comma}{step}").expect("a string takes any text");
        }
        text.push_str("\r\n");
    }
    text
}
