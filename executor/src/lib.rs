//! Measurements of a machine by the executor's own parts: what the `executor` command checks and calibrates.
//!
//! Knows ranks, communicators and kernels by what they offer; never how they do it.

mod alone;
pub mod calibration;
pub mod check;
pub mod collectives;
mod measure;
