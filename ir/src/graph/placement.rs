//! Placements of tensors along the tensor-parallel axis.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use super::op_id::OpId;
use super::tensor::DimName;
use crate::collective::Collective;

/// Placement of a tensor along the tensor-parallel axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Placement {
    /// Every rank has the whole tensor.
    Whole,
    /// Every rank has a shard along one dimension.
    Shard(DimName),
    /// Every rank has a partial sum of the tensor.
    Partial,
}

impl Placement {
    /// The collective that changes this placement to `to`; slicing needs no communication.
    pub fn moved_to(self, to: Self) -> Option<Collective> {
        match (self, to) {
            (Self::Partial, Self::Whole) => Some(Collective::AllReduce),
            (Self::Partial, Self::Shard(_)) => Some(Collective::ReduceScatter),
            (Self::Shard(_), Self::Whole) => Some(Collective::AllGather),
            (Self::Shard(a), Self::Shard(b)) if a != b => Some(Collective::AllToAll),
            _ => None,
        }
    }

    /// The collective that changes the gradient of a tensor back to this placement from `to`, the placement in which
    /// the tensor is used: the conjugate of [`Self::moved_to`]. With a partial gradient, each rank has a partial sum
    /// of it.
    ///
    /// The gradient of a tensor has the tensor's placement; the gradient of a partial sum is whole.
    pub fn gradient_moved_back(self, to: Self, is_partial: bool) -> Option<Collective> {
        match (self, to) {
            (Self::Whole, Self::Whole) if is_partial => Some(Collective::AllReduce),
            (Self::Shard(_), Self::Whole) if is_partial => Some(Collective::ReduceScatter),
            (Self::Partial | Self::Whole, Self::Shard(_)) => Some(Collective::AllGather),
            (Self::Shard(a), Self::Shard(b)) if a != b => Some(Collective::AllToAll),
            _ => None,
        }
    }
}

/// A change of the placement of an operator's output for its consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Move {
    /// The first operator that needs the new placement.
    pub(super) consumer: OpId,
    /// The collective in forward.
    pub(super) forward: Option<Collective>,
    /// True if the consumers' gradients are partial sums that must be added up.
    pub(super) partial_gradient: bool,
}

/// The placement of every tensor of a block, and the moves between them.
#[derive(Clone, Debug)]
pub struct Placements {
    /// Placement of each operator's output.
    pub outputs: Vec<Placement>,
    /// Placement that each operator needs for each of its inputs.
    pub wanted: Vec<Vec<Placement>>,
    /// For each operator and input, true if the gradient of the input is a partial sum on each rank.
    pub partial_gradients: Vec<Vec<bool>>,
    /// Moves by the operator that produces the tensor and the placement that is needed.
    pub(super) moves: BTreeMap<(OpId, Placement), Move>,
    /// Operators that reduce over a sharded dimension: each row's statistics are all-reduced.
    pub sharded_reductions: Vec<OpId>,
}

/// Placements of a block's tensors in eight cases, each made when it is first asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownPlacements([OnceLock<Placements>; 8]);

impl KnownPlacements {
    /// The placements in the case that three answers identify.
    pub(super) fn get(&self, case: [bool; 3], make: impl FnOnce() -> Placements) -> &Placements {
        let index = case.into_iter().fold(0, |index, answer| 2 * index + usize::from(answer));
        self.0[index].get_or_init(make)
    }
}
