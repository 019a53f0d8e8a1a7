//! Pipeline schedules: one piece of data that is checked, simulated, drawn and executed.

mod action;
mod kind;

pub use action::{Action, ActionKind, ParseActionError, Step};
pub use kind::{ScheduleKind, UnknownSchedule};
