//! Blocks, and the chain of blocks that is a model.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::graph::{DiGraph, NodeIndex};

use super::keeps::Keeps;
use super::offload::{OffloadModule, OffloadModules};
use super::op::{Learning, Op, OpKind, Recurrence};
pub use super::op_id::OpId;
use super::parameter::Parameter;
use super::placement::KnownPlacements;
use super::recomputable::Recomputable;
use super::recompute::{LATENTS, Layer, RecomputeModule, RecomputeModules, Within};
use super::tensor::{ElementType, Extent};

/// A class of equal blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub usize);

/// An operator of a block, with its id.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    /// Id of the operator in its block.
    pub id: OpId,
    /// The operator.
    pub op: &'a Op,
}

/// A directed acyclic graph of operators, in topological order.
#[derive(Clone, Debug)]
pub struct Block {
    name: String,
    graph: DiGraph<Op, usize>,
    /// For each operator, the producers of its inputs, by slot.
    inputs: Vec<Vec<OpId>>,
    outputs: Vec<OpId>,
    /// True if the preceding block saves the tensor that this block reads, for that block's own backward.
    shares_input: bool,
    /// Number of leading inputs that are outputs of the preceding block; the other inputs are data.
    given_inputs: Option<usize>,
    placements: KnownPlacements,
}

impl Block {
    /// A block of `ops`, each with the earlier operators that it reads, in order. The builder and the native reader
    /// guarantee that operators come after their inputs.
    pub(super) fn new(name: String, ops: Vec<(Op, Vec<OpId>)>, outputs: Vec<OpId>) -> Self {
        let mut graph = DiGraph::with_capacity(ops.len(), ops.len());
        let mut inputs = Vec::with_capacity(ops.len());
        for (op, taken) in ops {
            let node = graph.add_node(op);
            for (slot, input) in taken.iter().enumerate() {
                assert!(input.0 < node.index(), "an operator follows what it takes");
                graph.add_edge(NodeIndex::new(input.0), node, slot);
            }
            inputs.push(taken);
        }
        let (shares_input, given_inputs, placements) = Default::default();
        Self { name, graph, inputs, outputs, shares_input, given_inputs, placements }
    }

    /// Placements that are known already; edits of the block change none.
    pub(super) const fn known_placements(&self) -> &KnownPlacements {
        &self.placements
    }

    /// The block as it is after one that saves its own output (a rectifier does): the tensor that both save is then
    /// one.
    pub(crate) fn after(self, before: &Self) -> Self {
        let saves = |id: &OpId| before.op(before.viewed(*id)).keeps().contains(&Keeps::Output);
        let given_inputs = Some(before.outputs.len());
        Self { shares_input: before.outputs.iter().all(saves), given_inputs, ..self }
    }

    /// The operator whose output this one is a view of, if it is a view of all elements; else the operator itself.
    pub(super) fn viewed(&self, op: OpId) -> OpId {
        match self.op(op).kind {
            OpKind::Flatten | OpKind::Reshape { .. } => self.viewed(self.inputs(op)[0]),
            _ => op,
        }
    }

    /// True if an operator is an input that takes data in a block that also has other inputs.
    pub(super) fn is_data(&self, id: OpId) -> bool {
        let before = || self.nodes().take(id.0).filter(|it| it.op.kind == OpKind::Input).count();
        let is_input = self.op(id).kind == OpKind::Input;
        is_input && self.given_inputs.is_some_and(|given| before() >= given)
    }

    /// True if the preceding block saves the tensor that this block reads.
    pub(super) fn shares_input(&self) -> bool {
        self.shares_input
    }

