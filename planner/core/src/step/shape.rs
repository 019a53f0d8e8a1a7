//! Costs of all classes of blocks for one sharding and micro-batch.

use std::sync::{Arc, Mutex, PoisonError};

use cost_models::Hardware;
use cost_models::block::{BlockMemory, BlockPasses, Groups};
use ir::framework::{
    ExpertOutputs, Feature, Fusion, GatheredInputs, KeptInputs, Projections, ScanKernel,
};
use ir::graph::{
    Block, ClassId, DocumentSizes, EmbeddingTable, OffloadModules, Recompute, ShardContext,
    Sharding, Sizes, Switches,
};
use ir::layout::{LayoutSpec, Mesh, ZeroStage};
use ir::schedule::StagePlacement;
use ir::units::Nanos;

use super::chain::ChainIndex;
use super::memo::Memo;
use super::ranks::PipelineRanks;
use crate::partition::{balanced, evened, mirrored, partition_of, prefix_sums};
use crate::problem::{BatchSplit, Problem};

/// Sharding of operators, micro-batch size and switches: everything that the cost of a block depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShapeKey {
    /// Sharding of operators over the ranks of a stage.
    pub sharding: Sharding,
    /// Sequences in a micro-batch.
    pub micro_batch_size: u32,
    /// Options that change the cost of blocks: dispatcher, expert overlap, CUDA graphs.
    pub switches: Switches,
    /// True if the host gathers the parameters of each operator for each pass, and takes time for it.
    pub gathers_by_operator: bool,
    /// Documents in the sequences; `None` where a sequence is one document.
    pub documents: Option<DocumentSizes>,
    /// The modules whose activations are offloaded; `None` where no modules were chosen.
    pub offloaded: Option<OffloadModules>,
    /// Number of ranks among which the layers are divided, where experts differ in their tokens; otherwise one.
    pub loaded_stages: u32,
}

impl ShapeKey {
    /// The shape key of a layout.
    pub fn of(layout: &LayoutSpec, problem: &Problem) -> Self {
        let takes_time = problem.hardware.framework.parameters.microseconds_per_gather > 0.0;
        Self {
            sharding: layout.sharding(),
            micro_batch_size: layout.micro_batch_size,
            switches: layout.switches,
            gathers_by_operator: takes_time && layout.zero_stage == ZeroStage::Parameters,
            documents: problem.document_sizes(BatchSplit {
                replicas: layout.data_parallel,
                num_micro_batches: layout.num_micro_batches,
                micro_batch_size: layout.micro_batch_size,
                pipeline_parallel: layout.pipeline_parallel,
            }),
            offloaded: layout.offload.activations.modules(),
            loaded_stages: problem
                .expert_load
                .stages(layout.expert_parallel, layout.pipeline_parallel),
        }
    }

    /// The key where each rank has all experts.
    pub fn with_all_experts(self) -> Self {
        let sharding = Sharding { expert_parallel: 1, ..self.sharding };
        Self { sharding, loaded_stages: 1, ..self }
    }

    /// Cache key of blocks without experts; `has_attention` says whether they have attention.
    fn without_experts(self, has_attention: bool) -> Self {
        let kind = Some(self.sharding.context_parallel_kind).filter(|_| has_attention);
        let sharding = Sharding {
            context_parallel_kind: kind.unwrap_or_default(),
            ..self.sharding.without_experts()
        };
        let Switches { cuda_graphs, .. } = self.switches;
        let switches = Switches { cuda_graphs, ..Switches::USUAL };
        Self { sharding, switches, loaded_stages: 1, ..self }
    }

