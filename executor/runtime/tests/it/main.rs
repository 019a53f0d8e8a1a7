//! Tests of ranks: what they compute, against definitions, other libraries and themselves on one rank.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, as it should")]

mod adapters;
mod asynchronous;
mod checkpoint;
mod context;
mod control_messages;
mod data;
mod drawn;
mod experts;
mod families;
mod memory;
mod offload;
mod parity;
mod precision;
mod recompute;
mod recurrences;
mod reference;
mod replication;
mod traffic;
#[cfg(feature = "wgpu")]
mod wgpu;

#[path = "../../../communicators/tests/common/threads.rs"]
mod threads;
#[path = "../common/training.rs"]
mod training;

/// Whether tests that take minutes run too.
fn runs_slow_tests() -> bool {
    std::env::var_os("RUN_SLOW_TESTS").is_some_and(|value| value == "1")
}
