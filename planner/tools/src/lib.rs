//! The settings of tools that train: import, export, lint.
//!
//! Knows the core's plans and predictions; never a measured run, a terminal.

pub mod interchange;
pub mod lint;