    /// Shard context of the blocks of a class.
    pub fn setting(&self, problem: &Problem, class: usize) -> ShardContext {
        let framework = &problem.hardware.framework;
        let precision = problem.training.precision;
        ShardContext {
            sizes: Sizes {
                micro_batch_size: self.micro_batch_size.into(),
                sequence_length: problem.training.sequence_length,
            },
            sharding: self.sharding,
            compute_bytes: problem.training.compute_bytes(),
            reads_data: class == 0,
            fuses_projections: framework.kernels.projections == Projections::Fused,
            vocabulary_multiple: framework.tensor_parallel.vocabulary_multiple,
            // An embedding that is tied to the head is sharded.
            embedding: if problem.facts.features.has(Feature::TiedEmbedding) {
                EmbeddingTable::Part
            } else {
                framework.tensor_parallel.embedding
            },
            switches: self.switches,
            kept_bits: (precision.is_cast() && framework.memory.inputs == KeptInputs::Cast)
                .then(|| precision.input_bits()),
            keeps_expert_outputs: framework.memory.expert_outputs == ExpertOutputs::Kept,
            is_eager: framework.kernels.fusion == Fusion::Eager,
            keeps_gates: framework.kernels.fusion.runs_gates_apart(),
            scans_to_projection: framework.kernels.scan == ScanKernel::ToProjection,
            loss: framework.loss(),
            documents: self.documents,
            offloaded: self.offloaded,
            routed: problem.expert_load.of(
                problem.graph.class(ClassId(class)),
                self.sharding.expert_parallel,
                self.loaded_stages,
            ),
            gathers_by_operator: self.gathers_by_operator,
            keeps_gathered: framework.tensor_parallel.gathered_inputs == GatheredInputs::Whole,
        }
    }

    /// Groups of ranks on the mesh.
    pub fn groups(&self) -> Groups {
        Self::groups_of(&self.sharding)
    }

    /// Groups of a sharding on the mesh.
    pub fn groups_of(sharding: &Sharding) -> Groups {
        Groups::of(&Mesh { sharding: *sharding, data_parallel: 1 })
    }
}

/// Cache of ends of stages, by policy, number of stages, number of ranks, and placement; `None` for fewer blocks.
type Balanced = Memo<(Recompute, usize, u32, StagePlacement), Option<Arc<[usize]>>>;

/// Cache of passes, by class of blocks and by shape. Blocks without experts do not depend on the expert-parallel degree
/// and, without attention, not on the kind of context parallelism.
type Passes = Memo<(usize, ShapeKey), Arc<BlockPasses>>;

/// Cache of what blocks cost on one kind of GPUs.
#[derive(Debug, Default)]
pub struct BlockCosts {
    passes: Passes,
    /// Lower bounds of blocks with experts, for any degree of expert parallelism.
    least: Passes,
    /// Memory of blocks.
    pub memories: BlockMemories,
}

/// Caches of what blocks cost, by the hardware of a group of GPUs. Searches of problems that differ in nothing else
/// share them.
#[derive(Debug, Default)]
pub struct CostsByHardware(Mutex<Vec<(Hardware, Arc<BlockCosts>)>>);

impl CostsByHardware {
    /// The cache of some hardware.
    pub fn of(&self, hardware: &Hardware) -> Arc<BlockCosts> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, costs)) = all.iter().find(|(of, _)| of == hardware) {
            return Arc::clone(costs);
        }
        let costs = Arc::default();
        all.push((hardware.clone(), Arc::clone(&costs)));
        costs
    }

    /// The cache of each group of a problem.
    pub fn of_groups(&self, problem: &Problem) -> Vec<Arc<BlockCosts>> {
        problem.all_hardware().map(|hardware| self.of(hardware)).collect()
    }
}

/// Cache of the memory of each class of blocks: by shape, and by class for blocks that several shapes share.
#[derive(Debug, Default)]
pub struct BlockMemories {
    shapes: Memo<ShapeKey, Arc<[Arc<BlockMemory>]>>,
    blocks: Memo<(usize, ShapeKey), Arc<BlockMemory>>,
}

impl BlockMemories {
    /// The memory of a block of each class in a shape, in the order of the graph's classes. It does not depend on the
    /// switches.
    pub fn of(
        &self,
        problem: &Problem,
        chain: &ChainIndex,
        key: ShapeKey,
    ) -> Arc<[Arc<BlockMemory>]> {
        let key = ShapeKey { switches: Switches::USUAL, ..key };
        let of_class = |(class, block): (ClassId, &Block)| {
            let has_experts = chain.has_experts(class.0);
            let without = || key.without_experts(chain.has_attention(class.0));
            let key = if has_experts { key } else { without() };
            self.blocks.get((class.0, key), || {
                let setting = key.setting(problem, class.0);
                Arc::new(BlockMemory::new(block, &setting, &key.groups(), &problem.hardware))
            })
        };
        self.shapes.get(key, || problem.graph.classes().map(of_class).collect())
    }
}

