//! Reports of plans, and the names that users give: what the `planner` command has beside its terminal.

pub mod file_kind;
pub mod names;
pub mod report;
