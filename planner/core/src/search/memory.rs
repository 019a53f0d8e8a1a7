//! Lower bounds on memory, known before blocks are partitioned into stages.

use std::collections::BTreeMap;
use std::sync::Arc;

use cost_models::block::{BlockMemory, ByPolicy};
use cost_models::states::ModelStates;
use ir::graph::{
    BlockRecompute, ContextParallelKind, FrozenParameters, LocalParameters, Recompute,
    ShardContext, Sharding, Switches,
};
use ir::schedule::ScheduleKind;
use ir::units::Bytes;
use smallvec::{SmallVec, smallvec};

use super::family::{Family, ZeroSharding};
use super::node::Searcher;
use crate::problem::Problem;
use crate::step::{ShapeKey, with_slack};

/// Blocks of one class, with a family's sharding.
struct Class {
    /// Number of blocks.
    count: f64,
    /// Bytes of model states of each block.
    states: f64,
    /// Bytes of activations that each block saves for one micro-batch.
    saved: ByPolicy<f64>,
}

/// Blocks of families that differ only in micro-batches, from which lower bounds of the fullest rank's memory are
/// computed, for any partition into stages.
pub(super) struct LeastMemory(SmallVec<[Class; 8]>);

impl LeastMemory {
    /// Lower bound in bytes with a recompute policy and a schedule.
    pub(super) fn with(
        &self,
        family: &Family,
        recompute: Recompute,
        schedule: ScheduleKind,
    ) -> Bytes {
        let policy = recompute.of_first_layers();
        self.of(family, |class| class.saved[policy], &[schedule])
    }

    /// Lower bound in bytes with a policy for all blocks, and any of several schedules.
    pub(super) fn with_any(
        &self,
        family: &Family,
        policy: BlockRecompute,
        schedules: &[ScheduleKind],
    ) -> Bytes {
        self.of(family, |class| class.saved[policy], schedules)
    }

    /// Lower bound in bytes. Blocks of class `c` have `s_c` bytes of states and save `a_c` for each of the `f_r`
    /// micro-batches that rank `r` has in flight. For any weights of the ranks, the fullest rank holds at least the
    /// weighted mean. In this mean, each block counts at least as much as on the rank where its weighted memory is
    /// least:
    ///
    /// ```text
    /// M >= sum over blocks of min over r of w_r (s_c + f_r a_c),   sum over r of w_r = 1
    /// ```
    ///
    /// The weight of rank `r` is proportional to `1 / (s + f_r a)`, with `s` and `a` of the mean block. With these
    /// weights the bound is exact where all blocks are alike. Saved activations grow linearly with the size of a
    /// micro-batch.
    fn of(
        &self,
        family: &Family,
        saved: impl Fn(&Class) -> f64,
        schedules: &[ScheduleKind],
    ) -> Bytes {
        let (p, m) = (family.pipeline_parallel, family.num_micro_batches);
        let size = f64::from(family.shape.micro_batch_size);
        let of_class =
            |class: &Class, sequences: f64| class.count * (class.states + sequences * saved(class));
        let mut least: SmallVec<[f64; 8]> = smallvec![f64::INFINITY; self.0.len()];
        let mut weights = 0.0;
        for rank in 0..p {
            let in_flight = schedules.iter().map(|schedule| schedule.least_in_flight(rank, p, m));
            let sequences = f64::from(in_flight.min().unwrap_or(1)) * size;
            let all: f64 = self.0.iter().map(|class| of_class(class, sequences)).sum();
            let weight = 1.0 / all.max(1.0);
            weights += weight;
            for (least, class) in least.iter_mut().zip(&self.0) {
                *least = least.min(weight * of_class(class, sequences));
            }
        }
        let most = least.iter().sum::<f64>() / weights;
        with_slack(Bytes::from_f64(most * (1.0 - 1e-9)))
    }
}

/// Parameters of all blocks, as if one rank had every stage, by sharding.
pub(super) type Parameters = BTreeMap<ShapeKey, LocalParameters>;

/// Cache key of the parameters of a rank. The parameters do not depend on sequence and batch, so these are cleared.
fn parameters_key(family: &Family) -> ShapeKey {
    ShapeKey {
        switches: Switches::USUAL,
        sharding: Sharding {
            context_parallel: 1,
            context_parallel_kind: ContextParallelKind::Ring,
            ..family.shape.sharding
        },
        micro_batch_size: 1,
        gathers_by_operator: false,
        documents: None,
        offloaded: None,
        loaded_stages: 1,
    }
}

