//! Measurements of a machine with the executor's own components: the checks and calibrations of the `executor` command.
//!
//! Uses ranks, communicators and kernels through their public interfaces only.

mod alone;
pub mod calibration;
pub mod check;
pub mod collectives;
mod measure;
