//! Assignment of blocks to stages, and of stages to pipeline ranks.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use cost_models::StridedGroup;
use cost_models::block::PassTime;
use cost_models::states::StateBytes;
use ir::collective::Collective;
use ir::framework::MessageBytes;
use ir::graph::{LocalParameters, Recompute, Sharding};
use ir::plan::MemoryUse;
use ir::units::{Bytes, Nanos, Seconds};
use simulator::TimedMessage;
use smallvec::SmallVec;

use super::chain::ChainIndex;
use super::holdings::Holdings;
use super::ranks::PipelineRanks;
use super::shape::Shape;
use crate::problem::Problem;

/// Assignment of blocks to stages and pipeline ranks, with the time and memory of each.
#[derive(Clone, Debug)]
pub struct Assignment<'a> {
    /// The problem.
    pub problem: &'a Problem,
    /// The chain of blocks.
    pub chain: &'a ChainIndex,
    /// Costs of the blocks.
    pub shape: &'a Shape,
    /// Recompute policy.
    pub recompute: Recompute,
    /// Pipeline ranks of the stages.
    pub ranks: PipelineRanks,
    /// Group of GPUs of each pipeline rank.
    pub groups: SmallVec<[usize; 16]>,
    /// Ends of the stages: stage `s` has the blocks before `ends[s]`.
    pub ends: Arc<[usize]>,
    /// The stages; equal ones share one allocation.
    pub stages: Vec<Arc<Stage>>,
    /// Parameters and activations that each pipeline rank holds.
    pub held: Vec<Holdings>,
}

/// A stage: consecutive blocks of the chain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stage {
    /// Time of the forward pass.
    pub forward: PassTime,
    /// Time of the backward pass, with both gradients.
    pub backward: PassTime,
    /// Time of the gradients of activations alone.
    pub input_grad: PassTime,
    /// Time of the gradients of parameters alone.
    pub weight_grad: PassTime,
    /// Time of recompute before the gradients.
    pub recompute: PassTime,
    /// Message to the next stage, if that is on another rank.
    pub send_forward: TimedMessage,
    /// Message to the stage before.
    pub send_backward: TimedMessage,
    /// Parameters and activations that the stage holds.
    pub holdings: Holdings,
}

/// Key of stages that do the same work: numbers of blocks of each class, numbers of recomputed blocks where only the
/// first layers are, classes of the last blocks where messages cross ranks, the GPUs, and whether it is the last stage.
#[derive(PartialEq)]
struct Alike {
    counts: SmallVec<[u32; 6]>,
    recomputed: SmallVec<[u32; 6]>,
    last_classes: [Option<usize>; 2],
    /// Groups of GPUs of the stage and of its neighbours.
    groups: [usize; 3],
    is_last: bool,
}

impl Alike {
    fn new(of: &Assignment<'_>, stage: usize) -> Self {
        let blocks = of.blocks(stage);
        let count = |blocks: &Range<usize>| {
            (0..of.shape.blocks.len()).map(|class| of.chain.count(class, blocks)).collect()
        };
        let apart = of.recompute.first_layers().is_some();
        let first =
            apart.then(|| of.chain.by_policy(of.recompute, blocks.clone()).next()).flatten();
        let crossed = |stage: Option<usize>| {
            let stage = stage.filter(|it| it + 1 < of.ends.len() && of.ranks.is_crossed(*it));
            stage.map(|stage| of.chain.class_at(of.ends[stage] - 1))
        };
        Self {
            counts: count(&blocks),
            recomputed: first.map(|(_, first)| count(&first)).unwrap_or_default(),
            last_classes: [crossed(Some(stage)), crossed(stage.checked_sub(1))],
            groups: [stage.saturating_sub(1), stage, (stage + 1).min(of.ends.len() - 1)]
                .map(|stage| of.group_of_stage(stage)),
            is_last: stage + 1 == of.ends.len(),
        }
    }
}

impl<'a> Assignment<'a> {
    /// Assigns blocks to stages.
    ///
    /// # Panics
    ///
    /// If the ends do not cover the chain in order.
    pub fn new(
        problem: &'a Problem,
        chain: &'a ChainIndex,
        shape: &'a Shape,
        recompute: Recompute,
        ranks: PipelineRanks,
        ends: Arc<[usize]>,
    ) -> Self {
        assert!(
            ends.is_sorted() && ends.last() == Some(&chain.num_blocks()),
            "stages cover the chain in order"
        );
        let (stages, held) = (Vec::new(), Vec::new());
        let of_rank = |rank| problem.group_of(&ranks, rank);
        let groups = (0..ranks.group.size as usize).map(of_rank).collect();
        let mut assignment =
            Self { problem, chain, shape, recompute, ranks, groups, ends, stages, held };
        assignment.add_stages();
        assignment.hold();
        assignment
    }

