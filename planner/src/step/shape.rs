//! Costs of all classes of blocks for one shard shape.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use cost_models::Group;
use cost_models::block::{BlockPasses, ByPolicy, Groups};
use ir::graph::{Recompute, Sharding};
use ir::layout::{Layout, Mesh, MeshAxis};
use ir::schedule::Placement;
use ir::units::Nanos;

use super::chain::ChainIndex;
use crate::problem::Problem;
use crate::search::partition::{balanced, folded};

/// How operators are sharded, and how much each takes at a time: all that the cost of a block depends
/// on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShapeKey {
    /// Tensor-parallel ranks.
    pub tensor_parallel: u32,
    /// Whether they share the sequence too.
    pub sequence_parallel: bool,
    /// Context-parallel ranks.
    pub context_parallel: u32,
    /// Expert-parallel ranks.
    pub expert_parallel: u32,
    /// Whether tensor-parallel ranks are among those, and each expert is whole.
    pub whole_experts: bool,
    /// Sequences in a micro-batch.
    pub micro_batch_size: u32,
}

impl ShapeKey {
    /// The shard shape of a layout.
    pub fn of(layout: &Layout) -> Self {
        Self {
            tensor_parallel: layout.tensor_parallel,
            sequence_parallel: layout.sequence_parallel,
            context_parallel: layout.context_parallel,
            expert_parallel: layout.expert_parallel,
            whole_experts: layout.whole_experts,
            micro_batch_size: layout.micro_batch_size,
        }
    }

    /// How operators are sharded.
    pub fn sharding(&self) -> Sharding {
        Sharding {
            tensor_parallel: self.tensor_parallel.into(),
            sequence_parallel: self.sequence_parallel,
            context_parallel: self.context_parallel.into(),
            expert_parallel: self.expert_parallel.into(),
            whole_experts: self.whole_experts,
        }
    }

    /// How far apart the ranks of its groups lie, with so many replicas.
    pub fn mesh(&self, data_parallel: u32) -> Mesh {
        let Self { tensor_parallel, context_parallel, .. } = *self;
        let expert_tensor_parallel = if self.whole_experts { 1 } else { tensor_parallel };
        Mesh { tensor_parallel, expert_tensor_parallel, context_parallel, data_parallel }
    }

    /// Where the groups lie.
    pub fn groups(&self) -> Groups {
        // Groups within a stage do not depend on the number of replicas.
        let mesh = self.mesh(1);
        let group = |size, axis| Group { size, stride: mesh.stride(axis) };
        Groups {
            tensor: group(self.tensor_parallel, MeshAxis::Tensor),
            context: group(self.context_parallel, MeshAxis::Context),
            expert: group(self.expert_parallel, MeshAxis::Expert),
        }
    }
}

/// Where stages end, by policy, number of stages and where they lie; none if there are fewer blocks.
type Balanced = BTreeMap<(Recompute, usize, Placement), Option<Arc<[usize]>>>;

/// The costs of all block classes for one shard shape, and what follows for the chain.
#[derive(Clone, Debug)]
pub struct Shape {
    /// What it is.
    pub key: ShapeKey,
    /// Passes of each class.
    pub blocks: Vec<BlockPasses>,
    /// Time of forward and backward of the first `i` blocks, with what each policy computes again.
    pub prefix: ByPolicy<Vec<Nanos>>,
    /// The fastest assignments that were asked for: as many stages come of several numbers of ranks.
    balanced: Arc<Mutex<Balanced>>,
}

impl Shape {
    /// Costs every class of the problem's graph.
    pub fn new(problem: &Problem, chain: &ChainIndex, key: ShapeKey) -> Self {
        let groups = key.groups();
        let classes = problem.graph.classes().map(|(class, block)| {
            let setting = problem.setting(&key, class.0);
            let passes = BlockPasses::new(block, &setting, &groups, &problem.hardware);
            if chain.is_end(class.0) { passes.never_recomputed() } else { passes }
        });
        let blocks: Vec<BlockPasses> = classes.collect();
        let prefix = ByPolicy::new(|policy| {
            let time = |passes: &BlockPasses| {
                (passes.forward + passes.backward + passes.recompute[policy]).total()
            };
            let times: Vec<Nanos> = blocks.iter().map(time).collect();
            let mut sum = Nanos::ZERO;
            let ends = (0..chain.num_blocks()).map(|block| {
                sum += times[chain.class_at(block)];
                sum
            });
            std::iter::once(Nanos::ZERO).chain(ends).collect()
        });
        Self { key, blocks, prefix, balanced: Arc::default() }
    }

    /// Where stages end so that the slowest is as fast as can be; or, where the first shares its rank with
    /// the last and so on inwards, the slowest rank. None if there are fewer blocks.
    pub fn balanced(
        &self,
        policy: Recompute,
        num_stages: usize,
        placement: &Placement,
    ) -> Option<Arc<[usize]>> {
        let known = || self.balanced.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (policy, num_stages, placement.clone());
        if let Some(ends) = known().get(&key) {
            return ends.clone();
        }
        let prefix = &self.prefix[policy];
        let ends = match placement {
            Placement::V | Placement::Bidirectional => folded(prefix, num_stages),
            Placement::Loop | Placement::Table(_) => balanced(prefix, num_stages),
        };
        let ends: Option<Arc<[usize]>> = ends.map(Into::into);
        known().insert(key, ends.clone());
        ends
    }

    /// Time of all blocks for one micro-batch.
    pub fn total(&self, policy: Recompute) -> Nanos {
        self.prefix[policy].last().copied().unwrap_or_default()
    }
}
