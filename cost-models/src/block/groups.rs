//! Groups of ranks of a sharded block on the mesh.

use ir::graph::Axis;
use ir::layout::{Mesh, MeshAxis};

use crate::StridedGroup;

/// Groups of ranks of a sharded block, each with its stride on the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// Group of the tensor-parallel ranks.
    pub tensor: StridedGroup,
    /// Group of the ranks that share each expert.
    pub expert_tensor: StridedGroup,
    /// Group of the context-parallel ranks.
    pub context: StridedGroup,
    /// Group of the expert-parallel ranks.
    pub expert: StridedGroup,
}

impl Groups {
    /// The groups of a mesh. Groups within a stage do not depend on the number of replicas.
    pub fn of(mesh: &Mesh) -> Self {
        let group = |size, axis| StridedGroup { size, stride: mesh.stride(axis) };
        Self {
            tensor: group(mesh.sharding.tensor_parallel, MeshAxis::Tensor),
            expert_tensor: group(mesh.sharding.expert_tensor_parallel, MeshAxis::ExpertTensor),
            context: group(mesh.sharding.context_parallel, MeshAxis::Context),
            expert: group(mesh.sharding.expert_parallel, MeshAxis::Expert),
        }
    }

    /// The group along an axis.
    pub fn along(&self, axis: Axis) -> StridedGroup {
        match axis {
            Axis::Tensor => self.tensor,
            Axis::ExpertTensor => self.expert_tensor,
            Axis::Context => self.context,
            Axis::Expert => self.expert,
        }
    }
}