    /// Sums the blocks of each stage. Most stages are equal, and are summed once.
    fn add_stages(&mut self) {
        let num_stages = self.ends.len();
        let mut known: Vec<(Alike, usize)> = Vec::new();
        self.stages.reserve(num_stages);
        for stage in 0..num_stages {
            let alike = Alike::new(self, stage);
            let same = known.iter().rev().find(|(other, _)| *other == alike);
            let same = same.filter(|_| !self.problem.vocabulary_parallel);
            let sum = if let Some((_, other)) = same {
                Arc::clone(&self.stages[*other])
            } else {
                known.push((alike, stage));
                Arc::new(self.stage(stage))
            };
            self.stages.push(sum);
        }
    }

    /// Value of `of` for each stage, computed once for equal stages in a row.
    pub fn of_stages<T: Copy>(&self, of: impl Fn(usize) -> T) -> Vec<T> {
        let mut all: Vec<T> = Vec::with_capacity(self.stages.len());
        for (index, stage) in self.stages.iter().enumerate() {
            let before = all.last().filter(|_| Arc::ptr_eq(&self.stages[index - 1], stage));
            all.push(before.copied().unwrap_or_else(|| of(index)));
        }
        all
    }

    /// Range of the blocks of a stage.
    pub fn blocks(&self, stage: usize) -> Range<usize> {
        let start = stage.checked_sub(1).map_or(0, |before| self.ends[before]);
        start..self.ends[stage]
    }

    /// The ends of the chain that a stage has in addition to its blocks, where all ranks share the vocabulary: on the
    /// first stage of a rank, the ends that no stage of this rank has.
    pub fn shared_ends(&self, stage: usize) -> impl Iterator<Item = Range<usize>> {
        let is_shared = self.problem.vocabulary_parallel && self.ranks.is_first(stage);
        let ends = if is_shared { vec![0, self.chain.num_blocks() - 1] } else { Vec::new() };
        let rank = self.ranks.first_with(stage);
        let has = move |block: usize| {
            let mut own = self.ranks.stages(rank, self.ends.len());
            own.any(|own| self.blocks(own).contains(&block))
        };
        ends.into_iter().filter(move |end| !has(*end)).map(|end| end..end + 1)
    }

    fn stage(&self, stage: usize) -> Stage {
        let mut sum = Stage::default();
        let blocks = self.shape.blocks_in(self.group_of_stage(stage));
        for range in std::iter::once(self.blocks(stage)).chain(self.shared_ends(stage)) {
            for (policy, alike) in self.chain.by_policy(self.recompute, range.clone()) {
                for (class, block) in blocks.iter().enumerate() {
                    let count = u64::from(self.chain.count(class, &alike));
                    if count == 0 {
                        continue;
                    }
                    sum.holdings.compressed += self.compressed(&block.parameters) * count;
                    sum.forward = sum.forward + block.forward * count;
                    sum.backward = sum.backward + block.backward * count;
                    sum.input_grad = sum.input_grad + block.input_grad * count;
                    sum.weight_grad = sum.weight_grad + block.weight_grad * count;
                    sum.recompute = sum.recompute + block.recompute[policy] * count;
                }
            }
            sum.holdings.add_blocks(self.chain, self.shape, self.recompute, range);
        }
        // The gradient of a stage's input is as large as the output of the stage before.
        let after = (stage + 1 < self.ends.len()).then_some(stage);
        let message = |from: Option<usize>| {
            let from = from.filter(|from| self.ranks.is_crossed(*from));
            from.map(|from| self.message(from)).unwrap_or_default()
        };
        sum.send_forward = message(after);
        sum.send_backward = message(stage.checked_sub(1));
        // A stage receives messages of the same size from its neighbours.
        sum.holdings.message = sum.send_forward.bytes.max(sum.send_backward.bytes);
        sum
    }

    /// Bytes of the compressed gradients of a block; zero without compression.
    fn compressed(&self, parameters: &LocalParameters) -> Bytes {
        let training = &self.problem.training;
        let Some(compression) = training.gradient_compression else { return Bytes::ZERO };
        let element = StateBytes::new(training).gradient;
        let of = |count: u64| Bytes::new(compression.bytes(count, element));
        of(parameters.dense) + of(parameters.expert)
    }

    /// The message from a stage to the next. Tensor-parallel ranks that hold the same tensor may each send a part
    /// of it and gather the rest on the other side.
    ///
    /// # Source
    ///
    /// Narayanan et al. 2021 (arXiv 2104.04473), section 4.1, scatter/gather optimization.
    fn message(&self, stage: usize) -> TimedMessage {
        let bytes = self.output(self.ends[stage] - 1);
        let whole = || self.to_neighbour(stage, bytes);
        let time = self.gathered_message(stage).unwrap_or_else(whole);
        TimedMessage { time: time.into(), bytes }
    }

