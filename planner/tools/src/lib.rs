//! Settings of training tools: import, export, lint.
//!
//! Depends on the core's plans and predictions, never on a measured run or a terminal.

pub mod interchange;
pub mod lint;
