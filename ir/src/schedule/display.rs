//! Schedules as text: the whole grid, or the part of it around a defect.

use std::fmt;

use super::{Action, Schedule, ScheduleStep};

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let with_stages = has_several_stages(self.ranks());
        let width = (self.ranks().len().max(1) - 1).to_string().len();
        for (rank, steps) in self.ranks().iter().enumerate() {
            write!(f, "{rank:width$} |")?;
            for step in steps {
                write!(f, " {}", Cell { step, with_stages })?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// True if any rank has actions of several stages; the grid then shows stage numbers.
fn has_several_stages(ranks: &[Vec<ScheduleStep>]) -> bool {
    ranks.iter().any(|steps| {
        let mut stages = steps.iter().flat_map(|step| step.actions()).map(|action| action.stage);
        let first = stages.next();
        stages.any(|stage| Some(stage) != first)
    })
}

struct Cell<'a> {
    step: &'a ScheduleStep,
    with_stages: bool,
}

impl fmt::Display for Cell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |action: Action| {
            let text = action.to_string();
            let start = if self.with_stages { 0 } else { action.stage.to_string().len() };
            text[start..].to_owned()
        };
        match *self.step {
            ScheduleStep::One(action) => f.write_str(&short(action)),
            ScheduleStep::Overlapped(forward, backward) => {
                write!(f, "({};{})", short(forward), short(backward))
            }
        }
    }
}

/// Ranks shown above and below the one with the defect.
const RANKS_AROUND: usize = 2;
/// Steps shown before and after the one with the defect.
const STEPS_AROUND: usize = 4;

/// The part of the grid around the step `at.1` of rank `at.0`; that step is in brackets and marked with an arrow. For
/// every other rank, `heads` returns the step in the middle.
pub(super) fn excerpt(
    ranks: &[Vec<ScheduleStep>],
    at: (usize, usize),
    heads: impl Fn(usize) -> usize,
) -> String {
    use fmt::Write as _;
    let shown = at.0.saturating_sub(RANKS_AROUND)..ranks.len().min(at.0 + RANKS_AROUND + 1);
    let width = (shown.end.max(1) - 1).to_string().len();
    let mut text = String::new();
    for rank in shown {
        let steps = &ranks[rank];
        let middle = if rank == at.0 { at.1 } else { heads(rank) };
        let end = steps.len().min(middle.saturating_add(STEPS_AROUND + 1));
        let start = middle.saturating_sub(STEPS_AROUND).min(end);
        let mut row = format!("{rank:width$} |");
        if start > 0 {
            row.push_str(" ..");
        }
        for (index, step) in steps[start..end].iter().enumerate() {
            let cell = Cell { step, with_stages: true };
            let result = if (rank, start + index) == at {
                write!(row, " [{cell}]")
            } else {
                write!(row, " {cell}")
            };
            result.expect("a string takes any text");
        }
        if end < steps.len() {
            row.push_str(" ..");
        }
        if rank == at.0 {
            row.push_str(if at.1 < steps.len() { "  <-- here" } else { " []  <-- here" });
        }
        text.push_str(&row);
        text.push('\n');
    }
    text
}
