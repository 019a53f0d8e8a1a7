//! What each pipeline rank does for a micro-batch, given which blocks it has.
//!
//! Blocks stand in chunks, in the order of the model; [`PipelineRanks`] says on which ranks a chunk lies.

use std::ops::Range;

use cost_models::Group;
use cost_models::block::PassTime;
use ir::collective::Collective;
use ir::graph::Recompute;
use ir::layout::{LayoutSpec, MeshAxis};
use ir::schedule::Placement;
use ir::units::{Bytes, Seconds};

use crate::problem::{Problem, Shape};

/// The ranks that share the layers, and which of them have which chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineRanks {
    /// The ranks.
    pub group: Group,
    /// Which has what.
    pub placement: Placement,
}

impl PipelineRanks {
    /// Those of a layout.
    pub fn of(spec: &LayoutSpec) -> Self {
        let stride = spec.mesh().stride(MeshAxis::Pipeline);
        let group = Group { size: spec.pipeline_parallel, stride };
        Self { group, placement: spec.schedule.placement() }
    }

    /// The ranks that have a chunk: one, or one for each copy, which then take turns.
    pub fn with(&self, chunk: usize) -> impl Iterator<Item = usize> {
        self.placement.ranks(self.group.size, chunk as u32).map(|rank| rank as usize)
    }

    /// The rank that runs a chunk for the first micro-batch.
    pub fn first_with(&self, chunk: usize) -> usize {
        self.with(chunk).next().expect("every chunk of a layout is placed")
    }

    /// The chunks, of `num_chunks`, that a rank has, in the order of the model.
    pub fn chunks(&self, rank: usize, num_chunks: usize) -> impl Iterator<Item = usize> {
        let stages = self.placement.stages(self.group.size, num_chunks as u32, rank as u32);
        stages.map(|stage| stage as usize)
    }

    /// Whether no rank that has the chunk has one before it.
    pub fn is_first(&self, chunk: usize) -> bool {
        self.chunks(self.first_with(chunk), chunk + 1).next() == Some(chunk)
    }

    /// Whether data goes from one rank to another between a chunk and the next.
    fn is_crossed(&self, chunk: usize) -> bool {
        self.first_with(chunk) != self.first_with(chunk + 1)
    }

    /// The share of micro-batches that a rank runs through each of its chunks.
    pub fn share(&self) -> f64 {
        1.0 / f64::from(self.placement.num_copies())
    }
}

/// Totals over the blocks of one pipeline rank, or of one chunk. Times are those of a micro-batch; of a
/// rank whose micro-batches do not all run through the same chunks, the mean.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stage {
    /// Forward of a micro-batch.
    pub forward: PassTime,
    /// Gradients of activations.
    pub input_grad: PassTime,
    /// Gradients of parameters.
    pub weight_grad: PassTime,
    /// Both, where the schedule runs them apart.
    pub grads_apart: [PassTime; 2],
    /// What is computed again in backward.
    pub recompute: PassTime,
    /// Messages received in forward.
    pub receive_forward: Seconds,
    /// Messages received in backward.
    pub receive_backward: Seconds,
    /// What a vocabulary that all ranks share has them exchange in forward and in backward.
    pub exchanges: [Seconds; 2],
    /// By how much rounds of chunks, each at the pace of the slowest at the time, together exceed the
    /// slowest rank: the same on all ranks, zero where chunks are equal. Only where they go round.
    pub uneven: Seconds,
    /// What the rank holds.
    pub holdings: Holdings,
}

/// What one pipeline rank holds for its blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Holdings {
    /// Parameters that every data-parallel rank has, tied copies included.
    pub dense: u64,
    /// Parameters of experts.
    pub expert: u64,
    /// Among `dense`, those tied to a block of another rank.
    pub tied: u64,
    /// Among `dense`, those whose gradients are summands over tensor-parallel ranks.
    pub partial_gradients: u64,
    /// Parameters of the largest block.
    pub largest_block: u64,
    /// Kept for backward of a micro-batch, the chain's last block left out.
    pub saved: Bytes,
    /// Kept by the chain's last block, if it is here.
    pub saved_by_last: Bytes,
    /// Kept by one block while it is computed again, at most.
    pub recompute_working_set: Bytes,
    /// The largest tensor of any operator.
    pub largest_tensor: Bytes,
    /// Elements of the largest weight whose gradient one product makes.
    pub largest_weight: u64,
    /// The largest message of any chunk.
    pub message: Bytes,
    /// Number of blocks.
    pub num_blocks: u32,
}

