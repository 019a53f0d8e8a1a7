//! Pipeline schedules: data that is checked, simulated, drawn and executed.
//!
//! [`generate()`] makes the schedule of a family and [`read_csv`] reads a user's schedule. Both contain only
//! computation; passes add the rest: [`add_communication`], [`add_reduction`], [`add_optimizer_steps`]. From either
//! source, a [`Schedule`] value is complete, ordered and free of deadlock.

mod action;
mod check;
mod csv;
mod display;
mod generate;
mod given;
mod kind;
mod order;
mod passes;
mod placement;

pub use action::{Action, ActionKind, ParseActionError, ScheduleStep};
pub use check::{Defect, ScheduleError, Sends, Wait, check};
pub use csv::{CsvError, read_csv, write_csv};
pub use generate::{GenerateError, MOST_STAGES, generate, generate_steps};
pub use given::{UserSchedule, UserScheduleError};
pub use kind::{ScheduleKind, UnknownSchedule};
pub use order::{Schedule, Updates};
pub use passes::{add_communication, add_optimizer_steps, add_reduction};
pub use placement::StagePlacement;
