//! Promises of the core, without the command.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, as it should")]

mod checks;
mod exact;
mod hostile;
mod laws;
mod operators;
mod random;
mod scheduling;
mod unlike;
