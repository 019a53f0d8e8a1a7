//! Ring algorithms, carried out step by step.

use std::collections::BTreeSet;
use std::fmt;

use ir::collective::Collective;

use super::holdings::{Holdings, Piece};
use super::operation::Operation;

/// A collective by a ring: in each step every rank sends one chunk to the next rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ring {
    /// In `n - 1` steps.
    AllGather,
    /// In `n - 1` steps.
    ReduceScatter,
    /// A reduce-scatter, then an all-gather: `2 (n - 1)` steps.
    AllReduce,
}

impl Ring {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::AllGather, Self::ReduceScatter, Self::AllReduce];

    /// What it computes.
    pub const fn operation(self) -> Operation {
        Operation::Collective(match self {
            Self::AllGather => Collective::AllGather,
            Self::ReduceScatter => Collective::ReduceScatter,
            Self::AllReduce => Collective::AllReduce,
        })
    }

    /// Carries it out on `num_ranks` ranks.
    ///
    /// In step `t` of a reduce-scatter, rank `r` sends its sum of chunk `r - 1 - t`, which the next
    /// rank adds to its own; in step `t` of an all-gather it sends chunk `r - t`, which the next rank
    /// keeps. Chunks count round the ring.
    pub fn steps(self, num_ranks: u32) -> Vec<Step> {
        let mut holdings = self.operation().before(num_ranks);
        let mut steps = Vec::new();
        if self != Self::AllGather {
            steps.extend(round(&mut holdings, Round::ReduceScatter));
        }
        if self != Self::ReduceScatter {
            steps.extend(round(&mut holdings, Round::AllGather));
        }
        steps
    }
}

impl fmt::Display for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("ring {}", self.operation()))
    }
}

/// What a step is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Round {
    ReduceScatter,
    AllGather,
}

/// A chunk on its way to the next rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Send {
    /// Who sends it.
    pub from: u32,
    /// Who receives it.
    pub to: u32,
    /// Which slot's sum, at both.
    pub slot: u32,
}

/// What happens at the same time on all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The operation that it is part of: an all-reduce has steps of a reduce-scatter and of an
    /// all-gather.
    pub part: Collective,
    /// What is sent, by sender.
    pub sends: Vec<Send>,
    /// Who holds what after it.
    pub holdings: Holdings,
}

/// The `n - 1` steps round the ring, after which `holdings` is as the last leaves it.
fn round(holdings: &mut Holdings, round: Round) -> Vec<Step> {
    let n = holdings.num_ranks();
    let step = |t: u32| {
        let sends: Vec<Send> = (0..n)
            .map(|from| {
                let slot = match round {
                    Round::ReduceScatter => (from + n - 1 - t) % n,
                    Round::AllGather => (from + n - t) % n,
                };
                Send { from, to: (from + 1) % n, slot }
            })
            .collect();
        let sent: Vec<_> =
            sends.iter().map(|send| holdings.slot(send.from, send.slot).clone()).collect();
        for (send, pieces) in sends.iter().zip(sent) {
            let there = holdings.slot_mut(send.to, send.slot);
            match round {
                Round::ReduceScatter => add(there, pieces),
                Round::AllGather => *there = pieces,
            }
            // A partial sum has no use where it was, once it has been sent on.
            if round == Round::ReduceScatter {
                holdings.slot_mut(send.from, send.slot).clear();
            }
        }
        let part = match round {
            Round::ReduceScatter => Collective::ReduceScatter,
            Round::AllGather => Collective::AllGather,
        };
        Step { part, sends, holdings: holdings.clone() }
    };
    (0..n.saturating_sub(1)).map(step).collect()
}

/// Adds pieces to a sum, in which none may come twice.
fn add(sum: &mut BTreeSet<Piece>, pieces: BTreeSet<Piece>) {
    for piece in pieces {
        assert!(sum.insert(piece), "a ring adds each contribution once");
    }
}
