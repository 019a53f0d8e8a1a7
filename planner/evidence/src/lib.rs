//! Measured runs: their predictions, and the constants that are fitted to them.
//!
//! Depends on the core's predictions, but never on a tool's files or a terminal.

pub mod calibration;
pub mod measured;
pub mod validation;
