//! Ring algorithms, run step by step.

use std::fmt;

use ir::collective::Collective;

use super::contents::BufferContents;
use super::operation::Operation;

/// A collective by a ring: in each step every rank sends one chunk to the next rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ring {
    /// All-gather in `n - 1` steps.
    AllGather,
    /// Reduce-scatter in `n - 1` steps.
    ReduceScatter,
    /// All-reduce as a reduce-scatter, then an all-gather: `2 (n - 1)` steps.
    AllReduce,
}

impl Ring {
    /// All ring algorithms.
    pub const ALL: [Self; 3] = [Self::AllGather, Self::ReduceScatter, Self::AllReduce];

    /// The operation that it computes.
    pub const fn operation(self) -> Operation {
        Operation::Collective(match self {
            Self::AllGather => Collective::AllGather,
            Self::ReduceScatter => Collective::ReduceScatter,
            Self::AllReduce => Collective::AllReduce,
        })
    }

    /// Runs the algorithm on `num_ranks` ranks.
    ///
    /// In step `t` of a reduce-scatter, rank `r` sends its sum of chunk `r - 1 - t`, which the next rank adds to its
    /// own; in step `t` of an all-gather it sends chunk `r - t`, which the next rank stores. Chunk indices are modulo
    /// the number of ranks.
    pub fn steps(self, num_ranks: u32) -> Vec<RingStep> {
        let parts: &[Collective] = match self {
            Self::AllGather => &[Collective::AllGather],
            Self::ReduceScatter => &[Collective::ReduceScatter],
            Self::AllReduce => &[Collective::ReduceScatter, Collective::AllGather],
        };
        let mut contents = self.operation().before(num_ranks);
        let rounds = parts
            .iter()
            .flat_map(|part| (0..num_ranks.saturating_sub(1)).map(move |number| (*part, number)));
        rounds.map(|(part, number)| step(&mut contents, part, number)).collect()
    }
}

impl fmt::Display for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("ring {}", self.operation()))
    }
}

/// A chunk sent to the next rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Send {
    /// Sender.
    pub from: u32,
    /// Receiver.
    pub to: u32,
    /// Slot of the chunk, on both ranks.
    pub slot: u32,
}

/// Step of a ring: a chunk from each rank to the next, all at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingStep {
    /// The operation that the step belongs to: an all-reduce has steps of a reduce-scatter and of an all-gather.
    pub part: Collective,
    /// Chunks that are sent, ordered by sender.
    pub sends: Vec<Send>,
    /// Buffers after the step.
    pub contents: BufferContents,
}

/// Runs a step of a reduce-scatter or an all-gather on `contents`.
fn step(contents: &mut BufferContents, part: Collective, number: u32) -> RingStep {
    let n = contents.num_ranks();
    let is_sum = part == Collective::ReduceScatter;
    let send = |from: u32| {
        let slot = from + n - number - u32::from(is_sum);
        Send { from, to: (from + 1) % n, slot: slot % n }
    };
    let sends: Vec<Send> = (0..n).map(send).collect();
    let sent: Vec<_> =
        sends.iter().map(|send| contents.slot(send.from, send.slot).clone()).collect();
    for (send, pieces) in sends.iter().zip(sent) {
        let there = contents.slot_mut(send.to, send.slot);
        if is_sum {
            for piece in pieces {
                assert!(there.insert(piece), "a ring adds each contribution once");
            }
            // Once a partial sum has been sent, it is no longer used where it was.
            contents.slot_mut(send.from, send.slot).clear();
        } else {
            *there = pieces;
        }
    }
    RingStep { part, sends, contents: contents.clone() }
}