impl Stage {
    /// All passes of a micro-batch, without messages.
    fn passes(&self) -> Seconds {
        (self.forward + self.input_grad + self.weight_grad + self.recompute).total()
    }

    /// Adds the blocks of a range, through which the rank runs a share of the micro-batches.
    fn add_blocks(
        &mut self,
        chain: &ChainIndex,
        shape: &Shape,
        recompute: Recompute,
        range: Range<usize>,
        share: f64,
    ) {
        for (class, cost) in shape.costs.iter().enumerate() {
            let blocks = f64::from(chain.count(class, &range)) * share;
            self.forward = self.forward + cost.forward * blocks;
            self.input_grad = self.input_grad + cost.input_grad * blocks;
            self.weight_grad = self.weight_grad + cost.weight_grad * blocks;
            for (sum, pass) in self.grads_apart.iter_mut().zip(cost.grads_apart) {
                *sum = *sum + pass * blocks;
            }
            self.recompute = self.recompute + cost.recompute[recompute as usize] * blocks;
        }
        self.holdings.add_blocks(chain, shape, recompute, range);
    }

    /// Adds what a chunk receives.
    fn add_messages(&mut self, received: [Received; 2], share: f64) {
        self.receive_forward += received[0].time * share;
        self.receive_backward += received[1].time * share;
        let message = received[0].bytes.max(received[1].bytes);
        self.holdings.message = self.holdings.message.max(message);
    }
}

/// A message that a chunk receives; nothing where its neighbour is on the same rank.
#[derive(Clone, Copy, Debug, Default)]
struct Received {
    bytes: Bytes,
    time: Seconds,
}

impl Holdings {
    /// Kept for backward of a micro-batch.
    pub fn saved_in_all(&self) -> Bytes {
        self.saved + self.saved_by_last
    }

    /// Adds the blocks of a range.
    pub fn add_blocks(
        &mut self,
        chain: &ChainIndex,
        shape: &Shape,
        recompute: Recompute,
        range: Range<usize>,
    ) {
        for (class, cost) in shape.costs.iter().enumerate() {
            let count = chain.count(class, &range);
            if count == 0 {
                continue;
            }
            let parameters = cost.parameters;
            self.dense += parameters.dense * u64::from(count);
            self.expert += parameters.expert * u64::from(count);
            self.partial_gradients += parameters.partial_gradients * u64::from(count);
            self.largest_block = self.largest_block.max(parameters.dense + parameters.expert);
            let saved = cost.saved[recompute as usize];
            let is_last = range.end == chain.num_blocks() && class == chain.last_class();
            self.saved += saved * u64::from(count - u32::from(is_last));
            if is_last {
                self.saved_by_last = saved;
            }
            let dropped = cost.saved[Recompute::None as usize].saturating_sub(saved);
            self.recompute_working_set = self.recompute_working_set.max(dropped);
            self.largest_tensor = self.largest_tensor.max(cost.largest_tensor);
            self.largest_weight = self.largest_weight.max(cost.largest_weight);
            self.num_blocks += count;
        }
    }
}

/// The stages of an assignment, by pipeline rank: chunk `c` ends before block `ends[c]`.
pub fn stages(
    problem: &Problem,
    chain: &ChainIndex,
    shape: &Shape,
    recompute: Recompute,
    ends: &[usize],
    ranks: &PipelineRanks,
) -> Vec<Stage> {
    let p = ranks.group.size as usize;
    let share = ranks.share();
    let mut stages = vec![Stage::default(); p];
    let mut slowest = vec![Seconds::ZERO; ends.len().div_ceil(p)];
    for chunk in 0..ends.len() {
        let received = received(problem, chain, shape, ends, ranks, chunk);
        for rank in ranks.with(chunk) {
            let stage = &mut stages[rank];
            let before = stage.passes();
            stage.add_blocks(chain, shape, recompute, blocks(ends, chunk), share);
            for end in shared_ends(problem, ends, ranks, chunk) {
                stage.add_blocks(chain, shape, recompute, end, share);
            }
            slowest[chunk / p] = slowest[chunk / p].max(stage.passes() - before);
            stage.add_messages(received, share);
            stage.exchanges = vocabulary_exchanges(problem, chain, shape, ranks);
        }
    }
    // The first ranks are at the next chunk while the last are still at this one.
    let next = slowest.iter().cycle().skip(1);
    let rounds: Seconds = slowest.iter().zip(next).map(|(this, next)| this.max(*next)).sum();
    let slowest_rank = stages.iter().map(Stage::passes).fold(Seconds::ZERO, Seconds::max);
    let uneven = (rounds - slowest_rank).max(Seconds::ZERO);
    for stage in &mut stages {
        stage.uneven = uneven;
    }
    hold_tied_copies(&mut stages, chain, shape, ends, ranks);
    stages
}

