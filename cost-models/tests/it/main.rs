//! What the crate promises, seen from outside.

mod clusters;
mod collectives;
