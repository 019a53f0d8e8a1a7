//! What the crate promises, seen from outside.

mod blocks;
mod clusters;
mod collectives;
mod frameworks;
mod kernels;
mod measured;
mod zero_table;
