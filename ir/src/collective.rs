//! Collective operations: contents of each rank's buffer, before and after.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A collective operation within a group of `n` ranks, or a message between two.
///
/// Sizes in this project are always those of the whole buffer `S`, as noted for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Collective {
    /// Each rank has `S` and ends with the sum over all ranks.
    AllReduce,
    /// Each rank has `S / n` and ends with all `S`.
    AllGather,
    /// Each rank has `S` and ends with its `S / n` of the sum.
    ReduceScatter,
    /// Each rank has `S`, of which `S / n` goes to each rank.
    AllToAll,
    /// One rank has `S`, and all ranks end with it.
    Broadcast,
    /// Each rank sends `S` to a neighbour and receives the same number of bytes.
    SendReceive,
}

impl Collective {
    /// All collectives.
    pub const ALL: [Self; 6] = [
        Self::AllReduce,
        Self::AllGather,
        Self::ReduceScatter,
        Self::AllToAll,
        Self::Broadcast,
        Self::SendReceive,
    ];

    /// Name in tables of measurements.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllToAll => "alltoall",
            Self::Broadcast => "broadcast",
            Self::SendReceive => "send_receive",
        }
    }
}

impl Collective {
    /// Bytes that a rank of `num_ranks` sends, as a multiple of the whole buffer, by the algorithm that sends the
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
    /// Thakur, Rabenseifner and Gropp 2005, *Optimization of Collective Communication Operations in MPICH*,
    /// sections 4.1 to 4.4.
    pub fn volume_factor(self, num_ranks: u32) -> f64 {
        if num_ranks < 2 {
            return 0.0;
        }
        let n = f64::from(num_ranks);
        match self {
            Self::AllReduce => 2.0 * (n - 1.0) / n,
            Self::AllGather | Self::ReduceScatter | Self::AllToAll => (n - 1.0) / n,
            Self::Broadcast | Self::SendReceive => 1.0,
        }
    }

    /// Number of steps among equal ranks: those of a ring or, for all-reduce, of the double tree if these are fewer.
    pub fn steps(self, num_ranks: u32) -> f64 {
        let n = f64::from(num_ranks);
        match self {
            Self::AllReduce => 2.0 * (n - 1.0).min(n.log2().ceil()),
            Self::AllGather | Self::ReduceScatter => n - 1.0,
            Self::Broadcast => n.log2().ceil(),
            // All pairs exchange at once.
            Self::AllToAll | Self::SendReceive => 1.0,
        }
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::AllReduce => "all-reduce",
            Self::AllGather => "all-gather",
            Self::ReduceScatter => "reduce-scatter",
            Self::AllToAll => "all-to-all",
            Self::Broadcast => "broadcast",
            Self::SendReceive => "send-receive",
        })
    }
}