    /// Name of the block: `embedding`, `layer`, `head`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The operators, each after all of its inputs.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = Node<'_>> + DoubleEndedIterator {
        self.graph.node_indices().map(|node| Node { id: OpId(node.index()), op: &self.graph[node] })
    }

    /// The operator `id`.
    pub fn op(&self, id: OpId) -> &Op {
        &self.graph[NodeIndex::new(id.0)]
    }

    /// The operators whose outputs `id` reads, in order.
    pub fn inputs(&self, id: OpId) -> &[OpId] {
        &self.inputs[id.0]
    }

    /// The operators whose outputs leave the block.
    pub fn outputs(&self) -> &[OpId] {
        &self.outputs
    }

    /// Number of parameters of one such block, without tied ones and buffers.
    pub fn num_parameters(&self) -> u64 {
        let own = self.nodes().flat_map(|node| node.op.own_parameters());
        own.map(Parameter::num_elements).sum()
    }

    /// For each operator, true if a gradient of its output is needed. No gradient leaves a block that takes data.
    pub fn requires_grad(&self, reads_data: bool) -> Vec<bool> {
        let mut required: Vec<bool> = Vec::with_capacity(self.nodes().len());
        for node in self.nodes() {
            let from_inputs = self.inputs(node.id).iter().any(|id| required[id.index()]);
            let given = node.op.kind == OpKind::Input
                && node.op.output.element != ElementType::Index
                && !reads_data
                && !self.is_data(node.id);
            required.push(given || from_inputs || node.op.is_trained());
        }
        required
    }

    /// Returns whether two blocks are equal except for their names.
    pub fn same_structure(&self, other: &Self) -> bool {
        self.outputs == other.outputs
            && self.shares_input == other.shares_input
            && self.given_inputs == other.given_inputs
            && self.nodes().len() == other.nodes().len()
            && self.nodes().zip(other.nodes()).all(|(a, b)| {
                a.op.kind == b.op.kind
                    && a.op.parameters == b.op.parameters
                    && a.op.learning == b.op.learning
                    && a.op.output == b.op.output
                    && a.op.recomputable == b.op.recomputable
                    && self.inputs(a.id) == other.inputs(b.id)
            })
    }
}

impl Block {
    /// The layer that an operator belongs to: for an adapter, the adapted layer; else the operator itself.
    fn layer<'a>(&self, node: Node<'a>) -> Layer<'a> {
        let name = node.op.name.as_str();
        let of_adapter = || name.rsplit_once('.').map_or(name, |(layer, _)| layer);
        let is_adapter = |id: &OpId| self.op(*id).learning == Learning::Adapter;
        let (name, is_before_sum) = match node.op.kind {
            OpKind::Add if self.inputs(node.id).iter().any(is_adapter) => (of_adapter(), false),
            OpKind::Scale { .. } if self.inputs(node.id).iter().any(is_adapter) => {
                (of_adapter(), true)
            }
            _ if node.op.learning == Learning::Adapter => (of_adapter(), true),
            _ => {
                let is_sum = |other: &Node<'_>| {
                    let inputs = self.inputs(other.id);
                    inputs.contains(&node.id) && inputs.iter().any(is_adapter)
                };
                let is_added_to = self.nodes().any(|it| it.op.kind == OpKind::Add && is_sum(&it));
                (name, is_added_to)
            }
        };
        Layer { name, is_before_sum }
    }

    /// True for a linear layer of experts, and for the sum of such a layer and its adapter.
    fn is_of_experts(&self, id: OpId) -> bool {
        match self.op(id).kind {
            OpKind::GroupedLinear { .. } => true,
            OpKind::Add => self.inputs(id).iter().any(|id| self.is_of_experts(*id)),
            _ => false,
        }
    }

    /// Number of experts of the block; `None` without a mixture.
    pub fn num_experts(&self) -> Option<u64> {
        self.nodes().find_map(|it| match it.op.kind {
            OpKind::GroupedLinear { num_experts, .. } => Some(num_experts),
            _ => None,
        })
    }

    /// Number of experts that each token goes to; `None` without a router.
    pub fn top_k(&self) -> Option<u64> {
        self.nodes().find_map(|it| match it.op.kind {
            OpKind::Router { top_k, .. } => Some(top_k),
            _ => None,
        })
    }

    /// True if the block's router corrects the scores for the choice of experts.
    pub fn corrects_router(&self) -> bool {
        let is_router = |node: &Node<'_>| matches!(node.op.kind, OpKind::Router { .. });
        self.nodes().find(is_router).is_some_and(|router| self.inputs(router.id).len() > 1)
    }

    /// True if the block has experts.
    pub fn has_experts(&self) -> bool {
        self.num_experts().is_some()
    }

    /// Number of heads that context-parallel ranks exchange for a recurrence: heads of the keys for a delta rule,
    /// heads of the values for other recurrences; `None` for a recurrence without heads and for other operators.
    ///
    /// # Source
    ///
    /// Megatron-Core, `transformer_config.py` (`linear_num_key_heads`) and `ssm/mamba_context_parallel.py` (`nheads`).
    pub fn state_heads(&self, id: OpId) -> Option<u64> {
        let OpKind::Recurrence { kind, .. } = self.op(id).kind else { return None };
        let slot = match kind {
            Recurrence::DeltaRule | Recurrence::DeltaRuleByFeature => 1,
            Recurrence::StateSpace { .. } | Recurrence::FixedDecay => kind.values(),
            Recurrence::SelectiveScan => return None,
        };
        let heads = &self.op(self.inputs(id)[slot]).output.dims;
        heads.get(2..heads.len() - 1)?.iter().map(|dim| dim.extent.fixed()).product()
    }

    /// True if keys and values are projected from a compressed (latent) representation.
    pub fn has_latents(&self) -> bool {
        self.nodes().any(|it| it.op.name == LATENTS)
    }

    /// Treatment of each operator's output if `modules` are recomputed.
    fn recomputing(&self, modules: RecomputeModules) -> Vec<Recomputable> {
        self.with_surroundings(|op, within| modules.of(op, within))
    }

    /// The module of each operator whose saved tensors may be offloaded.
    pub(super) fn offload_modules(&self) -> Vec<Option<OffloadModule>> {
        self.with_surroundings(OffloadModule::of)
    }

    /// Applies a function to each operator and to the facts about the block that decide which modules the operator
    /// belongs to.
    fn with_surroundings<T>(&self, of: impl Fn(&Op, Within<'_>) -> T) -> Vec<T> {
        let has_router = self.nodes().any(|it| matches!(it.op.kind, OpKind::Router { .. }));
        let has_latents = self.has_latents();
        let of_node = |node: Node<'_>| {
            let reads_experts = self.inputs(node.id).iter().any(|id| self.is_of_experts(*id));
            of(node.op, Within { layer: self.layer(node), reads_experts, has_router, has_latents })
        };
        self.nodes().map(of_node).collect()
    }
}

