//! From a block and the placement of its tensors to the work that one rank does.

use std::collections::BTreeMap;

use super::block::{Block, OpId};
use super::kernels;
use super::op::{Keeps, OpKind, Recomputable};
use super::placement::{self, Move, Placement};
use super::sharded::Sharded;
use super::tensor::DimName;
use super::work::{Axis, BlockWork, Exchange, LocalParameters, Pass, Saved, SavedPart, Setting};
use crate::collective::Collective;
use crate::units::Bytes;

impl Block {
    /// Work of one rank for one micro-batch, with the activations that it saves.
    pub fn work(&self, setting: &Setting) -> BlockWork {
        let placements = placement::place(self, setting.sharding, setting.embedding);
        let sharded = Sharded { block: self, placements, setting: *setting };
        let requires_grad = self.requires_grad(setting.takes_data);
        BlockWork {
            kernels: kernels::derive(&sharded, &requires_grad),
            exchanges: sharded.exchanges(&requires_grad),
            saved: sharded.saved(),
            parameters: sharded.parameters(),
            output: self
                .outputs()
                .iter()
                .map(|id| {
                    sharded.bytes(*id, placement::residual(&self.op(*id).output, setting.sharding))
                })
                .sum(),
            dequantised: self
                .nodes()
                .map(|node| sharded.dequantised_bytes(node.id))
                .max()
                .unwrap_or(Bytes::ZERO),
            largest_tensor: self
                .nodes()
                .map(|node| sharded.output_bytes(node.id))
                .max()
                .unwrap_or(Bytes::ZERO),
            selective: self
                .nodes()
                .filter(|node| node.op.recomputable != Recomputable::No)
                .map(|node| node.id)
                .collect(),
        }
    }
}

