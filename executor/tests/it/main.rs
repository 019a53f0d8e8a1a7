//! Tests of the `executor` command, and of what it measures.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, as it should")]

mod check;
mod commands;
mod measuring;
mod predictions;

/// Whether tests that take minutes run too.
fn runs_slow_tests() -> bool {
    std::env::var_os("RUN_SLOW_TESTS").is_some_and(|value| value == "1")
}