/// Consecutive equal blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRun {
    /// Class of the blocks.
    pub class: ClassId,
    /// Number of blocks.
    pub count: u32,
}

/// Error of a graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// A chain without blocks.
    #[error("the graph has no operators")]
    Empty,
    /// A module to recompute that no block has.
    #[error("the model has no `{module}` to compute again\nhint: it has {known}")]
    NoModule {
        /// Name of the module.
        module: &'static str,
        /// Modules that the model has.
        known: String,
    },
    /// An operator that does not accept its inputs.
    #[error("operator `{op}`: {problem}")]
    Operator {
        /// Name of the operator.
        op: String,
        /// The mismatch, with the shapes.
        problem: String,
    },
}

/// Parameters of a model, counted once where they are tied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParameterCounts {
    /// All parameters.
    pub total: u64,
    /// Parameters of embedding operators: tokens, positions, types.
    pub embedding: u64,
    /// Parameters of experts that a router chooses among.
    pub routed: u64,
    /// Parameters that one token passes through: all except those of experts that it is not sent to.
    pub active: u64,
    /// Parameters that are trained.
    pub trained: u64,
}

/// A model as a chain of blocks; each distinct block is stored once.
#[derive(Clone, Debug)]
pub struct Graph {
    classes: Vec<Block>,
    chain: Vec<BlockRun>,
    /// Names of the operators of blocks that equal an earlier block in all but names, by position in the chain.
    renamed: BTreeMap<usize, Vec<String>>,
    /// Modules that selective recompute applies to, where these were chosen.
    modules: Option<RecomputeModules>,
    /// Name of the model's class in transformers, where known.
    class: Option<String>,
}

impl Graph {
    /// The chain of `blocks`, each with its repeat count. Equal blocks become one class, wherever they are in the
    /// chain. The first and the last are always classes of their own, as one takes data and the other ends in the
    /// loss.
    ///
    /// # Errors
    ///
    /// [`GraphError::Empty`] if there is no block.
    pub fn new(blocks: impl IntoIterator<Item = (Block, u32)>) -> Result<Self, GraphError> {
        let mut blocks: Vec<(Block, u32)> =
            blocks.into_iter().filter(|(_, count)| *count > 0).collect();
        if let Some((block, count)) = blocks.first_mut().filter(|(_, count)| *count > 1) {
            *count -= 1;
            let first = (block.clone(), 1);
            blocks.insert(0, first);
        }
        if let Some((block, count)) = blocks.last_mut().filter(|(_, count)| *count > 1) {
            *count -= 1;
            let last = (block.clone(), 1);
            blocks.push(last);
        }
        let end = blocks.len().saturating_sub(1);
        let mut classes: Vec<Block> = Vec::new();
        let mut chain: Vec<BlockRun> = Vec::new();
        let mut renamed = BTreeMap::new();
        let mut num_blocks = 0;
        for (position, (block, count)) in blocks.into_iter().enumerate() {
            let known = (1..end).contains(&position).then(|| {
                let between = classes.iter().enumerate().skip(1);
                let mut equal = between.filter(|(_, class)| class.same_structure(&block));
                let (index, class) = equal.next()?;
                let names = |block: &Block| -> Vec<String> {
                    block.nodes().map(|node| node.op.name.clone()).collect()
                };
                let own = names(&block);
                if own != names(class) {
                    renamed.insert(num_blocks, own);
                }
                Some(index)
            });
            num_blocks += count as usize;
            let class = ClassId(known.flatten().unwrap_or_else(|| {
                classes.push(block);
                classes.len() - 1
            }));
            match chain.last_mut() {
                Some(run) if run.class == class => run.count += count,
                _ => chain.push(BlockRun { class, count }),
            }
        }
        if chain.is_empty() {
            return Err(GraphError::Empty);
        }
        Ok(Self { classes, chain, renamed, modules: None, class: None })
    }

