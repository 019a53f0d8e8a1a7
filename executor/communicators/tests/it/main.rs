//! Tests of communicators: what collectives give, and who is told that a rank failed.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, as it should")]

mod collectives;
mod nccl;
mod rendezvous;

#[path = "../common/threads.rs"]
mod threads;
