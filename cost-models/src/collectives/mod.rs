//! Collective operations: volumes, and times on the levels of a cluster's network.
//!
//! `bytes` always counts the whole, unsharded buffer: what an all-gather leaves on every rank,
//! what a reduce-scatter or an all-reduce takes from every rank, what each rank sends in an
//! all-to-all (its own part included), what a broadcast or a send carries.

mod curves;
mod network;

pub use ir::collective::Collective;
pub use network::Network;

use ir::units::Bytes;

/// The names of the fitted collective rates that ship.
pub fn fitted_rates() -> Vec<String> {
    curves::CollectiveRates::names()
}

/// The ranks `first, first + stride, ..` that take part in a collective.
///
/// `first` is taken to be aligned, as the ranks of a mesh are: a group of stride 1 and size 8 lies
/// within one node of 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group {
    /// The number of ranks.
    pub size: u32,
    /// The distance between neighbours, in ranks.
    pub stride: u32,
}

impl Group {
    /// `size` ranks next to each other.
    pub const fn contiguous(size: u32) -> Self {
        Self { size, stride: 1 }
    }

    /// How many of the group lie within one domain of `ranks` ranks; at least one.
    ///
    /// Where the stride does not divide the domain, the emptiest domain counts.
    pub(crate) fn members_within(self, ranks: u32) -> u32 {
        (ranks / self.stride.max(1)).clamp(1, self.size.max(1))
    }
}

/// The bytes that a rank sends, as a multiple of the whole buffer, by the algorithm that sends
/// least.
///
/// ```text
/// all-reduce                              2 (n - 1) / n
/// all-gather, reduce-scatter, all-to-all    (n - 1) / n
/// broadcast, send                           1
/// ```
///
/// Zero for one rank.
///
/// # Source
///
/// Thakur, Rabenseifner and Gropp 2005, *Optimization of Collective Communication Operations in
/// MPICH*, sections 4.1 to 4.4.
pub fn volume_factor(kind: Collective, num_ranks: u32) -> f64 {
    if num_ranks < 2 {
        return 0.0;
    }
    let n = f64::from(num_ranks);
    match kind {
        Collective::AllReduce => 2.0 * (n - 1.0) / n,
        Collective::AllGather | Collective::ReduceScatter | Collective::AllToAll => (n - 1.0) / n,
        Collective::Broadcast | Collective::SendReceive => 1.0,
    }
}

/// The bytes that each of `num_ranks` ranks sends in a collective on a whole buffer of `bytes`.
///
/// # Source
///
/// [`volume_factor`].
pub fn volume_per_rank(kind: Collective, num_ranks: u32, bytes: Bytes) -> Bytes {
    Bytes::from_f64(volume_factor(kind, num_ranks) * bytes.as_f64())
}