    /// Time of the message from a stage, where it is sent in parts and gathered on the other side; `None` where each
    /// rank sends the whole.
    pub(super) fn gathered_message(&self, stage: usize) -> Option<Seconds> {
        let Sharding { sequence_parallel, tensor_parallel, .. } = self.shape.key.sharding;
        let hardware = &self.problem.hardware;
        let message_bytes = hardware.framework.pipeline_parallel.message_bytes;
        let scatters = message_bytes == MessageBytes::Part;
        if sequence_parallel || tensor_parallel == 1 || !scatters {
            return None;
        }
        let bytes = self.output(self.ends[stage] - 1);
        let tensor = self.shape.key.groups().tensor;
        let part = self.to_neighbour(stage, bytes.shard(tensor.size.into()));
        let ends = [stage, stage + 1].map(|end| {
            let network = &self.problem.hardware_of(self.group_of_stage(end)).network;
            network.time(Collective::AllGather, tensor, bytes)
        });
        // In backward, the part is gathered on the other side.
        let gathered = part + ends[0].max(ends[1]);
        (gathered < self.to_neighbour(stage, bytes)).then_some(gathered)
    }

    /// Output of a block on a rank, in bytes.
    fn output(&self, block: usize) -> Bytes {
        self.shape.blocks[self.chain.class_at(block)].output
    }

    /// Time to send `bytes` from a stage to the next: over the network of their group, or over the network between
    /// groups.
    pub(super) fn to_neighbour(&self, stage: usize, bytes: Bytes) -> Seconds {
        let all = self.ranks.group;
        let [from, to] = [stage, stage + 1].map(|end| self.group_of_stage(end));
        let hardware = self.problem.hardware_of(from);
        if self.problem.groups.is_none() {
            return hardware.to_neighbour(self.problem.pipeline(all), bytes);
        }
        if from == to {
            let size = self.groups.iter().filter(|group| **group == from).count() as u32;
            return hardware.to_neighbour(StridedGroup { size, ..all }, bytes);
        }
        hardware.to_neighbour(all, bytes).max(self.problem.hardware_of(to).to_neighbour(all, bytes))
    }

    /// Memory of the rank whose GPU has least memory left, and the index of the rank; of equals, the first.
    pub(super) fn fullest(&self, uses: &[MemoryUse]) -> (MemoryUse, usize) {
        let left = |(rank, memory): &(usize, &MemoryUse)| {
            let capacity = self.problem.hardware_of(self.groups[*rank]).memory;
            i128::from(capacity.get()) - i128::from(memory.total().get())
        };
        let fullest = uses.iter().enumerate().min_by_key(left);
        fullest.map(|(rank, memory)| (*memory, rank)).unwrap_or_default()
    }

    /// Time of the collectives of all pipeline ranks for a shared vocabulary, in forward and in backward of a
    /// micro-batch: with `X` the hidden states in 16 bits,
    ///
    /// ```text
    /// forward    broadcast of the head's input, in 32 bits (2 X); all-reduce of the embedding's output (X)
    /// backward   all-reduce of the gradient of the head's input (X); broadcast of that of the embedding's (X)
    /// ```
    ///
    /// # Source
    ///
    /// Yeung et al. 2024 (arXiv 2411.05288) and their code, sail-sg/VocabularyParallelism,
    /// `megatron/core/pipeline_parallel/vocab_parallel_schedule.py`.
    pub(super) fn vocabulary_exchanges(&self, stage: usize) -> [Nanos; 2] {
        if !self.problem.vocabulary_parallel || !self.ranks.is_first(stage) {
            return [Nanos::ZERO; 2];
        }
        let hardware = &self.problem.hardware;
        let hidden = self.shape.blocks[self.chain.class_at(0)].output;
        let time = |collective, bytes: Bytes| -> Seconds {
            hardware.network.time(collective, self.problem.pipeline(self.ranks.group), bytes)
                * hardware.framework.exchanges.within_blocks
        };
        let reduced = time(Collective::AllReduce, hidden);
        let forward = time(Collective::Broadcast, hidden * 2) + reduced;
        [forward, time(Collective::Broadcast, hidden) + reduced].map(Nanos::from)
    }

    /// Sums the memory of each rank's stages. A rank that has a tied block, but not the block to which it is tied,
    /// holds a copy, counted with the first of its stages.
    fn hold(&mut self) {
        let num_stages = self.stages.len();
        self.held = vec![Holdings::default(); self.ranks.group.size as usize];
        for (rank, held) in self.held.iter_mut().enumerate() {
            let own = self.ranks.stages(rank, num_stages);
            own.for_each(|stage| held.add(&self.stages[stage].holdings));
        }
        let with = |block: usize| {
            let stage = self.ends.partition_point(|end| *end <= block);
            self.ranks.with(stage).collect::<Vec<usize>>()
        };
        let mut copies = BTreeSet::new();
        for (block, target) in &self.chain.ties {
            let homes = with(*target);
            for rank in with(*block) {
                if homes.contains(&rank) || !copies.insert((rank, *target)) {
                    continue;
                }
                let of_block = &self.shape.blocks[self.chain.class_at(*block)].parameters;
                let is_copy = std::iter::once((rank, true));
                for (rank, is_copy) in is_copy.chain(homes.iter().map(|home| (*home, false))) {
                    let first = self.ranks.stages(rank, num_stages).next();
                    let first =
                        first.map(|first| &mut Arc::make_mut(&mut self.stages[first]).holdings);
                    for held in first.into_iter().chain([&mut self.held[rank]]) {
                        held.add_tied(of_block, is_copy);
                    }
                }
            }
        }
    }
}
