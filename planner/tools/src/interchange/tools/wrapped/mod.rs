//! Tools and older versions whose settings are those of another tool in other words.

mod hydra;
mod own;
mod read;
mod references;
mod tools;
mod verl;
mod wrapper;

pub(super) use tools::*;
