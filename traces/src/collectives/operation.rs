//! Collective operations: the buffers of all ranks before and after.

use std::collections::BTreeSet;
use std::fmt;

use ir::collective::Collective::{
    self, AllGather, AllReduce, AllToAll, Broadcast, ReduceScatter, SendReceive,
};

use super::contents::{BufferContents, InputChunk};

/// An operation that can be drawn: the [`Collective`]s, and those with one root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// A collective of the project.
    Collective(Collective),
    /// Rank 0 has a chunk for each rank, and each receives its own.
    Scatter,
    /// Each rank has a chunk, and rank 0 receives all.
    Gather,
    /// Each rank has a buffer, and rank 0 receives the sum.
    Reduce,
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 9] = [
        Self::Collective(Broadcast),
        Self::Scatter,
        Self::Gather,
        Self::Reduce,
        Self::Collective(AllGather),
        Self::Collective(ReduceScatter),
        Self::Collective(AllReduce),
        Self::Collective(AllToAll),
        Self::Collective(SendReceive),
    ];

    /// The operation with this name.
    pub fn named(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.to_string() == text)
    }

    /// Returns whether buffers of several ranks are combined.
    pub const fn is_reduction(self) -> bool {
        matches!(self, Self::Reduce | Self::Collective(AllReduce | ReduceScatter))
    }

    /// Buffers of `num_ranks` ranks before the operation.
    pub fn before(self, num_ranks: u32) -> BufferContents {
        BufferContents::new(num_ranks, self.num_slots(num_ranks), |rank, slot| {
            let (is_there, chunk) = match self {
                Self::Collective(AllReduce | ReduceScatter | AllToAll) | Self::Reduce => {
                    (true, slot)
                }
                Self::Collective(AllGather) | Self::Gather => (slot == rank, 0),
                Self::Collective(Broadcast) => (rank == 0, 0),
                Self::Scatter => (rank == 0, slot),
                Self::Collective(SendReceive) => (true, 0),
            };
            is_there.then_some(InputChunk { rank, chunk }).into_iter().collect()
        })
    }

    /// Buffers of `num_ranks` ranks after the operation, by its definition.
    pub fn after(self, num_ranks: u32) -> BufferContents {
        BufferContents::new(num_ranks, self.num_slots(num_ranks), |rank, slot| {
            let one = |rank, chunk| BTreeSet::from([InputChunk { rank, chunk }]);
            let sum = || (0..num_ranks).map(|rank| InputChunk { rank, chunk: slot }).collect();
            match self {
                Self::Collective(AllReduce) => sum(),
                Self::Collective(ReduceScatter) if slot == rank => sum(),
                Self::Reduce if rank == 0 => sum(),
                Self::Collective(AllGather) => one(slot, 0),
                Self::Gather if rank == 0 => one(slot, 0),
                Self::Collective(AllToAll) => one(slot, rank),
                Self::Collective(Broadcast) => one(0, 0),
                Self::Scatter if slot == rank => one(0, slot),
                Self::Collective(SendReceive) => one((rank + num_ranks - 1) % num_ranks, 0),
                Self::Collective(ReduceScatter) | Self::Reduce | Self::Gather | Self::Scatter => {
                    BTreeSet::new()
                }
            }
        })
    }

    /// Number of chunks in a buffer.
    const fn num_slots(self, num_ranks: u32) -> u32 {
        if matches!(self, Self::Collective(Broadcast | SendReceive)) { 1 } else { num_ranks }
    }

    /// Returns whether chunks are distinguished by the rank from which they come, rather than by their position in the
    /// buffer.
    pub(super) const fn is_by_origin(self) -> bool {
        matches!(self, Self::Gather | Self::Collective(AllGather | AllToAll | SendReceive))
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Collective(collective) => collective.fmt(f),
            Self::Scatter => f.pad("scatter"),
            Self::Gather => f.pad("gather"),
            Self::Reduce => f.pad("reduce"),
        }
    }
}
