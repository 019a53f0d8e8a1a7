//! Operators split individually over a mesh of ranks: the ways in which each can be split, the placements of its
//! inputs and output, and its part on a rank, which is the same operator with smaller tensors.
//!
//! Along each axis of the mesh, an operator is split over one of its dimensions, or is computed whole by all ranks of
//! the axis. This decides the placements of its inputs and output, and which gradients are partial sums.

use super::block::{Block, OpId};
use super::placement::Placement;
use super::tensor::{DimName, ElementType};
use crate::collective::Collective;

named_enum! {
    /// A dimension over which ranks share an operator.
    pub enum SplitDim {
        /// Samples.
        Batch = "batch",
        /// Features that are summed over, or rows of a table: outputs are partial sums.
        InFeatures = "in_features",
        /// Features of the output.
        OutFeatures = "out_features",
        /// Channels that are summed over: outputs are partial sums.
        InChannels = "in_channels",
        /// Channels of the output.
        OutChannels = "out_channels",
        /// Rows of an image; ranks exchange the rows at their borders.
        Height = "height",
        /// Columns of an image; ranks exchange the columns at their borders.
        Width = "width",
        /// Positions of the sequence.
        Sequence = "sequence",
        /// Heads of attention.
        Heads = "heads",
    }
}

impl SplitDim {
    /// Dimensions of a tensor that it stands for.
    pub(super) fn names(self) -> &'static [DimName] {
        match self {
            Self::Batch => &[DimName::Batch],
            Self::OutFeatures => &[
                DimName::Hidden,
                DimName::Intermediate,
                DimName::Features,
                DimName::Vocabulary,
                DimName::Latent,
            ],
            Self::OutChannels => &[DimName::Channels],
            Self::Height => &[DimName::Height],
            Self::Width => &[DimName::Width],
            Self::Sequence => &[DimName::Sequence],
            Self::Heads => &[DimName::Heads, DimName::KvHeads, DimName::Groups],
            Self::InFeatures | Self::InChannels => &[],
        }
    }

    /// True if outputs are partial sums.
    pub(super) const fn is_summed(self) -> bool {
        matches!(self, Self::InFeatures | Self::InChannels)
    }
}

/// Placement of a tensor, and of its gradient, over the ranks along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AxisPlacement {
    /// All of both.
    Whole,
    /// The whole tensor, and a partial sum of the gradient, as each rank computes something different from the tensor.
    Read,
    /// A shard of both along a dimension.
    Shard(DimName),
    /// A partial sum of the tensor, and the whole gradient.
    Partial,
}

impl AxisPlacement {
    const fn value(self) -> Placement {
        match self {
            Self::Whole | Self::Read => Placement::Whole,
            Self::Shard(name) => Placement::Shard(name),
            Self::Partial => Placement::Partial,
        }
    }

    const fn gradient(self) -> Placement {
        match self {
            Self::Whole | Self::Partial => Placement::Whole,
            Self::Read => Placement::Partial,
            Self::Shard(name) => Placement::Shard(name),
        }
    }

    /// The collectives that move a tensor from this placement to `to`, and its gradient back.
    pub fn moved_to(self, to: Self) -> [Option<Collective>; 2] {
        [self.value().moved_to(to.value()), to.gradient().moved_to(self.gradient())]
    }
}

/// Number of axes of a mesh.
pub const MESH_AXES: usize = 2;

/// One value for each axis of a mesh, the axis of neighbouring ranks first.
pub type ByMeshAxis<T> = [T; MESH_AXES];

/// Parameters of an operator on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedParameter {
    /// Elements on a rank.
    pub elements: u64,
    /// True along axes over which its gradient is a partial sum.
    pub is_summed: ByMeshAxis<bool>,
    /// True if the parameter belongs to another operator, which also has its optimizer states.
    pub is_tied: bool,
}

/// An exchange that a split operator needs in addition to those that move its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitExchange {
    /// Axis along which it runs.
    pub axis: usize,
    /// The collective.
    pub collective: Collective,
    /// Elements of the whole buffer.
    pub elements: u64,
    /// Type of an element.
    pub element: ElementType,
    /// Number of times in forward, and in backward.
    pub times: [u32; 2],
}

/// One way of splitting an operator over a mesh.
#[derive(Clone, Debug)]
pub struct SplitOp {
    /// The dimension along each axis; `None` where all ranks of the axis compute the same.
    pub splits: ByMeshAxis<Option<SplitDim>>,
    /// Placement in which it reads each input.
    pub wanted: Vec<ByMeshAxis<AxisPlacement>>,
    /// Placement of its output.
    pub output: ByMeshAxis<AxisPlacement>,
    /// Parameters of the operator.
    pub parameters: Vec<SharedParameter>,
    /// Exchanges of its own.
    pub exchanges: Vec<SplitExchange>,
    /// The computation of one rank as a block in which all sizes are fixed: the inputs, then the operator.
    pub block: Block,
}

impl SplitOp {
    /// The operator in [`Self::block`].
    pub fn op(&self) -> OpId {
        OpId(self.wanted.len())
    }

    /// Number of parts that the dimension is split into: the product of the axes along which it is split.
    pub fn degree(&self, dim: SplitDim, mesh: ByMeshAxis<u32>) -> u32 {
        let along = self.splits.iter().zip(mesh).filter(|(split, _)| **split == Some(dim));
        along.map(|(_, ranks)| ranks).product()
    }
}
