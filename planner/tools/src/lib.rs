//! Settings of training tools: import, export, lint; and what tools say of a network.
//!
//! Depends on the core's plans and predictions, never on a measured run or a terminal.

pub mod interchange;
pub mod lint;
pub mod topology;