/// The stages of an assignment, by chunk: each as if it had its rank to itself. What a rank holds beyond
/// its chunks, as `stages` has it, counts to the first of them.
pub fn chunk_stages(
    problem: &Problem,
    chain: &ChainIndex,
    shape: &Shape,
    recompute: Recompute,
    ends: &[usize],
    ranks: &PipelineRanks,
    stages: &[Stage],
) -> Vec<Stage> {
    let chunk_stage = |chunk: usize| {
        let mut stage = Stage::default();
        stage.add_blocks(chain, shape, recompute, blocks(ends, chunk), 1.0);
        for end in shared_ends(problem, ends, ranks, chunk) {
            stage.add_blocks(chain, shape, recompute, end, 1.0);
        }
        stage.add_messages(received(problem, chain, shape, ends, ranks, chunk), 1.0);
        if ranks.is_first(chunk) {
            stage.exchanges = vocabulary_exchanges(problem, chain, shape, ranks);
        }
        stage
    };
    let mut chunks: Vec<Stage> = (0..ends.len()).map(chunk_stage).collect();
    for chunk in (0..ends.len()).filter(|chunk| ranks.is_first(*chunk)) {
        let rank = ranks.first_with(chunk);
        let of_rank = &stages[rank].holdings;
        let own: u64 = ranks.chunks(rank, ends.len()).map(|own| chunks[own].holdings.dense).sum();
        let holdings = &mut chunks[chunk].holdings;
        holdings.dense += of_rank.dense - own;
        holdings.tied = of_rank.tied;
    }
    chunks
}

/// The blocks of a chunk.
pub fn blocks(ends: &[usize], chunk: usize) -> Range<usize> {
    let start = chunk.checked_sub(1).map_or(0, |before| ends[before]);
    start..ends[chunk]
}

/// The ends of the chain that a chunk has beside its blocks, where all ranks share the vocabulary: those
/// that no chunk of its rank has, with the first of these.
pub fn shared_ends(
    problem: &Problem,
    ends: &[usize],
    ranks: &PipelineRanks,
    chunk: usize,
) -> Vec<Range<usize>> {
    if !problem.vocabulary_parallel || !ranks.is_first(chunk) {
        return Vec::new();
    }
    let last = problem.graph.num_blocks() - 1;
    let rank = ranks.first_with(chunk);
    let has =
        |block: usize| ranks.chunks(rank, ends.len()).any(|own| blocks(ends, own).contains(&block));
    [0, last].into_iter().filter(|end| !has(*end)).map(|end| end..end + 1).collect()
}

/// What all ranks exchange in forward and in backward of a micro-batch for a vocabulary that they share: with
/// `X` the hidden states in 16 bits,
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
fn vocabulary_exchanges(
    problem: &Problem,
    chain: &ChainIndex,
    shape: &Shape,
    ranks: &PipelineRanks,
) -> [Seconds; 2] {
    if !problem.vocabulary_parallel {
        return [Seconds::ZERO; 2];
    }
    let stretch = problem.hardware.framework.collectives;
    let hidden = shape.costs[chain.class_at(0)].output;
    let time =
        |collective, bytes| problem.hardware.network.time(collective, ranks.group, bytes) * stretch;
    let reduced = time(Collective::AllReduce, hidden);
    let forward = time(Collective::Broadcast, hidden * 2) + reduced;
    [forward, time(Collective::Broadcast, hidden) + reduced]
}

/// What a chunk receives in forward and in backward.
fn received(
    problem: &Problem,
    chain: &ChainIndex,
    shape: &Shape,
    ends: &[usize],
    ranks: &PipelineRanks,
    chunk: usize,
) -> [Received; 2] {
    let from = |chunk: usize| {
        let bytes = shape.costs[chain.class_at(ends[chunk] - 1)].output;
        Received { bytes, time: message_time(problem, shape, ranks.group, bytes) }
    };
    // The gradient of a chunk's output is as large as the output.
    let before = chunk.checked_sub(1).filter(|before| ranks.is_crossed(*before));
    let after = (chunk + 1 < ends.len()).then_some(chunk).filter(|after| ranks.is_crossed(*after));
    [before.map(from).unwrap_or_default(), after.map(from).unwrap_or_default()]
}

