//! Tests of what the crate promises to others.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, as it should")]

mod asynchronous;
mod bound;
mod copies;
mod cycles;
#[path = "../../../ir/tests/it/schedules/families.rs"]
mod families;
mod laws;
mod least;
mod pytorch;
mod steps;
mod straggler;