/// The cache of blocks with experts.
type OfExperts = fn(&BlockCosts) -> &Passes;

/// Passes of a block with each of several switches.
type Cost = fn(&Block, &ShardContext, &Groups, &Hardware, &[Switches]) -> Vec<BlockPasses>;

/// Costs of all classes of blocks for one shape, and balanced partitions of the chain.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The key.
    pub key: ShapeKey,
    /// Passes of each class, on the GPUs of the first group.
    pub blocks: Vec<Arc<BlockPasses>>,
    /// Passes of each class on the GPUs of the other groups.
    on_others: Vec<Vec<Arc<BlockPasses>>>,
    /// Cache of balanced partitions: several numbers of ranks give the same number of stages.
    balanced: Arc<Balanced>,
}

impl Shape {
    /// Costs every class of the problem's graph.
    pub fn new(problem: &Problem, chain: &ChainIndex, key: ShapeKey) -> Self {
        let known = CostsByHardware::default().of_groups(problem);
        let mut one = Self::with_switches(problem, chain, key, &[key.switches], &known);
        one.pop().expect("a shape for each of the switches")
    }

    /// [`Self::new`] with each of several switches in place of the key's, in their order, and a cache for each group of
    /// GPUs.
    pub fn with_switches(
        problem: &Problem,
        chain: &ChainIndex,
        key: ShapeKey,
        switches: &[Switches],
        known: &[Arc<BlockCosts>],
    ) -> Vec<Self> {
        let of_experts: OfExperts = |costs| &costs.passes;
        Self::with(problem, chain, key, switches, (known, of_experts), BlockPasses::with_switches)
    }

    /// Lower bounds of every class, for any expert-parallel degree.
    pub fn least(
        problem: &Problem,
        chain: &ChainIndex,
        key: ShapeKey,
        known: &[Arc<BlockCosts>],
    ) -> Self {
        let key = key.with_all_experts();
        let least: Cost = |block, setting, groups, hardware, _| {
            vec![BlockPasses::least(block, setting, groups, hardware)]
        };
        let of_experts: OfExperts = |costs| &costs.least;
        let known = (known, of_experts);
        let mut one = Self::with(problem, chain, key, &[key.switches], known, least);
        one.pop().expect("a shape for each of the switches")
    }

    fn with(
        problem: &Problem,
        chain: &ChainIndex,
        key: ShapeKey,
        switches: &[Switches],
        (known, of_experts): (&[Arc<BlockCosts>], OfExperts),
        cost: Cost,
    ) -> Vec<Self> {
        let keys = || switches.iter().map(|switches| ShapeKey { switches: *switches, ..key });
        let of = |group: usize, (class, block): (ClassId, &Block)| -> Vec<Arc<BlockPasses>> {
            let passes = |key: ShapeKey, switches: &[Switches]| {
                let setting = key.setting(problem, class.0);
                let hardware = problem.hardware_of(group);
                let passes = cost(block, &setting, &key.groups(), hardware, switches).into_iter();
                let is_end = chain.is_end(class.0);
                passes.map(move |it| Arc::new(if is_end { it.never_recomputed() } else { it }))
            };
            if chain.has_experts(class.0) {
                let made = || keys().map(|key| (class.0, key)).zip(passes(key, switches));
                let known = of_experts(&known[group]);
                return keys().map(|key| known.get_with_others(&(class.0, key), made)).collect();
            }
            let one = |key: ShapeKey| {
                let key = key.without_experts(chain.has_attention(class.0));
                let made = || {
                    passes(key, &[key.switches]).next().expect("passes for each of the switches")
                };
                known[group].passes.get((class.0, key), made)
            };
            keys().map(one).collect()
        };
        let groups: Vec<Vec<Vec<Arc<BlockPasses>>>> = (0..problem.num_groups())
            .map(|group| problem.graph.classes().map(|it| of(group, it)).collect())
            .collect();
        let shape = |(index, key): (usize, ShapeKey)| {
            let with = |classes: &Vec<Vec<Arc<BlockPasses>>>| -> Vec<Arc<BlockPasses>> {
                classes.iter().map(|passes| Arc::clone(&passes[index])).collect()
            };
            let on_others = groups[1..].iter().map(with).collect();
            Self { key, blocks: with(&groups[0]), on_others, balanced: Arc::default() }
        };
        keys().enumerate().map(shape).collect()
    }

