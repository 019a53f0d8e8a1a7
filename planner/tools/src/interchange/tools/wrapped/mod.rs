//! Tools and older versions whose settings are those of another tool in other words.

mod own;
mod read;
mod tools;

pub(super) use tools::*;
