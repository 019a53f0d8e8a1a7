//! Times of checkpoints, from the bytes of a plan's states.

use ir::graph::{LocalParameters, ShardContext, Sharding, Sizes};
use ir::layout::ZeroStage;
use ir::units::{Bytes, BytesPerSecond};
use serde::Serialize;

use crate::problem::Problem;
use crate::search::{EvaluatedPlan, of_all_blocks, on_groups};
use crate::step::{Holdings, Step};

/// Where checkpoints go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointTo {
    /// Storage that all nodes share.
    #[default]
    Storage,
    /// Memory of the node's own host and of another node's.
    Memory,
}

/// Seconds that a checkpoint takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CheckpointTimes {
    /// Seconds for which training stops.
    pub stall: f64,
    /// Seconds from then until a restart can use the checkpoint, while training goes on.
    pub lag: f64,
    /// Seconds to read it back, in the same or in another layout.
    pub load: f64,
}

/// Bytes of a checkpoint: weights, master weights and moments of all trained parameters, each once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CheckpointBytes {
    /// Bytes of the whole checkpoint.
    pub all: Bytes,
    /// Bytes that the GPU with the largest part writes. Ranks with the same states write an even share each, as torch's
    /// distributed checkpoints and Megatron's fully parallel ones do.
    pub of_fullest_gpu: Bytes,
}

/// Bandwidths for checkpoints, in one direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CheckpointLinks {
    /// Storage, for all nodes together.
    pub storage: BytesPerSecond,
    /// Between a GPU and its host, with all GPUs of the node active.
    pub host: BytesPerSecond,
    /// Between nodes, of each GPU.
    pub network: BytesPerSecond,
}

impl CheckpointBytes {
    /// Bandwidth of a node to storage, in bytes per second, where none is given.
    ///
    /// # Source
    ///
    /// Grattafiori et al. 2024 (arXiv 2407.21783), section 3.3.1: 2 TB/s sustained, for 16,384 GPUs, 8 to a node.
    pub const USUAL_NODE_BANDWIDTH: f64 = 1e9;

    /// Bytes of a plan's checkpoint.
    pub fn new(problem: &Problem, plan: &EvaluatedPlan) -> Self {
        let bytes = problem.state_bytes();
        let mesh = plan.layout.mesh();
        // Sharded weights in 16 bits are gathered from the master weights where a framework keeps no others.
        let weight = match plan.layout.zero_stage {
            ZeroStage::Parameters => bytes.shard,
            _ => bytes.parameter,
        } as f64;
        let share = |parameters: u64, shapes, num_copies: u32| {
            let of_each = weight + bytes.of(parameters, shapes).optimizer;
            parameters as f64 * of_each / f64::from(num_copies.max(1))
        };
        let of = |held: &Holdings| {
            share(held.parameters.dense, held.parameters.dense_shapes, mesh.replicas())
                + share(
                    held.parameters.expert,
                    held.parameters.expert_shapes,
                    mesh.expert_replicas(),
                )
        };
        let of_fullest = |step: &Step<'_>| step.assignment.held.iter().map(of).fold(0.0, f64::max);
        let of_groups = on_groups(problem, plan.layout, &plan.stage_ends, of_fullest);
        let fullest = of_groups.into_iter().fold(0.0, f64::max);
        let trained = problem.parameters().trained;
        let whole = ShardContext::plain(Sizes::ONE, Sharding::NONE);
        let LocalParameters { dense_shapes, expert_shapes, .. } = of_all_blocks(problem, |_| whole);
        let mut shapes = dense_shapes;
        shapes.add_times(expert_shapes, 1);
        let all = trained as f64 * (weight + bytes.of(trained, shapes).optimizer);
        // The largest of unequal shares, as in `Bytes::shard`.
        Self { all: Bytes::from_f64(all), of_fullest_gpu: Bytes::from_f64(fullest.ceil()) }
    }

    /// Times of a checkpoint. Without `asynchronous` training stops until it is written. With it, training stops only
    /// until the states are copied to the host. They are written or sent from there while training goes on.
    pub fn times(
        self,
        to: CheckpointTo,
        asynchronous: bool,
        links: CheckpointLinks,
    ) -> CheckpointTimes {
        let copy = (self.of_fullest_gpu / links.host).get();
        let write = match to {
            CheckpointTo::Storage => (self.all / links.storage).get(),
            CheckpointTo::Memory => (self.of_fullest_gpu / links.network).get(),
        };
        let whole = copy.max(write);
        let stall = if asynchronous { copy } else { whole };
        CheckpointTimes { stall, lag: if asynchronous { write } else { 0.0 }, load: whole }
    }
}
