//! A block of the model's graph, ready to run: where its tensors lie, and what is kept of them.

use std::collections::{BTreeMap, BTreeSet};

use ir::graph::{
    Block, BlockRecompute, Keeps, Op, OpId, OpKind, Placement, Placements, Recomputable, Sharding,
};

/// A tensor of a block at one of the places where it is wanted.
pub(crate) type Key = (OpId, Placement);

/// A block with what follows from the layout.
#[derive(Debug)]
pub(crate) struct BlockProgram {
    pub(crate) block: Block,
    /// For each operator, what it takes.
    pub(crate) inputs: Vec<Vec<OpId>>,
    pub(crate) placements: Placements,
    /// For each operator, whether a gradient of its output is needed.
    pub(crate) requires_grad: Vec<bool>,
    /// What is kept from forward to backward.
    kept: BTreeSet<Key>,
    /// What of it the gradients of parameters need.
    pub(crate) kept_for_weight_grad: BTreeSet<Key>,
    /// Operators that run again in backward, and keep nothing beside tensors from forward.
    again: BTreeSet<OpId>,
    /// Whether attention is of exchanged heads.
    exchanges_heads: bool,
    /// Linear layers whose output nothing but a sum of two takes, where it is: that sum, and its slot.
    summands: BTreeMap<OpId, (OpId, usize)>,
}

impl BlockProgram {
    /// The program of `block`; the first of a model takes data, and no gradient leaves it.
    pub(crate) fn new(
        block: &Block,
        sharding: Sharding,
        takes_data: bool,
        recompute: BlockRecompute,
    ) -> Self {
        let inputs: Vec<Vec<OpId>> =
            block.nodes().map(|node| block.inputs(node.id).to_vec()).collect();
        let placements = block.placements(sharding);
        let requires_grad = block.requires_grad(takes_data);
        let mut program = Self {
            block: block.clone(),
            inputs,
            placements,
            requires_grad,
            kept: BTreeSet::new(),
            kept_for_weight_grad: BTreeSet::new(),
            again: BTreeSet::new(),
            exchanges_heads: sharding.head_exchange() > 1,
            summands: BTreeMap::new(),
        };
        if recompute == BlockRecompute::Selective {
            let again = block.nodes().filter(|node| node.op.recomputable != Recomputable::No);
            program.again = again.map(|node| node.id).collect();
        }
        program.kept = program.kept(recompute);
        program.kept_for_weight_grad = program.kept_for_weight_grad();
        program.summands = program.summands(sharding);
        program
    }

    /// Whether a backend that adds products to what is there need not compute `id` by itself: the sum that takes it
    /// does.
    pub(crate) fn is_summand(&self, id: OpId) -> bool {
        self.summands.contains_key(&id)
    }

    /// The linear layer that the sum `id` computes where products are added to what is there, and its slot.
    pub(crate) fn product_of_sum(&self, id: OpId) -> Option<(OpId, usize)> {
        let of_sum = |(linear, (sum, slot)): (&OpId, &(OpId, usize))| {
            (*sum == id).then_some((*linear, *slot))
        };
        self.summands.iter().find_map(of_sum)
    }

    pub(crate) fn op(&self, id: OpId) -> &Op {
        self.block.op(id)
    }

    /// Whether `key` is kept from forward to backward.
    pub(crate) fn keeps(&self, key: &Key) -> bool {
        self.kept.contains(key)
    }

    /// Whether `id` runs again in backward.
    pub(crate) fn runs_again(&self, id: OpId) -> bool {
        self.again.contains(&id)
    }

    /// Where the tensor that `id` takes at `slot` is kept: where it was made if it is gathered for
    /// use, where it is used otherwise.
    pub(crate) fn kept_key(&self, id: OpId, slot: usize) -> Key {
        let source = self.inputs[id.index()][slot];
        let from = self.placements.outputs[source.index()];
        let to = self.placements.wanted[id.index()][slot];
        (source, if matches!(from, Placement::Shard(_)) { from } else { to })
    }

    fn kept(&self, recompute: BlockRecompute) -> BTreeSet<Key> {
        let mut kept = BTreeSet::new();
        for node in self.block.nodes() {
            // What attention keeps of exchanged heads it keeps beside the tensors.
            if self.exchanges_heads && matches!(node.op.kind, OpKind::Attention { .. }) {
                continue;
            }
            for keeps in node.op.keeps() {
                match keeps {
                    // The rows that came back are kept beside the tensors, where their tokens are.
                    Keeps::Input(0) if node.op.kind == OpKind::Combine => false,
                    Keeps::Input(slot) => kept.insert(self.kept_key(node.id, slot)),
                    Keeps::Output => {
                        kept.insert((node.id, self.placements.outputs[node.id.index()]))
                    }
                    // These are kept beside the tensors.
                    Keeps::Softmax | Keeps::Mask | Keeps::Indices | Keeps::Statistics(_) => false,
                };
            }
        }
        if recompute == BlockRecompute::Selective {
            kept.retain(|(id, _)| self.op(*id).recomputable != Recomputable::Selective);
            // What is computed again starts from what is there.
            for node in self.block.nodes() {
                if node.op.recomputable == Recomputable::No {
                    continue;
                }
                for (slot, source) in self.inputs[node.id.index()].iter().enumerate() {
                    if self.op(*source).recomputable != Recomputable::Selective {
                        kept.insert(self.kept_key(node.id, slot));
                    }
                }
            }
        }
        kept
    }

    fn summands(&self, sharding: Sharding) -> BTreeMap<OpId, (OpId, usize)> {
        // What one rank has a summand of it has whole.
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
        let takes = trains.filter(|node| !self.inputs[node.id.index()].is_empty());
        let mut needed: BTreeSet<Key> = takes.map(|node| self.kept_key(node.id, 0)).collect();
        // What selective recompute dropped is made from what it starts from.
        for node in self.block.nodes() {
            if node.op.recomputable == Recomputable::Selective {
                let slots = 0..self.inputs[node.id.index()].len();
                needed.extend(slots.map(|slot| self.kept_key(node.id, slot)));
            }
        }
        needed
    }
}
