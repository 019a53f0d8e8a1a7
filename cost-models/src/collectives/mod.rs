//! Collective operations: volumes, and times on the levels of a cluster's network.
//!
//! `bytes` always counts the whole, unsharded buffer: what an all-gather leaves on every rank,
//! what a reduce-scatter or an all-reduce takes from every rank, what each rank sends in an
//! all-to-all (its own part included), what a broadcast or a send carries.

mod curves;
mod group;
mod network;
mod volume;

pub use group::Group;
pub use ir::collective::Collective;
pub use network::{Crossed, Network};
pub use volume::volume_per_rank;

/// The names of the fitted collective rates that ship.
pub fn fitted_rates() -> Vec<String> {
    curves::CollectiveRates::names()
}