impl Searcher<'_> {
    /// For families that differ from `first` only in micro-batches and switches: the recompute policies of the search
    /// with which a rank's memory may hold its part of the blocks. The memory must also hold any one block with
    /// everything that its backward needs, as a rank holds that at some time under every policy.
    pub(super) fn policies_with_room(
        &self,
        first: &Family,
    ) -> impl Fn(&Family) -> ByPolicy<bool> + use<> {
        let shardings = first.shardings(self.problem, &self.request.fixed);
        let schedules = first.schedule_kinds(self.problem, &self.request.fixed);
        let capacity = self.problem.largest_memory_budget();
        let largest_block = self.largest_block(first, &shardings);
        let least = self.least_memory(first, &shardings);
        let (is_asked, searched) = (self.request.exhaustive, self.policies);
        move |family| {
            let holds_block = is_asked || largest_block(family) <= capacity;
            ByPolicy::new(|policy| {
                let fits = || is_asked || least.with_any(family, policy, &schedules) <= capacity;
                holds_block && searched[policy].is_some() && fits()
            })
        }
    }

    /// Lower bound of the memory of a rank that has only one block, the largest, for families that differ only in
    /// micro-batches. Activations of a block grow linearly with the number of sequences.
    fn largest_block(
        &self,
        family: &Family,
        shardings: &[ZeroSharding],
    ) -> impl Fn(&Family) -> Bytes + use<> {
        let memories = self.block_memories(ShapeKey { micro_batch_size: 1, ..family.shape });
        let classes = memories.iter().enumerate().filter(|(it, _)| !self.chain.is_end(*it));
        let blocks = classes.map(|(_, block)| {
            let states = self.states(family, &block.parameters, shardings);
            (states, block.saved[BlockRecompute::None])
        });
        let blocks: SmallVec<[(Bytes, Bytes); 8]> = blocks.collect();
        move |family| {
            let size = u64::from(family.shape.micro_batch_size);
            let needed = blocks.iter().map(|(states, saved)| *states + *saved * size);
            with_slack(needed.max().unwrap_or_default())
        }
    }

    /// The parameters of all blocks as if on one rank, for every sharding of the families.
    pub(super) fn all_parameters(&self, families: impl Iterator<Item = Family>) -> Parameters {
        let mut all = Parameters::new();
        for family in families {
            let key = parameters_key(&family);
            all.entry(key).or_insert_with(|| self.parameters(&key));
        }
        all
    }

    /// Lower bound of the fullest rank's memory in a family: its part of all model states.
    pub(super) fn least_states(&self, family: &Family, parameters: &Parameters) -> Bytes {
        let p = u64::from(family.pipeline_parallel);
        let all = parameters[&parameters_key(family)];
        let frozen = FrozenParameters {
            dense: Bytes::new(all.frozen.dense.get() / p),
            expert: Bytes::new(all.frozen.expert.get() / p),
            ..all.frozen
        };
        let (dense, expert) = (all.dense / p, all.expert / p);
        let part = LocalParameters { dense, expert, frozen, ..all };
        let shardings = family.shardings(self.problem, &self.request.fixed);
        with_slack(self.states(family, &part, &shardings))
    }

    /// The data from which lower bounds of the fullest rank's memory are computed, for families that differ only in
    /// micro-batches.
    pub(super) fn least_memory(&self, family: &Family, shardings: &[ZeroSharding]) -> LeastMemory {
        let memories = self.block_memories(ShapeKey { micro_batch_size: 1, ..family.shape });
        let all = 0..self.chain.num_blocks();
        let offloads = shardings.iter().any(|it| it.offload.activations.is_some());
        let class = |(class, block): (usize, &Arc<BlockMemory>)| Class {
            count: f64::from(self.chain.count(class, &all)),
            states: self.states(family, &block.parameters, shardings).as_f64(),
            // The first and the last block may hold their activations for one micro-batch only.
            saved: ByPolicy::new(|policy| {
                let is_kept = !offloads && !self.chain.is_end(class);
                if is_kept { block.saved[policy].as_f64() } else { 0.0 }
            }),
        };
        LeastMemory(memories.iter().enumerate().map(class).collect())
    }

    /// Model states of some parameters with the sharding that needs least memory.
    fn states(
        &self,
        family: &Family,
        parameters: &LocalParameters,
        shardings: &[ZeroSharding],
    ) -> Bytes {
        let bytes = self.problem.state_bytes();
        let states =
            shardings.iter().copied().map(|ZeroSharding { zero_stage, zero_shard, offload }| {
                let expert_shards = family.mesh().expert_shards(zero_shard);
                let LocalParameters { dense, expert, frozen, .. } = *parameters;
                let states = ModelStates::new(dense, zero_stage, zero_shard.into(), bytes)
                    + ModelStates::new(expert, zero_stage, expert_shards.into(), bytes)
                    + ModelStates::of_frozen(frozen.dense, zero_stage, zero_shard.into())
                    + ModelStates::of_frozen(frozen.expert, zero_stage, expert_shards.into());
                states.on_device(zero_stage, offload).total()
            });
        states.min().unwrap_or_default()
    }

    /// Parameters of all blocks, as if one rank had every stage.
    fn parameters(&self, key: &ShapeKey) -> LocalParameters {
        of_all_blocks(self.problem, |class| key.setting(self.problem, class))
    }
}

/// Parameters of all blocks on one rank, each block in the setting of its class.
pub(crate) fn of_all_blocks(
    problem: &Problem,
    setting: impl Fn(usize) -> ShardContext,
) -> LocalParameters {
    let mut all = LocalParameters::default();
    for ((class, block), count) in problem.graph.classes().zip(problem.graph.class_counts()) {
        let of_block = block.work(&setting(class.0)).parameters;
        all.add_times(&of_block, count.into());
    }
    all
}
