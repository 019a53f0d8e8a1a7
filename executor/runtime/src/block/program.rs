//! A block of the model's graph, ready to run: placements of its tensors, and the activations that it saves.

use std::collections::{BTreeMap, BTreeSet};

use ir::graph::{
    Block, BlockRecompute, EmbeddingTable, Keeps, Op, OpId, OpKind, Placement, Placements,
    Recomputable, Sharding,
};

/// A tensor of a block in one of the placements in which it is taken.
pub(crate) type Key = (OpId, Placement);

/// A block with the placements and saved tensors that follow from the layout.
#[derive(Debug)]
pub(crate) struct BlockProgram {
    pub(crate) block: Block,
    /// For each operator, the sources of its inputs.
    pub(crate) inputs: Vec<Vec<OpId>>,
    pub(crate) placements: Placements,
    /// For each operator, true where a gradient of its output is needed.
    pub(crate) requires_grad: Vec<bool>,
    /// Tensors that are saved from forward to backward.
    kept: BTreeSet<Key>,
    /// Saved tensors that weight gradients need.
    pub(crate) kept_for_weight_grad: BTreeSet<Key>,
    /// Operators that backward recomputes, whose extras are not saved from forward.
    recomputed: BTreeSet<OpId>,
    /// Number of ranks over which experts are spread.
    expert_parallel: u32,
    /// True where attention exchanges heads between context-parallel ranks.
    exchanges_heads: bool,
    /// True where recurrences, with the convolutions before them, exchange heads between context-parallel ranks.
    exchanges_recurrences: bool,
    /// For each linear layer whose output has a single use, as an input of a sum of two in the same placement: that
    /// sum, and the slot of the input.
    summands: BTreeMap<OpId, (OpId, usize)>,
}

impl BlockProgram {
    /// The program of `block`; the first block of a model takes data, so no gradient leaves it.
    pub(crate) fn new(
        block: &Block,
        sharding: Sharding,
        reads_data: bool,
        recompute: BlockRecompute,
    ) -> Self {
        let inputs: Vec<Vec<OpId>> =
            block.nodes().map(|node| block.inputs(node.id).to_vec()).collect();
        let placements = block.placements(sharding, EmbeddingTable::Part).clone();
        let requires_grad = block.requires_grad(reads_data);
        let mut program = Self {
            block: block.clone(),
            inputs,
            placements,
            requires_grad,
            kept: BTreeSet::new(),
            kept_for_weight_grad: BTreeSet::new(),
            recomputed: BTreeSet::new(),
            expert_parallel: sharding.expert_parallel,
            exchanges_heads: sharding.head_exchange() > 1,
            exchanges_recurrences: sharding.context_parallel > 1,
            summands: BTreeMap::new(),
        };
        if recompute == BlockRecompute::Selective {
            let all = block.nodes().map(|node| node.id);
            program.recomputed =
                all.filter(|id| program.recomputable(*id) != Recomputable::No).collect();
        }
        program.kept = program.kept(recompute);
        program.kept_for_weight_grad = program.kept_for_weight_grad();
        program.summands = program.summands(sharding);
        program
    }

    /// Returns whether linear layer `id` is computed as part of the sum that takes it, on backends whose products add
    /// to an array.
    pub(crate) fn is_summand(&self, id: OpId) -> bool {
        self.summands.contains_key(&id)
    }

    /// The linear layer that is computed as part of sum `id` where a backend's products add to an array, and its slot.
    pub(crate) fn product_of_sum(&self, id: OpId) -> Option<(OpId, usize)> {
        let of_sum = |(linear, (sum, slot)): (&OpId, &(OpId, usize))| {
            (*sum == id).then_some((*linear, *slot))
        };
        self.summands.iter().find_map(of_sum)
    }

    pub(crate) fn op(&self, id: OpId) -> &Op {
        self.block.op(id)
    }

    /// Returns whether `key` is saved from forward to backward.
    pub(crate) fn keeps(&self, key: &Key) -> bool {
        self.kept.contains(key)
    }

    /// Returns whether backward recomputes `id`.
    pub(crate) fn is_recomputed(&self, id: OpId) -> bool {
        self.recomputed.contains(&id)
    }

    /// The key under which the input of `id` at `slot` is saved: in the source's placement if it is a shard, which is
    /// gathered for use; otherwise in the placement of its use.
    pub(crate) fn kept_key(&self, id: OpId, slot: usize) -> Key {
        let source = self.inputs[id.index()][slot];
        let from = self.placements.outputs[source.index()];
        let to = self.placements.wanted[id.index()][slot];
        (source, if matches!(from, Placement::Shard(_)) { from } else { to })
    }