impl Sharded<'_> {
    fn exchanges(&self, requires_grad: &[bool]) -> Vec<Exchange> {
        let sharding = self.setting.sharding;
        let mut exchanges = Vec::new();
        if sharding.tensor_parallel > 1 {
            self.tensor_exchanges(requires_grad, &mut exchanges);
        }
        for node in self.block.nodes() {
            let mut both = |axis, collective, forward, backward| {
                for (pass, bytes) in [(Pass::Forward, forward), (Pass::InputGrad, backward)] {
                    exchanges.push(Exchange { op: node.id, pass, axis, collective, bytes });
                }
            };
            match node.op.kind {
                OpKind::Dispatch { .. } if sharding.expert_parallel > 1 => {
                    let bytes = self.output_bytes(node.id);
                    both(Axis::Expert, Collective::AllToAll, bytes, bytes);
                }
                OpKind::Combine if sharding.expert_parallel > 1 => {
                    let bytes = self.input_bytes(node.id, 0);
                    both(Axis::Expert, Collective::AllToAll, bytes, bytes);
                }
                // Ring attention: keys and values go once round; in backward they go round again,
                // and their gradients with them (Liu et al. 2023, arXiv 2310.01889).
                OpKind::Attention { .. } | OpKind::AttentionScores | OpKind::AttentionValues
                    if sharding.head_exchange() > 1 =>
                {
                    self.head_exchanges(node.id, &mut exchanges);
                }
                OpKind::Attention { .. } | OpKind::AttentionScores | OpKind::AttentionValues
                    if sharding.context_parallel > 1 =>
                {
                    let slots = 1..self.block.inputs(node.id).len();
                    let circulating: Bytes =
                        slots.map(|slot| self.input_bytes(node.id, slot)).sum();
                    let forward = circulating * u64::from(sharding.context_parallel - 1);
                    both(Axis::Context, Collective::SendReceive, forward, forward * 2);
                }
                _ => {}
            }
        }
        exchanges
    }

    /// All-to-alls of attention: its inputs become all positions of a shard of the heads, and its output all heads of a
    /// shard of the positions, for which the output's consumer waits; in backward the gradients go the reverse way
    /// (Jacobs et al. 2023, arXiv 2309.14509, section 3). Scores are not exchanged.
    fn head_exchanges(&self, op: OpId, exchanges: &mut Vec<Exchange>) {
        let inputs = self.block.inputs(op).iter().zip(0..);
        let is_of_heads =
            |source: OpId| self.block.op(source).output.dim(DimName::Context).is_none();
        let taken: Bytes = inputs
            .filter(|(source, _)| is_of_heads(**source))
            .map(|(_, slot)| self.input_bytes(op, slot))
            .sum();
        let mut both = |op, bytes| {
            for pass in [Pass::Forward, Pass::InputGrad] {
                let (axis, collective) = (Axis::Context, Collective::AllToAll);
                exchanges.push(Exchange { op, pass, axis, collective, bytes });
            }
        };
        both(op, taken);
        if is_of_heads(op) {
            let mut nodes = self.block.nodes();
            let taker = nodes.find(|node| self.block.inputs(node.id).contains(&op));
            both(taker.map_or(op, |taker| taker.id), self.output_bytes(op));
        }
    }

    fn tensor_exchanges(&self, requires_grad: &[bool], exchanges: &mut Vec<Exchange>) {
        for ((source, to), Move { consumer, forward, partial_gradient }) in &self.placements.moves {
            let from = self.placements.outputs[source.index()];
            // The buffer of a move is as large as the whole tensor.
            let bytes = self.bytes(*source, Placement::Whole);
            let is_routed = self.block.op(*source).output.is_routed();
            let axis = if is_routed { Axis::ExpertTensor } else { Axis::Tensor };
            let mut push = |op, pass, collective| {
                exchanges.push(Exchange { op, pass, axis, collective, bytes });
            };
            if let Some(collective) = forward {
                push(*consumer, Pass::Forward, *collective);
                if *collective == Collective::AllGather && self.is_saved(*source, *consumer) {
                    // Only the shard is saved, so the gradient of the weight gathers it again.
                    push(*consumer, Pass::WeightGrad, Collective::AllGather);
                }
            }
            if requires_grad[source.index()]
                && let Some(collective) = from.gradient_moved_back(*to, *partial_gradient)
            {
                push(*consumer, Pass::InputGrad, collective);
            }
        }
        // Outputs of the block move to the placement of the residual stream between blocks.
        for op in self.block.outputs() {
            let tensor = &self.block.op(*op).output;
            let from = self.placements.outputs[op.index()];
            let to = placement::residual(tensor, self.setting.sharding);
            let forward = from.moved_to(to).map(|it| (Pass::Forward, it));
            let back = from.gradient_moved_back(to, false).filter(|_| requires_grad[op.index()]);
            for (pass, collective) in
                forward.into_iter().chain(back.map(|it| (Pass::InputGrad, it)))
            {
                let bytes = self.bytes(*op, Placement::Whole);
                exchanges.push(Exchange { op: *op, pass, axis: Axis::Tensor, collective, bytes });
            }
        }
        for op in &self.placements.sharded_reductions {
            // A sum of squares, or maximum, sum of exponentials and target logit: 4 bytes a row each.
            let rows = self.row_count(*op);
            let (forward, backward) = match self.block.op(*op).kind {
                OpKind::CrossEntropy { .. } => (3, 0),
                _ => (1, 1),
            };
            for (pass, statistics) in [(Pass::Forward, forward), (Pass::InputGrad, backward)] {
                for _ in 0..statistics {
                    exchanges.push(Exchange {
                        op: *op,
                        pass,
                        axis: Axis::Tensor,
                        collective: Collective::AllReduce,
                        bytes: Bytes::new(4 * rows),
                    });
                }
            }
        }
    }

    /// Returns whether `consumer` saves the output of `source` for backward.
    fn is_saved(&self, source: OpId, consumer: OpId) -> bool {
        let kept = self.block.op(consumer).keeps();
        self.block
            .inputs(consumer)
            .iter()
            .enumerate()
            .any(|(slot, input)| *input == source && kept.contains(&Keeps::Input(slot)))
    }

    /// True if the operator's products read inputs that are cast for them: linear layers but for the head, which stays
    /// in 16 bits.
    fn is_cast(&self, op: OpId) -> bool {
        let op = self.block.op(op);
        let is_linear = matches!(op.kind, OpKind::Linear { .. } | OpKind::GroupedLinear { .. });
        is_linear && op.output.dim(DimName::Vocabulary).is_none()
    }

    fn saved(&self) -> Vec<Saved> {
        let mut saved: BTreeMap<(OpId, SavedPart), Bytes> = BTreeMap::new();
        let mut starts: BTreeMap<OpId, Bytes> = BTreeMap::new();
        for node in self.block.nodes() {
            let sources = self.block.inputs(node.id);
            for keeps in node.op.keeps() {
                match keeps {
                    Keeps::Input(0)
                        if node.op.kind == OpKind::Combine
                            && !self.setting.keeps_expert_outputs => {}
                    Keeps::Input(slot) => {
                        let source = sources[slot];
                        let bytes =
                            self.kept_bytes(source, self.placements.wanted[node.id.index()][slot]);
                        let is_linear = slot == 0 && self.is_cast(node.id);
                        let (part, bytes) = match self.setting.kept_bits.filter(|_| is_linear) {
                            Some(bits) => {
                                let elements = bytes.get() / self.setting.compute_bytes;
                                (SavedPart::Cast, Bytes::new(elements * bits / 8))
                            }
                            None => (SavedPart::Value, bytes),
                        };
                        saved.insert((source, part), bytes);
                    }
                    Keeps::Output => {
                        saved.insert((node.id, SavedPart::Value), self.output_bytes(node.id));
                        let is_attention = matches!(node.op.kind, OpKind::Attention { .. });
                        if is_attention && self.setting.sharding.head_exchange() > 1 {
                            // Saved once as computed, and once as exchanged for its consumer.
                            let computed = (node.id, SavedPart::Exchanged);
                            saved.insert(computed, self.output_bytes(node.id));
                        }
                    }
                    Keeps::Softmax => {
                        let logits =
                            self.input_bytes(node.id, 0).get() / self.setting.compute_bytes;
                        saved.insert((node.id, SavedPart::Value), Bytes::new(4 * logits));
                    }
                    Keeps::Mask => {
                        let placement = self.placements.outputs[node.id.index()];
                        let mask = Bytes::new(self.elements(&node.op.output, placement));
                        saved.insert((node.id, SavedPart::Mask), mask);
                    }
                    Keeps::Indices => {
                        let placement = self.placements.outputs[node.id.index()];
                        let unit = node.op.output.dim(DimName::Hidden);
                        let width = unit
                            .map_or(1, |dim| self.local_extent(&node.op.output, dim, placement));
                        let indices = self.elements(&node.op.output, placement) / width;
                        saved.insert((node.id, SavedPart::Statistics), Bytes::new(8 * indices));
                    }
                    Keeps::Statistics(each) => {
                        let rows = Bytes::new(4 * each * self.row_count(node.id));
                        saved.insert((node.id, SavedPart::Statistics), rows);
                    }
                }
            }
            // Inputs of recomputed regions must be saved.
            if node.op.recomputable != Recomputable::No {
                for (slot, source) in sources.iter().enumerate() {
                    if self.block.op(*source).recomputable != Recomputable::Selective {
                        let bytes =
                            self.kept_bytes(*source, self.placements.wanted[node.id.index()][slot]);
                        starts.insert(*source, bytes);
                    }
                }
            }
        }
        let starts = starts.into_iter().map(|(op, bytes)| ((op, SavedPart::Value), bytes));
        let starts: Vec<_> = starts.filter(|(key, _)| !saved.contains_key(key)).collect();
        let always = saved.into_iter().map(|(key, bytes)| (key, bytes, false));
        always
            .chain(starts.into_iter().map(|(key, bytes)| (key, bytes, true)))
            .map(|((op, part), bytes, is_start)| Saved {
                op,
                part,
                bytes,
                is_start,
                // Only the output of a region's end is saved.
                selective: match self.block.op(op).recomputable {
                    Recomputable::No => false,
                    Recomputable::Selective => true,
                    Recomputable::SelectiveEnd => {
                        !matches!(part, SavedPart::Value | SavedPart::Cast)
                    }
                },
                block_input: self.block.op(op).kind == OpKind::Input,
            })
            .collect()
    }

    /// Bytes saved of a tensor that is wanted at `to`: in its own placement if it is gathered for use, in that of its
    /// use otherwise.
    fn kept_bytes(&self, source: OpId, to: Placement) -> Bytes {
        let from = self.placements.outputs[source.index()];
        let kept = if matches!(from, Placement::Shard(_)) { from } else { to };
        self.bytes(source, kept)
    }

    fn parameters(&self) -> LocalParameters {
        let sharding = &self.setting.sharding;
        let mut local = LocalParameters::default();
        for node in self.block.nodes() {
            let is_expert = matches!(node.op.kind, OpKind::GroupedLinear { .. });
            let (held, partial, ranks) = if is_expert {
                let ranks = sharding.expert_tensor_parallel;
                (&mut local.expert, &mut local.expert_partial_gradients, ranks)
            } else {
                (&mut local.dense, &mut local.partial_gradients, sharding.tensor_parallel)
            };
            let output = self.placements.outputs[node.id.index()];
            let sees_part = ranks > 1 && matches!(output, Placement::Shard(_));
            for parameter in &node.op.parameters {
                let elements = self.parameter_elements(node.op, parameter);
                if node.op.is_frozen() {
                    let bytes = self.frozen_bytes(node.op, parameter);
                    local.frozen.add(bytes, is_expert, parameter.tied_to.is_some());
                } else if parameter.tied_to.is_some() {
                    local.tied += elements;
                } else {
                    *held += elements;
                    match self.cut(node.op, parameter).tensor {
                        None if sees_part => *partial += elements,
                        Some(dim) => {
                            let copies = parameter.num_copies(dim, ranks);
                            if copies > 1 {
                                local.copied += elements;
                                local.num_copies = copies;
                            }
                        }
                        None => {}
                    }
                }
            }
        }
        local
    }
}
