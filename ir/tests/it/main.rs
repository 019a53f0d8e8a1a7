//! Tests of what the crate promises to others.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, as it should")]

mod adapters;
mod architecture;
mod hostile;
mod hybrids;
mod lowering;
mod models;
mod native;
mod newer;
mod oracle;
mod recompute;
mod replication;
mod schedules;
mod schemas;
mod warnings;