    /// A chain of the same structure, in which `make` replaces each class of blocks.
    pub(super) fn try_map<E>(&self, make: impl Fn(&Block) -> Result<Block, E>) -> Result<Self, E> {
        let classes = self.classes.iter().map(make).collect::<Result<_, E>>()?;
        let class = self.class.clone();
        let Self { chain, renamed, modules, .. } = self.clone();
        Ok(Self { classes, chain, renamed, modules, class })
    }

    /// Sets the model's class in transformers.
    #[must_use]
    pub fn of_class(self, class: &str) -> Self {
        Self { class: Some(class.to_owned()), ..self }
    }

    /// Name of the model's class in transformers, where known.
    pub fn class_name(&self) -> Option<&str> {
        self.class.as_deref()
    }

    /// The graph with selective recompute of all operators except attention, exchanges of experts' tokens, and every
    /// other linear layer of a block, beginning with the first; the outputs of these are saved. Matrix products of
    /// experts are recomputed.
    ///
    /// # Source
    ///
    /// torchtitan, `_get_default_save_ops` and `SelectiveAC` in `distributed/activation_checkpoint.py`. It saves every
    /// second `aten.mm`, attention kernels, `all_to_all_single`, and DeepEP's dispatch and combine. Experts are
    /// `_grouped_mm`, and the router's product is not counted.
    #[must_use]
    pub fn keeping_every_other_linear(mut self) -> Self {
        for block in &mut self.classes {
            let mut is_kept = false;
            for op in block.graph.node_weights_mut() {
                op.recomputable = match op.kind {
                    OpKind::Linear { .. } => {
                        is_kept = !is_kept;
                        if is_kept { Recomputable::No } else { Recomputable::Selective }
                    }
                    OpKind::Input | OpKind::Attention { .. } => Recomputable::No,
                    OpKind::Dispatch { .. } | OpKind::Combine => Recomputable::UnlessReceived,
                    _ => Recomputable::Selective,
                };
            }
        }
        self
    }

    /// The graph with selective recompute of these modules in all blocks except the first and the last.
    ///
    /// # Errors
    ///
    /// [`GraphError::NoModule`] where no block has one of them.
    pub fn recomputing(mut self, modules: RecomputeModules) -> Result<Self, GraphError> {
        // Recompute of norms may be asked for where a model has no separate ones: Megatron-Core accepts `layernorm`
        // for dense models too.
        let lacks = |module: &RecomputeModule| {
            *module != RecomputeModule::SeparateNorms && !self.has_module(*module)
        };
        if let Some(module) = modules.iter().find(lacks) {
            let known = RecomputeModule::ALL.into_iter().filter(|module| self.has_module(*module));
            let known: Vec<&str> = known.map(RecomputeModule::name).collect();
            let known = if known.is_empty() { "no modules".to_owned() } else { known.join(", ") };
            return Err(GraphError::NoModule { module: module.name(), known });
        }
        for block in &mut self.classes {
            let all = block.recomputing(modules);
            for (op, recomputable) in block.graph.node_weights_mut().zip(all) {
                op.recomputable = recomputable;
            }
        }
        self.modules = Some(modules);
        Ok(self)
    }

    /// True if a block other than the first and the last has operators of this module.
    pub fn has_module(&self, module: RecomputeModule) -> bool {
        let Some(one) = RecomputeModules::new([module]) else { return false };
        let layers = 1..self.classes.len().saturating_sub(1).max(1);
        let mut all = self.classes[layers].iter().flat_map(|block| block.recomputing(one));
        all.any(|recomputable| recomputable != Recomputable::No)
    }

