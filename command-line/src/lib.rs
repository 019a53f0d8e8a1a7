//! Common behaviour of the commands: parsing numbers, reporting errors, printing and writing, and shell completions.
//!
//! The crate knows nothing of plans. It makes the commands behave alike, so that users of one know the others.

pub mod destination;
pub mod numbers;
pub mod shell;
pub mod terminal;
pub mod usage;
pub mod whole;
