//! Settings and the quantities derived from them, from which options are written.

use std::ops::Deref;

use ir::framework::JobFacts;
use ir::graph::Graph;
use ir::layout::ZeroStage;

use super::imported::{Imported, StatedStages};
use super::stages::{StageParts, is_even, parts};

/// Settings with derived quantities, as the input of the option tables.
#[derive(Clone, Debug)]
pub(crate) struct Run<'a> {
    pub(super) settings: &'a Imported,
    /// Parts of the model on each stage; empty if no list of blocks is stated.
    pub(super) stages: Vec<StageParts>,
    /// True if the model has experts.
    pub(super) has_experts: bool,
}

impl<'a> Run<'a> {
    /// Settings for a model with this graph.
    pub(crate) fn new(settings: &'a Imported, graph: &Graph) -> Self {
        let stages = match &settings.stages {
            StatedStages::Blocks(counts) => parts(counts, graph),
            _ => Vec::new(),
        };
        Self { settings, stages, has_experts: JobFacts::of(graph).has_experts }
    }

    /// Returns whether all stages have equal numbers of layers, so that they need not be listed.
    pub(super) fn has_even_stages(&self) -> bool {
        is_even(&self.stages)
    }

    /// Returns whether gradients are reduced over several ranks (context-parallel ranks count), or the number of ranks
    /// is unknown.
    pub(super) fn has_replicas(&self) -> bool {
        let others = self.layout.tensor_parallel.saturating_mul(self.layout.pipeline_parallel);
        self.num_gpus.is_none_or(|ranks| ranks > others)
    }

    /// Micro-batches of a replica in a step, if known.
    pub(super) fn num_micro_batches(&self) -> Option<u64> {
        let of_batch = || {
            let each = u64::from(self.known_replicas()?) * u64::from(self.layout.micro_batch_size);
            self.training.global_batch_size?.checked_div(each)
        };
        self.training.num_micro_batches.map(u64::from).or_else(of_batch)
    }

    /// Number of groups of replicas that each hold a full copy of the states, and number of ranks over which a group
    /// shards them.
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