    /// The costs on the GPUs of one group.
    pub fn of_group(&self, group: usize) -> Self {
        let blocks = self.blocks_in(group).to_vec();
        Self { key: self.key, blocks, on_others: Vec::new(), balanced: Arc::default() }
    }

    /// Passes of each class on the GPUs of a group.
    pub fn blocks_in(&self, group: usize) -> &[Arc<BlockPasses>] {
        group.checked_sub(1).map_or(&self.blocks, |other| &self.on_others[other])
    }

    /// Time of forward and backward of the first `i` blocks on the GPUs of a group, with recompute by the policy;
    /// without recompute where only a stage's first layers are recomputed, as that adds the same time to every stage
    /// with enough layers.
    pub fn prefix(&self, chain: &ChainIndex, recompute: Recompute, group: usize) -> Vec<Nanos> {
        let policy = recompute.of_other_layers();
        let time = |passes: &Arc<BlockPasses>| {
            (passes.forward + passes.backward + passes.recompute[policy]).total()
        };
        let times: Vec<Nanos> = self.blocks_in(group).iter().map(time).collect();
        prefix_sums((0..chain.num_blocks()).map(|block| times[chain.class_at(block)]))
    }

    /// Ends of stages on GPUs of several kinds that minimise the time of the slowest stage, and even out the others,
    /// where `fits(s, start, end)` says that stage `s` can hold blocks `start` to `end`; `None` if no partition fits.
    pub fn balanced_on_groups(
        &self,
        problem: &Problem,
        (chain, recompute): (&ChainIndex, Recompute),
        (ranks, num_stages): (&PipelineRanks, usize),
        fits: impl Fn(usize, usize, usize) -> bool,
    ) -> Option<Vec<usize>> {
        let prefixes = (0..problem.num_groups()).map(|group| self.prefix(chain, recompute, group));
        let prefixes: Vec<Vec<Nanos>> = prefixes.collect();
        let num_ranks = ranks.group.size as usize;
        let groups: Vec<usize> = (0..num_ranks).map(|rank| problem.group_of(ranks, rank)).collect();
        let time = |stage: usize, start: usize, end: usize| {
            let prefix = &prefixes[groups[stage % num_ranks]];
            prefix[end] - prefix[start]
        };
        partition_of(chain.num_blocks(), num_stages, num_ranks, time, fits)
    }

    /// Ends of stages that minimise the slowest stage, with ranks evened out; or, where the first stage shares its rank
    /// with the last, the second with the last but one and so on, that minimise the slowest rank. `None` if there are
    /// fewer blocks than stages.
    pub fn balanced(
        &self,
        problem: &Problem,
        chain: &ChainIndex,
        policy: Recompute,
        num_stages: usize,
        ranks: &PipelineRanks,
    ) -> Option<Arc<[usize]>> {
        let PipelineRanks { group, placement } = ranks;
        let num_ranks = group.size as usize;
        self.balanced.get((policy, num_stages, group.size, placement.clone()), || {
            if problem.groups.is_some() {
                let of_ranks = (ranks, num_stages);
                let ends =
                    self.balanced_on_groups(problem, (chain, policy), of_ranks, |_, _, _| true);
                return ends.map(Into::into);
            }
            let prefix = self.prefix(chain, policy, 0);
            let ends = match placement {
                StagePlacement::V | StagePlacement::Bidirectional => mirrored(&prefix, num_stages),
                StagePlacement::Loop | StagePlacement::Table(_) => balanced(&prefix, num_stages)
                    .map(|ends| evened(&prefix, ends, num_ranks, |_, _, _| true)),
            };
            ends.map(Into::into)
        })
    }
}
