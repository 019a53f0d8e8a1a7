//! Measured runs: their predictions, and constants that are fitted to them.
//!
//! Knows the core's predictions; never a tool's file, a terminal.

pub mod calibration;
pub mod measured;
pub mod validation;
