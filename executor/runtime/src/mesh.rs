//! The position of a rank on the mesh of a layout, and its groups.

use executor_communicators::Group;
use ir::layout::{LayoutSpec, MeshAxis, ZeroStage};

/// Position of a rank along each axis of its layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeshPosition {
    /// Rank among all ranks.
    pub rank: u32,
    /// Index among tensor-parallel ranks.
    pub tensor: u32,
    /// Index among expert-tensor-parallel ranks.
    pub expert_tensor: u32,
    /// Index among context-parallel ranks.
    pub context: u32,
    /// Index of the replica.
    pub data: u32,
    /// Index among pipeline ranks.
    pub pipeline: u32,
}

/// The ranks that hold the same parameters, apart from sharding by ZeRO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaGroups {
    /// Ranks that shard one copy of the states; one rank where nothing is sharded.
    pub shard: Group,
    /// Ranks that hold the same shard.
    pub replicate: Group,
}

impl ReplicaGroups {
    /// Number of copies of a gradient that are summed.
    pub fn num_copies(&self) -> usize {
        self.shard.len() * self.replicate.len()
    }
}

impl MeshPosition {
    /// The position of `rank` in `layout`, in the order of ranks of [`ir::layout::Mesh`].
    pub fn new(layout: &LayoutSpec, rank: u32) -> Self {
        let mesh = layout.mesh();
        let along = |axis, degree| rank / mesh.stride(axis) % degree;
        let index = along(MeshAxis::ContextData, mesh.replicas());
        Self {
            rank,
            tensor: along(MeshAxis::Tensor, layout.tensor_parallel),
            expert_tensor: along(MeshAxis::ExpertTensor, layout.expert_tensor_parallel),
            context: index % layout.context_parallel,
            data: index / layout.context_parallel,
            pipeline: along(MeshAxis::Pipeline, layout.pipeline_parallel),
        }
    }

    /// The rank with the same position on another pipeline rank.
    pub fn on_pipeline_rank(&self, layout: &LayoutSpec, pipeline: u32) -> u32 {
        let stride = layout.mesh().stride(MeshAxis::Pipeline);
        self.rank - self.pipeline * stride + pipeline * stride
    }

    /// The ranks that hold one replica of the model together.
    pub fn replica_group(&self, layout: &LayoutSpec) -> Group {
        let first = self.rank - self.tensor;
        let ranks = (0..layout.pipeline_parallel).flat_map(|pipeline| {
            let first = Self { rank: first, ..*self }.on_pipeline_rank(layout, pipeline);
            first..first + layout.tensor_parallel
        });
        Group::new(ranks.collect::<Vec<_>>())
    }

    /// The tensor-parallel ranks of this rank.
    pub fn tensor_group(&self, layout: &LayoutSpec) -> Group {
        let first = self.rank - self.tensor;
        Group::new((0..layout.tensor_parallel).map(|i| first + i).collect::<Vec<_>>())
    }

    /// The expert-tensor-parallel ranks, which hold the other parts of this rank's experts.
    pub fn expert_tensor_group(&self, layout: &LayoutSpec) -> Group {
        let first = self.rank - self.expert_tensor;
        Group::new((first..first + layout.expert_tensor_parallel).collect::<Vec<_>>())
    }

    /// The context-parallel ranks of this rank.
    pub fn context_group(&self, layout: &LayoutSpec) -> Group {
        let stride = layout.mesh().stride(MeshAxis::Context);
        let first = self.rank - self.context * stride;
        Group::new((0..layout.context_parallel).map(|i| first + i * stride).collect::<Vec<_>>())
    }

    /// The expert-parallel ranks of this rank, each with an equal number of experts.
    pub fn expert_group(&self, layout: &LayoutSpec) -> Group {
        let stride = layout.mesh().stride(MeshAxis::Expert);
        let first = self.rank - self.expert(layout) * stride;
        Group::new((0..layout.expert_parallel).map(|i| first + i * stride).collect::<Vec<_>>())
    }

    /// This rank's index in [`Self::expert_group`].
    pub fn expert(&self, layout: &LayoutSpec) -> u32 {
        self.rank / layout.mesh().stride(MeshAxis::Expert) % layout.expert_parallel
    }

    /// The ranks that hold the dense parameters of this rank's stage; `holders` are the pipeline ranks that hold the
    /// stage.
    pub fn replicas(&self, layout: &LayoutSpec, holders: &[u32]) -> ReplicaGroups {
        self.replicas_apart(layout, holders, layout.mesh().stride(MeshAxis::ContextData))
    }

    /// The ranks that hold the same expert parameters.
    pub fn expert_replicas(&self, layout: &LayoutSpec, holders: &[u32]) -> ReplicaGroups {
        let stride = layout.mesh().expert_ranks();
        self.replicas_apart(layout, holders, stride)
    }

    /// Replicas among the ranks of a stage, each `stride` ranks from the next.
    fn replicas_apart(&self, layout: &LayoutSpec, holders: &[u32], stride: u32) -> ReplicaGroups {
        let num_ranks = layout.ranks_per_stage();
        let (first, place) = (self.rank % stride, self.rank % num_ranks / stride);
        let count = num_ranks / stride;
        let shards = match layout.zero_stage {
            ZeroStage::None => 1,
            _ => (layout.zero_shard * layout.tensor_parallel / stride).max(1),
        };
        let at = |other: u32, pipeline: u32| pipeline * num_ranks + other * stride + first;
        let shard = (0..count).filter(|other| other / shards == place / shards);
        let shard = shard.map(|other| at(other, self.pipeline));
        let alike = || (0..count).filter(|other| other % shards == place % shards);
        let replicate =
            holders.iter().flat_map(|pipeline| alike().map(|other| at(other, *pipeline)));
        ReplicaGroups {
            shard: Group::new(shard.collect::<Vec<_>>()),
            replicate: Group::new(replicate.collect::<Vec<_>>()),
        }
    }
}

/// The range of `size` items that rank `index` of `count` has, in equal parts; the last parts may be smaller.
pub fn part(size: usize, count: usize, index: usize) -> std::ops::Range<usize> {
    let each = size.div_ceil(count);
    (index * each).min(size)..((index + 1) * each).min(size)
}