/// Time of a message between stages. Tensor-parallel ranks that all hold the same tensor may each send
/// their part of it and gather the rest on the other side.
///
/// # Source
///
/// Narayanan et al. 2021 (arXiv 2104.04473), section 4.1, scatter/gather optimization.
pub fn message_time(problem: &Problem, shape: &Shape, pipeline: Group, bytes: Bytes) -> Seconds {
    let hardware = &problem.hardware;
    let hop = |bytes| hardware.hop(pipeline, bytes);
    let whole = hop(bytes);
    let scatters = hardware.framework.scatters_messages;
    if shape.key.sequence_parallel || shape.key.tensor_parallel == 1 || !scatters {
        return whole;
    }
    let tensor = shape.key.groups().tensor;
    let part = hop(bytes.shard(tensor.size.into()));
    whole.min(part + hardware.network.time(Collective::AllGather, tensor, bytes))
}

/// A time that every rank spends on messages of a micro-batch at least: all of its `v` chunks but the
/// first, and all but the last, receive one in forward and in backward.
pub fn least_message_time(problem: &Problem, shape: &Shape, pipeline: Group, v: u32) -> f64 {
    let least = shape.costs.iter().map(|cost| cost.output).min().unwrap_or(Bytes::ZERO);
    2.0 * f64::from(v - 1) * message_time(problem, shape, pipeline, least).get()
}

/// A rank that has a tied block, but not the block that it is tied to, holds a copy.
fn hold_tied_copies(
    stages: &mut [Stage],
    chain: &ChainIndex,
    shape: &Shape,
    ends: &[usize],
    ranks: &PipelineRanks,
) {
    let with = |block: usize| ranks.with(ends.partition_point(|end| *end <= block));
    for (block, target) in &chain.ties {
        let homes: Vec<usize> = with(*target).collect();
        for rank in with(*block) {
            if homes.contains(&rank) || stages[rank].holdings.tied > 0 {
                continue;
            }
            let copy = shape.costs[chain.class_at(*block)].parameters.tied;
            stages[rank].holdings.tied += copy;
            stages[rank].holdings.dense += copy;
            for home in &homes {
                let held = &mut stages[*home].holdings;
                held.tied = held.tied.max(copy);
            }
        }
    }
}

/// The chain of blocks, indexed for sums over ranges.
#[derive(Clone, Debug)]
pub struct ChainIndex {
    classes: Vec<usize>,
    /// For each class, how many of its blocks are among the first `i`.
    counts: Vec<Vec<u32>>,
    /// Blocks whose parameters are tied, with the block that they are tied to.
    ties: Vec<(usize, usize)>,
}

impl ChainIndex {
    /// Indexes the chain of the problem's graph.
    pub fn new(problem: &Problem) -> Self {
        let graph = &problem.graph;
        let classes: Vec<usize> = graph.blocks().map(|class| class.0).collect();
        let counts = (0..graph.classes().len())
            .map(|class| {
                let mut sum = 0;
                let mut prefix = vec![0];
                prefix.extend(classes.iter().map(|other| {
                    sum += u32::from(*other == class);
                    sum
                }));
                prefix
            })
            .collect();
        let mut ties = Vec::new();
        for (target, users) in graph.ties() {
            let position = |name: &str| {
                classes.iter().position(|class| {
                    let block = graph.class(ir::graph::ClassId(*class));
                    block.nodes().any(|node| node.op.name == name)
                })
            };
            let Some(home) = position(&target) else { continue };
            ties.extend(users.iter().filter_map(|user| Some((position(user)?, home))));
        }
        Self { classes, counts, ties }
    }

    /// Number of blocks in the chain.
    pub fn num_blocks(&self) -> usize {
        self.classes.len()
    }

    /// The class of the block at a position.
    pub fn class_at(&self, position: usize) -> usize {
        self.classes[position]
    }

    fn last_class(&self) -> usize {
        self.classes[self.classes.len() - 1]
    }

    /// How many blocks of a class there are in a range.
    pub fn count(&self, class: usize, range: &Range<usize>) -> u32 {
        self.counts[class][range.end] - self.counts[class][range.start]
    }
}