    /// Returns whether recurrence or convolution `id` exchanges heads for positions of its input at `slot`. A
    /// recurrence does not exchange the outputs of convolutions, whose inputs were exchanged before.
    pub(crate) fn exchanges_input(&self, id: OpId, slot: usize) -> bool {
        let source = self.inputs[id.index()][slot];
        let kinds = [id, source].map(|op| &self.op(op).kind);
        let is_here = match kinds {
            [OpKind::Recurrence { .. }, OpKind::ShortConvolution { .. }] => false,
            [OpKind::Recurrence { .. } | OpKind::ShortConvolution { .. }, _] => true,
            _ => false,
        };
        is_here && self.exchanges_recurrences
    }

    fn kept(&self, recompute: BlockRecompute) -> BTreeSet<Key> {
        let mut kept = BTreeSet::new();
        for node in self.block.nodes() {
            // Attention of exchanged heads saves its tensors as an extra.
            if self.exchanges_heads && matches!(node.op.kind, OpKind::Attention { .. }) {
                continue;
            }
            for keeps in node.op.keeps() {
                match keeps {
                    // The rows that came back are saved as an extra, on the rank of their tokens.
                    Keeps::Input(0) if node.op.kind == OpKind::Combine => false,
                    Keeps::Input(slot) if self.block.recomputes_input(node.id, slot) => false,
                    // Saved as an extra, as exchanged.
                    Keeps::Input(slot) if self.exchanges_input(node.id, slot) => false,
                    Keeps::Input(slot) => kept.insert(self.kept_key(node.id, slot)),
                    Keeps::Output => {
                        kept.insert((node.id, self.placements.outputs[node.id.index()]))
                    }
                    // Saved as extras.
                    Keeps::Softmax | Keeps::Mask | Keeps::Indices | Keeps::Statistics(_) => false,
                };
            }
        }
        if recompute == BlockRecompute::Selective {
            kept.retain(|(id, _)| self.recomputable(*id) != Recomputable::Selective);
            // Inputs from which recomputation starts are saved.
            for node in self.block.nodes() {
                if self.recomputable(node.id) == Recomputable::No {
                    continue;
                }
                for (slot, source) in self.inputs[node.id.index()].iter().enumerate() {
                    if self.recomputable(*source) != Recomputable::Selective {
                        kept.insert(self.kept_key(node.id, slot));
                    }
                }
            }
        }
        kept
    }

    /// Treatment of an operator's output by selective recompute.
    fn recomputable(&self, op: OpId) -> Recomputable {
        self.op(op).recomputable.among(self.expert_parallel)
    }

    fn summands(&self, sharding: Sharding) -> BTreeMap<OpId, (OpId, usize)> {
        // With a single tensor-parallel rank, partial sums are whole.
        let is_alone = sharding.tensor_parallel == 1;
        let is_there = |from: Placement, to: Placement| {
            if from == Placement::Partial { is_alone && to == Placement::Whole } else { from == to }
        };
        let mut summands = BTreeMap::new();
        for sum in self.block.nodes().filter(|node| node.op.kind == OpKind::Add) {
            let sources = &self.inputs[sum.id.index()];
            let is_fit = |slot: usize| {
                let source = sources[slot];
                let key = (source, self.placements.outputs[source.index()]);
                let uses = self.inputs.iter().flatten().chain(self.block.outputs());
                let op = self.op(source);
                matches!(op.kind, OpKind::Linear { .. })
                    && op.parameters.len() == 1
                    && uses.filter(|used| **used == source).count() == 1
                    && is_there(key.1, self.placements.wanted[sum.id.index()][slot])
                    && !self.keeps(&key)
            };
            let is_of_two = sources.len() == 2;
            if let Some(slot) = (0..2).find(|slot| is_of_two && is_fit(*slot)) {
                summands.insert(sources[slot], (sum.id, slot));
            }
        }
        summands
    }

    fn kept_for_weight_grad(&self) -> BTreeSet<Key> {
        let trains = self.block.nodes().filter(|node| node.op.is_trained());
        // Gradients of a recurrence's parameters are computed together with the gradients of its inputs.
        let trained = trains.filter(|node| {
            let is_recurrence = matches!(node.op.kind, OpKind::Recurrence { .. });
            !is_recurrence && !self.inputs[node.id.index()].is_empty()
        });
        let mut needed: BTreeSet<Key> = trained.map(|node| self.kept_key(node.id, 0)).collect();
        // Tensors that selective recompute dropped are recomputed from these inputs.
        for node in self.block.nodes() {
            if self.recomputable(node.id) == Recomputable::Selective {
                let slots = 0..self.inputs[node.id.index()].len();
                needed.extend(slots.map(|slot| self.kept_key(node.id, slot)));
            }
        }
        needed
    }
}
