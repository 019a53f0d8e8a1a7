//! Settings of training tools: import, export and lint; and files in which tools describe a network.
//!
//! Depends on the core's plans and predictions, but never on measured runs or a terminal.

pub mod interchange;
pub mod lint;
pub mod topology;
