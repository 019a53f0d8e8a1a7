//! Messages between ranks for a call of NCCL, and its results.
//!
//! Each rank sends its part to all that need it, and each computes its result itself, in the order of the ranks: so all
//! get the same bits, whichever of them was first.
//!
//! # Source
//!
//! NVIDIA, *NCCL* 2.27, "Collective Operations" and "Point To Point Communication Functions".

mod element;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;

pub use element::{Element, Reduction};

/// A call of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The function.
    pub kind: Kind,
    /// Bytes of a part: of each rank's input or output, whichever is less.
    pub part_bytes: usize,
    /// The rank.
    pub rank: u32,
    /// Number of ranks.
    pub num_ranks: u32,
}

/// The function of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All ranks get the reduction of all inputs.
    AllReduce(Element, Reduction),
    /// One rank gets the reduction of all inputs.
    Reduce(Element, Reduction, u32),
    /// Each rank gets its part of the reduction of all inputs.
    ReduceScatter(Element, Reduction),
    /// All ranks get all inputs, one after the other.
    AllGather,
    /// All ranks get the input of one rank.
    Broadcast(u32),
    /// One rank gets the input of this one.
    Send(u32),
    /// This rank gets the input of another one.
    Receive(u32),
}

impl Exchange {
    /// The receivers of messages, and the bytes of this rank's input for each.
    pub fn outgoing(&self) -> Vec<(u32, Range<usize>)> {
        let all = 0..self.part_bytes;
        let others = (0..self.num_ranks).filter(|rank| *rank != self.rank);
        match self.kind {
            Kind::AllReduce(..) | Kind::AllGather => others.map(|to| (to, all.clone())).collect(),
            Kind::Reduce(_, _, root) if root != self.rank => vec![(root, all)],
            Kind::Broadcast(root) if root == self.rank => {
                others.map(|to| (to, all.clone())).collect()
            }
            Kind::ReduceScatter(..) => others.map(|to| (to, self.part(to))).collect(),
            Kind::Send(to) => vec![(to, all)],
            Kind::Reduce(..) | Kind::Broadcast(_) | Kind::Receive(_) => Vec::new(),
        }
    }

    /// The senders of messages to this rank.
    pub fn incoming(&self) -> Vec<u32> {
        let others = (0..self.num_ranks).filter(|rank| *rank != self.rank);
        match self.kind {
            Kind::AllReduce(..) | Kind::AllGather | Kind::ReduceScatter(..) => others.collect(),
            Kind::Reduce(_, _, root) if root == self.rank => others.collect(),
            Kind::Broadcast(root) if root != self.rank => vec![root],
            Kind::Receive(from) => vec![from],
            Kind::Reduce(..) | Kind::Broadcast(_) | Kind::Send(_) => Vec::new(),
        }
    }

    /// The rank's output, from its own input and received messages; none if it has no output.
    pub fn result(&self, own: &[u8], received: &BTreeMap<u32, Vec<u8>>) -> Option<Vec<u8>> {
        let parts = |own: Range<usize>, given: &[u8]| -> Vec<Vec<u8>> {
            let part = |rank: u32| match received.get(&rank) {
                Some(part) => part.clone(),
                None => given[own.clone()].to_vec(),
            };
            (0..self.num_ranks).map(part).collect()
        };
        let all = 0..self.part_bytes;
        match self.kind {
            Kind::AllReduce(element, reduction) => {
                Some(reduction.reduce(element, &parts(all, own)))
            }
            Kind::Reduce(element, reduction, root) => {
                (root == self.rank).then(|| reduction.reduce(element, &parts(all, own)))
            }
            Kind::ReduceScatter(element, reduction) => {
                Some(reduction.reduce(element, &parts(self.part(self.rank), own)))
            }
            Kind::AllGather => Some(parts(all, own).concat()),
            Kind::Broadcast(root) if root == self.rank => Some(own[all].to_vec()),
            Kind::Broadcast(from) | Kind::Receive(from) => received.get(&from).cloned(),
            Kind::Send(_) => None,
        }
    }

    /// Returns whether it pairs with the call of one other rank, not with those of all.
    pub fn is_to_one(&self) -> bool {
        matches!(self.kind, Kind::Send(_) | Kind::Receive(_))
    }

    /// The bytes of a rank's part.
    fn part(&self, rank: u32) -> Range<usize> {
        let start = rank as usize * self.part_bytes;
        start..start + self.part_bytes
    }
}
