//! Collective operations: who holds what before and after.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A collective operation within a group of `n` ranks, or a message between two.
///
/// Sizes in this project always are those of the whole buffer `S`, as noted for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Collective {
    /// Each rank has `S` and ends with the sum of all.
    AllReduce,
    /// Each rank has `S / n` and ends with all `S`.
    AllGather,
    /// Each rank has `S` and ends with its `S / n` of the sum.
    ReduceScatter,
    /// Each rank has `S`, `S / n` of it for each rank.
    AllToAll,
    /// One rank has `S`, and all end with it.
    Broadcast,
    /// Each rank sends `S` to a neighbour and receives as much.
    SendReceive,
}

impl Collective {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::AllReduce,
        Self::AllGather,
        Self::ReduceScatter,
        Self::AllToAll,
        Self::Broadcast,
        Self::SendReceive,
    ];

    /// Its name in tables of measurements.
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
