//! Settings with what follows from them, as options are written of.

use std::ops::Deref;

use ir::framework::JobFacts;
use ir::graph::Graph;
use ir::layout::ZeroStage;

use super::imported::{Imported, StatedStages};
use super::stages::{StageParts, is_even, parts};

/// Settings that are written as options.
#[derive(Clone, Debug)]
pub(crate) struct Run<'a> {
    pub(super) settings: &'a Imported,
    /// Contents of each stage; empty where the layers are spread evenly.
    pub(super) stages: Vec<StageParts>,
    /// Whether the model has experts.
    pub(super) has_experts: bool,
}

impl<'a> Run<'a> {
    /// Settings of a model with this graph.
    pub(crate) fn new(settings: &'a Imported, graph: &Graph) -> Self {
        let stages = match &settings.stages {
            StatedStages::Blocks(counts) => parts(counts, graph),
            _ => Vec::new(),
        };
        Self { settings, stages, has_experts: JobFacts::of(graph).has_experts }
    }

    /// Whether all stages have as many layers, so that they need not be listed.
    pub(super) fn has_even_stages(&self) -> bool {
        is_even(&self.stages)
    }

    /// Whether gradients are reduced over several ranks: those that share a sequence count.
    pub(super) fn has_replicas(&self) -> bool {
        let others = self.layout.tensor_parallel * self.layout.pipeline_parallel;
        self.num_gpus.is_none_or(|ranks| ranks > others)
    }

    /// Micro-batches of a replica in a step, where they are known.
    pub(super) fn num_micro_batches(&self) -> Option<u64> {
        let of_batch = || {
            let each = u64::from(self.known_replicas()?) * u64::from(self.layout.micro_batch_size);
            self.training.global_batch_size?.checked_div(each)
        };
        self.training.num_micro_batches.map(u64::from).or_else(of_batch)
    }

    /// Groups of replicas that each have all states, and ranks of each over which these are sharded.
    pub(super) fn copies_and_shards(&self) -> Option<[u32; 2]> {
        let replicas = self.known_replicas()?;
        Some(match self.layout.zero_stage {
            ZeroStage::None => [replicas, 1],
            _ => [self.shard_groups, replicas / self.shard_groups.max(1)],
        })
    }
}

impl Deref for Run<'_> {
    type Target = Imported;

    fn deref(&self) -> &Imported {
        self.settings
    }
}
