//! Collective operations as pictures: who holds what before, between and after.
//!
//! A picture is as wide as it needs to be, at most as its paper.
//!
//! What is drawn is computed: every state is a set of contributions, and the ring algorithms are
//! carried out on them.
//!
//! # Source
//!
//! Rings: Patarasuk and Yuan 2009, *Bandwidth optimal all-reduce algorithms for clusters of
//! workstations*, sections 3 and 4; Thakur, Rabenseifner and Gropp 2005, *Optimization of Collective
//! Communication Operations in MPICH*, section 4.

mod chart;
mod holdings;
mod ring;

use std::fmt;

use ir::collective::Collective;

use crate::canvas::{self, DrawError, Font, Paper};
use chart::Chart;
pub use holdings::{Holdings, Piece};
pub use ring::{Ring, Send, Step};

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
    const fn is_by_origin(self) -> bool {
        matches!(
            self,
            Self::Gather
                | Self::Collective(
                    Collective::AllGather | Collective::AllToAll | Collective::SendReceive
                )
        )
    }
}

/// The only chunk of a rank that has one.
fn own(rank: u32) -> Piece {
    Piece { rank, chunk: 0 }
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

/// The operation on `num_ranks` ranks, before and after, as an SVG document.
///
/// # Errors
///
/// If the picture is too small for so many ranks.
pub fn svg(operation: Operation, num_ranks: u32, paper: &Paper) -> Result<String, DrawError> {
    let font = Font::embedded();
    canvas::svg(&Chart::of_operation(operation, num_ranks, paper, &font)?, &font)
}

/// The operation on `num_ranks` ranks, before and after, as a PNG file.
///
/// # Errors
///
/// As [`svg()`], and if the picture has too many pixels.
pub fn png(operation: Operation, num_ranks: u32, paper: &Paper) -> Result<Vec<u8>, DrawError> {
    let font = Font::embedded();
    let chart = Chart::of_operation(operation, num_ranks, paper, &font)?;
    canvas::png(&chart, &font, paper.pixel_ratio)
}

/// Every step of a ring algorithm on `num_ranks` ranks, as an SVG document. Arrows are what is sent
/// next.
///
/// # Errors
///
/// If the picture is too small for so many ranks.
pub fn ring_svg(ring: Ring, num_ranks: u32, paper: &Paper) -> Result<String, DrawError> {
    let font = Font::embedded();
    canvas::svg(&Chart::of_ring(ring, num_ranks, paper, &font)?, &font)
}

/// Every step of a ring algorithm on `num_ranks` ranks, as a PNG file.
///
/// # Errors
///
/// As [`ring_svg`], and if the picture has too many pixels.
pub fn ring_png(ring: Ring, num_ranks: u32, paper: &Paper) -> Result<Vec<u8>, DrawError> {
    let font = Font::embedded();
    canvas::png(&Chart::of_ring(ring, num_ranks, paper, &font)?, &font, paper.pixel_ratio)
}
