//! Messages between ranks for a call of NCCL, and its results.
//!
//! Each rank sends its part to all ranks that need it, and computes its result itself, in the order of the ranks. So
//! all ranks get the same bits, whichever rank was first.
//!
//! # Source
//!
//! NVIDIA, *NCCL* 2.27, "Collective Operations" and "Point To Point Communication Functions".

mod element;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;

pub use element::{NcclDataType, ReduceOp};

/// A call of NCCL by a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NcclCall {
    /// The function.
    pub function: NcclFunction,
    /// Bytes of a part, which is each rank's input or output, whichever is smaller.
    pub part_bytes: usize,
    /// The rank.
    pub rank: u32,
    /// Number of ranks.
    pub num_ranks: u32,
}

/// The function of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NcclFunction {
    /// All ranks get the reduction of all inputs.
    AllReduce(NcclDataType, ReduceOp),
    /// One rank gets the reduction of all inputs.
    Reduce(NcclDataType, ReduceOp, u32),
    /// Each rank gets its part of the reduction of all inputs.
    ReduceScatter(NcclDataType, ReduceOp),
    /// All ranks get all inputs, one after the other.
    AllGather,
    /// All ranks get the input of one rank.
    Broadcast(u32),
    /// One rank gets the input of this one.
    Send(u32),
    /// This rank gets the input of another one.
    Receive(u32),
}

impl NcclCall {
    /// The receivers of messages, and the bytes of this rank's input for each.
    pub fn outgoing(&self) -> Vec<(u32, Range<usize>)> {
        let all = 0..self.part_bytes;
        let others = (0..self.num_ranks).filter(|rank| *rank != self.rank);
        match self.function {
            NcclFunction::AllReduce(..) | NcclFunction::AllGather => {
                others.map(|to| (to, all.clone())).collect()
            }
            NcclFunction::Reduce(_, _, root) if root != self.rank => vec![(root, all)],
            NcclFunction::Broadcast(root) if root == self.rank => {
                others.map(|to| (to, all.clone())).collect()
            }
            NcclFunction::ReduceScatter(..) => others.map(|to| (to, self.part(to))).collect(),
            NcclFunction::Send(to) => vec![(to, all)],
            NcclFunction::Reduce(..) | NcclFunction::Broadcast(_) | NcclFunction::Receive(_) => {
                Vec::new()
            }
        }
    }

    /// The senders of messages to this rank.
    pub fn incoming(&self) -> Vec<u32> {
        let others = (0..self.num_ranks).filter(|rank| *rank != self.rank);
        match self.function {
            NcclFunction::AllReduce(..)
            | NcclFunction::AllGather
            | NcclFunction::ReduceScatter(..) => others.collect(),
            NcclFunction::Reduce(_, _, root) if root == self.rank => others.collect(),
            NcclFunction::Broadcast(root) if root != self.rank => vec![root],
            NcclFunction::Receive(from) => vec![from],
            NcclFunction::Reduce(..) | NcclFunction::Broadcast(_) | NcclFunction::Send(_) => {
                Vec::new()
            }
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
        match self.function {
            NcclFunction::AllReduce(element, reduction) => {
                Some(reduction.reduce(element, &parts(all, own)))
            }
            NcclFunction::Reduce(element, reduction, root) => {
                (root == self.rank).then(|| reduction.reduce(element, &parts(all, own)))
            }
            NcclFunction::ReduceScatter(element, reduction) => {
                Some(reduction.reduce(element, &parts(self.part(self.rank), own)))
            }
            NcclFunction::AllGather => Some(parts(all, own).concat()),
            NcclFunction::Broadcast(root) if root == self.rank => Some(own[all].to_vec()),
            NcclFunction::Broadcast(from) | NcclFunction::Receive(from) => {
                received.get(&from).cloned()
            }
            NcclFunction::Send(_) => None,
        }
    }

    /// Returns whether the call pairs with a call of one other rank, not with calls of all ranks.
    pub fn is_to_one(&self) -> bool {
        matches!(self.function, NcclFunction::Send(_) | NcclFunction::Receive(_))
    }

    /// The bytes of a rank's part.
    fn part(&self, rank: u32) -> Range<usize> {
        let start = rank as usize * self.part_bytes;
        start..start + self.part_bytes
    }
}