    /// The modules whose saved tensors may be offloaded, over all blocks except the first and the last; `None` if
    /// there are none.
    pub fn offload_modules(&self) -> Option<OffloadModules> {
        let layers = 1..self.classes.len().saturating_sub(1).max(1);
        OffloadModules::new(self.classes[layers].iter().flat_map(Block::offload_modules).flatten())
    }

    /// The modules that selective recompute applies to, where these were [chosen](Self::recomputing).
    pub fn recomputed_modules(&self) -> Option<RecomputeModules> {
        self.modules
    }

    /// The distinct blocks.
    pub fn classes(&self) -> impl ExactSizeIterator<Item = (ClassId, &Block)> {
        self.classes.iter().enumerate().map(|(index, block)| (ClassId(index), block))
    }

    /// The block of a class.
    pub fn class(&self, class: ClassId) -> &Block {
        &self.classes[class.0]
    }

    /// The chain, from data to loss.
    pub fn chain(&self) -> &[BlockRun] {
        &self.chain
    }

    /// The class of every block, from data to loss.
    pub fn blocks(&self) -> impl Iterator<Item = ClassId> {
        self.chain.iter().flat_map(|run| std::iter::repeat_n(run.class, run.count as usize))
    }

    /// Name of an operator of the block at a position of the chain; it includes the position where another block of
    /// the chain has an operator of the same name.
    pub fn op_name(&self, position: usize, class: ClassId, op: OpId) -> String {
        let block = self.class(class);
        let own = &block.op(op).name;
        if let Some(names) = self.renamed.get(&position) {
            return names[op.index()].clone();
        }
        let all = self.chain.iter().filter(|run| run.class == class);
        let count: u32 = all.map(|run| run.count).sum();
        let is_repeated = count as usize > 1 + self.renamed_of(class);
        if is_repeated { format!("{}.{position}.{own}", block.name()) } else { own.clone() }
    }

    /// Number of blocks of a class whose operators have other names than those of the class.
    fn renamed_of(&self, class: ClassId) -> usize {
        let of_class = self.blocks().enumerate().filter(|(_, it)| *it == class);
        of_class.filter(|(position, _)| self.renamed.contains_key(position)).count()
    }

    /// Number of blocks in the chain.
    pub fn num_blocks(&self) -> usize {
        self.chain.iter().map(|run| run.count as usize).sum()
    }

    /// Number of blocks of each class in the chain.
    pub fn class_counts(&self) -> Vec<u32> {
        let mut counts = vec![0; self.classes.len()];
        for run in &self.chain {
            counts[run.class.0] += run.count;
        }
        counts
    }

    /// True if shapes depend on the sequence length.
    pub fn has_sequence(&self) -> bool {
        let dims = self.classes.iter().flat_map(Block::nodes).flat_map(|node| &node.op.output.dims);
        dims.into_iter().any(|dim| dim.extent == Extent::Sequence)
    }

    /// Parameters, counted once where they are tied.
    pub fn parameter_counts(&self) -> ParameterCounts {
        let mut counts = ParameterCounts::default();
        for (block, count) in self.classes.iter().zip(self.class_counts()) {
            for node in block.nodes() {
                let own: u64 = node.op.own_parameters().map(Parameter::num_elements).sum();
                let own = own * u64::from(count);
                counts.total += own;
                if !node.op.is_frozen() {
                    counts.trained += own;
                }
                match node.op.kind {
                    OpKind::Embedding { .. } => {
                        counts.embedding += own;
                        counts.active += own;
                    }
                    OpKind::GroupedLinear { num_experts, .. } => {
                        counts.routed += own;
                        counts.active += own / num_experts * block.top_k().unwrap_or(num_experts);
                    }
                    // Weights of experts whose output is their input; nothing reads them.
                    OpKind::Dispatch { .. } => {}
                    _ => counts.active += own,
                }
            }
        }
        counts
    }

    /// Names of operators whose parameters are tied, with the names of the operators tied to them.
    pub fn ties(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut ties: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for node in self.classes.iter().flat_map(Block::nodes) {
            for target in node.op.parameters.iter().filter_map(|p| p.tied_to.clone()) {
                ties.entry(target).or_default().insert(node.op.name.clone());
            }
        }
        ties
    }
}
