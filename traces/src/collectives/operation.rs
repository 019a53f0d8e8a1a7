//! Operations: who holds what before and after.

use std::fmt;

use ir::collective::Collective;

use super::holdings::{Holdings, Piece};

/// An operation that can be drawn: the [`Collective`]s, and those with one root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// A collective of the project.
    Collective(Collective),
    /// Rank 0 has a chunk for each rank, and each ends with its own.
    Scatter,
    /// Each rank has a chunk, and rank 0 ends with all.
    Gather,
    /// Each rank has a buffer, and rank 0 ends with the sum.
    Reduce,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Collective(Collective::Broadcast),
        Self::Scatter,
        Self::Gather,
        Self::Reduce,
        Self::Collective(Collective::AllGather),
        Self::Collective(Collective::ReduceScatter),
        Self::Collective(Collective::AllReduce),
        Self::Collective(Collective::AllToAll),
        Self::Collective(Collective::SendReceive),
    ];

    /// What each of `num_ranks` ranks holds before it.
    pub fn before(self, num_ranks: u32) -> Holdings {
        let n = num_ranks;
        let at_root = |rank: u32, piece: Piece| Some(piece).filter(|_| rank == 0);
        match self {
            Self::Collective(
                Collective::AllReduce | Collective::ReduceScatter | Collective::AllToAll,
            )
            | Self::Reduce => Holdings::new(n, n, |rank, chunk| Some(Piece { rank, chunk })),
            Self::Collective(Collective::AllGather) | Self::Gather => {
                Holdings::new(n, n, |rank, slot| Some(own(rank)).filter(|_| slot == rank))
            }
            Self::Collective(Collective::Broadcast) => {
                Holdings::new(n, 1, |rank, _| at_root(rank, own(rank)))
            }
            Self::Scatter => {
                Holdings::new(n, n, |rank, chunk| at_root(rank, Piece { rank, chunk }))
            }
            Self::Collective(Collective::SendReceive) => {
                Holdings::new(n, 1, |rank, _| Some(own(rank)))
            }
        }
    }

    /// What each of `num_ranks` ranks holds after it, by the definition of the operation.
    pub fn after(self, num_ranks: u32) -> Holdings {
        let n = num_ranks;
        let sum = |chunk: u32| (0..n).map(move |rank| Piece { rank, chunk });
        match self {
            Self::Collective(Collective::AllReduce) => {
                Holdings::of_sums(n, n, |_, slot| sum(slot).collect())
            }
            Self::Collective(Collective::ReduceScatter) => {
                Holdings::of_sums(n, n, |rank, slot| sum(slot).filter(|_| slot == rank).collect())
            }
            Self::Reduce => {
                Holdings::of_sums(n, n, |rank, slot| sum(slot).filter(|_| rank == 0).collect())
            }
            Self::Collective(Collective::AllGather) => {
                Holdings::new(n, n, |_, slot| Some(own(slot)))
            }
            Self::Gather => Holdings::new(n, n, |rank, slot| Some(own(slot)).filter(|_| rank == 0)),
            Self::Collective(Collective::AllToAll) => {
                Holdings::new(n, n, |rank, slot| Some(Piece { rank: slot, chunk: rank }))
            }
            Self::Collective(Collective::Broadcast) => Holdings::new(n, 1, |_, _| Some(own(0))),
            Self::Scatter => Holdings::new(n, n, |rank, slot| {
                Some(Piece { rank: 0, chunk: slot }).filter(|_| slot == rank)
            }),
            Self::Collective(Collective::SendReceive) => {
                Holdings::new(n, 1, |rank, _| Some(own((rank + n - 1) % n)))
            }
        }
    }

    /// Whether its chunks are told apart by the rank that they come from, rather than by their place
    /// in the buffer.
    pub(super) const fn is_by_origin(self) -> bool {
        matches!(
            self,
            Self::Gather
                | Self::Collective(
                    Collective::AllGather | Collective::AllToAll | Collective::SendReceive
                )
        )
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

/// The only chunk of a rank that has one.
fn own(rank: u32) -> Piece {
    Piece { rank, chunk: 0 }
}
