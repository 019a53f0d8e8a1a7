//! Tests of the executor: what it computes, against definitions, other libraries and itself on one rank.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, as it should")]

mod adapters;
mod array;
mod asynchronous;
mod check;
mod checkpoint;
mod collectives;
mod commands;
mod context;
mod control_messages;
mod data;
mod drawn;
mod empty_arrays;
mod experts;
mod families;
mod measuring;
mod memory;
mod nccl;
mod offload;
mod ops;
mod parity;
mod precision;
mod predictions;
mod recompute;
mod reference;
mod rendezvous;
mod replication;
mod traffic;
#[cfg(feature = "wgpu")]
mod wgpu;

#[path = "../common/training.rs"]
mod training;

/// Whether tests that take minutes run too.
fn runs_slow_tests() -> bool {
    std::env::var_os("RUN_SLOW_TESTS").is_some_and(|value| value == "1")
}
