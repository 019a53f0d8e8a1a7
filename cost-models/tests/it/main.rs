//! Promises of the crate, seen from outside.

mod blocks;
mod clusters;
mod collectives;
mod constants;
mod frameworks;
mod kernels;
mod measured;
mod residuals;
mod states;
mod zero_table;
