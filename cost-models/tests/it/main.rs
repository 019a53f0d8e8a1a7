//! What the crate promises, seen from outside.

mod clusters;
mod collectives;
mod kernels;
mod measured;
