//! Where the groups of a sharded block lie.

use ir::graph::Axis;

use crate::Group;

/// Where the groups of a sharded block lie among the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// Tensor-parallel ranks.
    pub tensor: Group,
    /// Context-parallel ranks.
    pub context: Group,
    /// Expert-parallel ranks.
    pub expert: Group,
}

impl Groups {
    /// The group along an axis.
    pub fn along(&self, axis: Axis) -> Group {
        match axis {
            Axis::Tensor => self.tensor,
            Axis::Context => self.context,
            Axis::Expert => self.expert,
        }
    }
}
