//! Times of collective operations on the levels of a cluster's network.
//!
//! `bytes` always counts the whole, unsharded buffer: the result of an all-gather on every rank, the input of a
//! reduce-scatter or an all-reduce on every rank, the bytes that each rank sends in an all-to-all (its own part
//! included), the message of a broadcast or a send.

mod curves;
mod group;
mod network;

pub use group::StridedGroup;
pub use ir::collective::Collective;
pub use network::{Crossed, Network};

/// Names of the built-in fitted collective rates.
pub fn fitted_rates() -> Vec<String> {
    curves::CollectiveRates::names()
}
