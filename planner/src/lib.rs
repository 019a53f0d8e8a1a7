//! The library part of the `planner` command, without its terminal: reports, lookup of names, and detection of file
//! kinds.

pub mod file_kind;
pub mod names;
pub mod report;
