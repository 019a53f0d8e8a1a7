//! Common behaviour of the commands: reading numbers, reporting mistakes, printing and writing, and shell completions.
//!
//! The crate knows nothing of plans: users of one command know how the other behaves.

pub mod destination;
pub mod numbers;
pub mod shell;
pub mod terminal;
pub mod usage;
pub mod whole;
