//! Computes the work of one rank from a block and the placement of its tensors.

use std::collections::BTreeMap;

use super::block::{Block, OpId};
use super::keeps::Keeps;
use super::kernels;
use super::op::{NormKind, Op, OpKind, Recurrence};
use super::parameter::Parameter;
use super::place::between_blocks;
use super::placement::{Move, Placement};
use super::recomputable::Recomputable;
use super::sharded::Sharded;
use super::tensor::{DimName, Extent};
use super::work::{
    Axis, BlockWork, Exchange, LocalParameters, Pass, RoutedTokens, Saved, SavedPart, ShapeCounts,
    ShardContext,
};
use crate::collective::Collective;
use crate::units::Bytes;

impl Block {
    /// Work of one rank for one micro-batch, with the activations that it saves. Time is that of the rank with the
    /// busiest experts, and of the mean padded sequence; memory is that of the rank that gets the most tokens over all
    /// layers, and of the longest sequence.
    pub fn work(&self, setting: &ShardContext) -> BlockWork {
        let with = |busiest: u64, tokens: u64| ShardContext {
            routed: RoutedTokens { busiest, ..setting.routed },
            sizes: setting.sizes.with_tokens(tokens),
            ..*setting
        };
        let RoutedTokens { busiest, fullest } = setting.routed;
        let whole = Extent::Sequence.resolve(setting.sizes);
        let (padded, longest) =
            setting.documents.map_or((whole, whole), |it| (it.padded, it.longest));
        let placements = self.placements(setting.sharding, setting.embedding);
        let requires_grad = self.requires_grad(setting.reads_data);
        let most = Sharded { block: self, placements, setting: with(fullest, longest) };
        let saved = most.saved();
        let gradients = most.most_gradients(&requires_grad, &saved);
        let sharded = Sharded { setting: with(busiest, padded), ..most };
        BlockWork {
            gradients,
            kernels: kernels::derive(&sharded, &requires_grad),
            exchanges: sharded.exchanges(&requires_grad),
            saved,
            parameters: sharded.parameters(),
            output: self
                .outputs()
                .iter()
                .map(|id| {
                    let output = &self.op(*id).output;
                    sharded.bytes(*id, between_blocks(output, setting.sharding))
                })
                .sum(),
            dequantised: self
                .nodes()
                .map(|node| sharded.dequantised_bytes(node.id))
                .max()
                .unwrap_or(Bytes::ZERO),
            selective: self
                .nodes()
                .filter(|node| sharded.recomputable(node.id) != Recomputable::No)
                .map(|node| node.id)
                .collect(),
            head_chunks: sharded.head_chunks(),
        }
    }
}

impl Block {
    /// The collectives of all passes, as in [`Self::work`].
    pub fn exchanges(&self, setting: &ShardContext) -> Vec<Exchange> {
        let whole = Extent::Sequence.resolve(setting.sizes);
        let tokens = setting.documents.map_or(whole, |it| it.padded);
        let placements = self.placements(setting.sharding, setting.embedding);
        let setting = ShardContext { sizes: setting.sizes.with_tokens(tokens), ..*setting };
        let requires_grad = self.requires_grad(setting.reads_data);
        Sharded { block: self, placements, setting }.exchanges(&requires_grad)
    }

    /// Returns whether backward recomputes the input of `op` at `slot`: this holds for outputs of convolutions before
    /// a scan, because `mamba_split_conv1d_scan_combined` of mamba's `ssd_combined.py` saves only the inputs of the
    /// convolutions.
    pub fn recomputes_input(&self, op: OpId, slot: usize) -> bool {
        let OpKind::Recurrence { kind, .. } = self.op(op).kind else { return false };
        let is_scan = matches!(kind, Recurrence::StateSpace { .. } | Recurrence::SelectiveScan);
        let source = self.inputs(op)[slot];
        is_scan && matches!(self.op(source).kind, OpKind::ShortConvolution { .. })
    }
}

/// A saved tensor, while the operators that save it are visited.
#[derive(Clone, Copy, Debug)]
struct SavedTensor {
    bytes: Bytes,
    /// The first operator in forward order that saves the tensor: backward frees it after this operator.
    until: OpId,
    /// True if every operator that saves the tensor offloads it.
    is_offloadable: bool,
}

impl SavedTensor {
    const fn until(op: OpId) -> Self {
        Self { bytes: Bytes::ZERO, until: op, is_offloadable: true }
    }

    /// Adds an operator that saves it.
    const fn add(&mut self, bytes: Bytes, is_offloaded: bool) {
        self.bytes = bytes;
        self.is_offloadable &= is_offloaded;
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
                // Each rank has all positions of some heads, whichever kind attention uses (Megatron-Core,
                // `mamba_context_parallel.py`).
                OpKind::Recurrence { .. } if sharding.context_parallel > 1 => {
                    self.head_exchanges(node.id, &mut exchanges);
                }
                OpKind::Attention { .. } | OpKind::AttentionScores | OpKind::AttentionValues
                    if sharding.head_exchange() > 1 =>
                {
                    self.head_exchanges(node.id, &mut exchanges);
                }
                // Ring attention: keys and values make one round in forward; in backward they make another, with their
                // gradients (Liu et al. 2023, arXiv 2310.01889).
                OpKind::Attention { .. } | OpKind::AttentionScores | OpKind::AttentionValues
                    if sharding.context_parallel > 1 =>
                {
                    let sources = self.block.inputs(node.id);
                    let slots = match node.op.kind {
                        OpKind::Attention { mask, .. } => 1..mask.inputs(),
                        _ => 1..sources.len(),
                    };
                    // Keys that are also the values, or contain them, make the round once.
                    let has = |key: OpId, value: OpId| {
                        let is_joined = matches!(self.block.op(key).kind, OpKind::Concat { .. });
                        key == value || is_joined && self.block.inputs(key).contains(&value)
                    };
                    let is_first =
                        |slot: &usize| !sources[1..*slot].iter().any(|it| has(*it, sources[*slot]));
                    let circulating: Bytes =
                        slots.filter(is_first).map(|slot| self.input_bytes(node.id, slot)).sum();
                    let forward = circulating * u64::from(sharding.context_parallel - 1);
                    both(Axis::Context, Collective::SendReceive, forward, forward * 2);
                }
                _ => {}
            }
        }
        exchanges
    }

    /// All-to-alls of attention. Its inputs become all positions of a shard of the heads; its output becomes all heads
    /// of a shard of the positions, and the output's consumer waits for that. In backward the gradients go the reverse
    /// way (Jacobs et al. 2023, arXiv 2309.14509, section 3). Scores are not exchanged.
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
                let is_gathered_twice = *collective == Collective::AllGather
                    && !self.setting.keeps_gathered
                    && self.is_saved(*source, *consumer);
                if is_gathered_twice {
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
            let to = between_blocks(tensor, self.setting.sharding);
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
            // A sum of squares, or the maximum, the sum of exponentials and the target logit: 4 bytes per row each.
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

    /// True if the operator's matrix products read inputs that were cast for them: linear layers except the head,
    /// which stays in 16 bits.
    fn is_cast(&self, op: OpId) -> bool {
        let op = self.block.op(op);
        let is_linear = matches!(op.kind, OpKind::Linear { .. } | OpKind::GroupedLinear { .. });
        is_linear && op.output.dim(DimName::Vocabulary).is_none()
    }

    /// True if the kernel of a scan runs this operator after it, gate or norm, and computes it again in backward.
    fn is_in_scan(&self, op: OpId) -> bool {
        let inputs = self.block.inputs(op);
        self.setting.scans_to_projection
            && match self.block.op(op).kind {
                OpKind::GatedActivation(_) => matches!(
                    self.block.op(inputs[1]).kind,
                    OpKind::Recurrence { kind: Recurrence::StateSpace { .. }, .. }
                ),
                OpKind::Norm { .. } => self.is_in_scan(inputs[0]),
                _ => false,
            }
    }

    /// True if an operator does not save an input that its gradient needs: experts' outputs where the framework does
    /// not save them, norms' inputs that eager PyTorch casts, and what a scan's kernel recomputes.
    fn is_left_out(&self, op: OpId, slot: usize) -> bool {
        let kind = &self.block.op(op).kind;
        slot == 0 && *kind == OpKind::Combine && !self.setting.keeps_expert_outputs
            || slot == 0 && self.setting.is_eager && is_rms_norm(kind)
            || self.block.recomputes_input(op, slot)
            || slot == 0 && self.is_in_scan(self.block.inputs(op)[0])
    }

    fn saved(&self) -> Vec<Saved> {
        let is_offloaded = self.is_offloaded();
        let mut saved: BTreeMap<(OpId, SavedPart), SavedTensor> = BTreeMap::new();
        let mut starts: BTreeMap<OpId, SavedTensor> = BTreeMap::new();
        for node in self.block.nodes() {
            let sources = self.block.inputs(node.id);
            let mut save = |op: OpId, part: SavedPart, bytes: Bytes| {
                let of = saved.entry((op, part)).or_insert(SavedTensor::until(node.id));
                of.add(bytes, is_offloaded[node.id.index()]);
            };
            for keeps in node.op.keeps() {
                match keeps {
                    Keeps::Input(slot)
                        if self.is_left_out(node.id, slot) || self.is_weight(sources[slot]) => {}
                    Keeps::Input(slot) => {
                        let bytes = self.kept_bytes(node.id, slot);
                        let source = self.block.viewed(sources[slot]);
                        let is_linear = slot == 0 && self.is_cast(node.id);
                        let (part, bytes) = match self.setting.kept_bits.filter(|_| is_linear) {
                            Some(bits) => {
                                let elements = bytes.get() / self.setting.compute_bytes;
                                (SavedPart::Cast, Bytes::new(elements * bits / 8))
                            }
                            None => (SavedPart::Value, bytes),
                        };
                        save(source, part, bytes);
                    }
                    Keeps::Output => {
                        save(node.id, SavedPart::Value, self.output_bytes(node.id));
                        let is_attention = matches!(node.op.kind, OpKind::Attention { .. });
                        if is_attention && self.setting.sharding.head_exchange() > 1 {
                            // Saved once as computed, and once as exchanged for its consumer.
                            save(node.id, SavedPart::Exchanged, self.output_bytes(node.id));
                        }
                    }
                    Keeps::Softmax => {
                        let of_logit =
                            self.setting.loss.gradient.saved_bytes(self.setting.compute_bytes);
                        let logits =
                            self.input_bytes(node.id, 0).get() / self.setting.compute_bytes;
                        save(node.id, SavedPart::Value, Bytes::new(of_logit * logits));
                    }
                    Keeps::Mask => {
                        let mask = Bytes::new(self.output_elements(node.id));
                        save(node.id, SavedPart::Mask, mask);
                    }
                    Keeps::Indices => {
                        let placement = self.placements.outputs[node.id.index()];
                        let unit = node.op.output.dim(DimName::Hidden);
                        let width = unit
                            .map_or(1, |dim| self.local_extent(&node.op.output, dim, placement));
                        let indices = self.output_elements(node.id) / width;
                        save(node.id, SavedPart::Statistics, Bytes::new(8 * indices));
                    }
                    Keeps::Statistics(each) => {
                        let rows = Bytes::new(4 * each * self.row_count(node.id));
                        save(node.id, SavedPart::Statistics, rows);
                    }
                }
            }
            let between = self.saved_between(node.id);
            if between > Bytes::ZERO {
                save(node.id, SavedPart::Between, between);
            }
            // The router's weights multiply the outputs of the experts' activation functions. For gated activations
            // this is one kernel, which saves only its inputs (Megatron-Core's `weighted_bias_swiglu`); for others it
            // is a separate product, which saves both.
            let is_of_experts = node.op.output.is_routed() && !self.setting.keeps_expert_outputs;
            if is_of_experts && matches!(node.op.kind, OpKind::Activation(_)) {
                save(node.id, SavedPart::Unweighted, self.output_bytes(node.id));
            }
            // Inputs of recomputed regions must be saved.
            if self.recomputable(node.id) != Recomputable::No {
                for (slot, source) in sources.iter().enumerate() {
                    let is_kept = |op: OpId| self.recomputable(op) != Recomputable::Selective;
                    if is_kept(*source) && !self.is_weight(*source) {
                        let bytes = self.kept_bytes(node.id, slot);
                        let whole = Some(self.block.viewed(*source)).filter(|it| is_kept(*it));
                        let start = whole.unwrap_or(*source);
                        let of = starts.entry(start).or_insert(SavedTensor::until(node.id));
                        of.add(bytes, is_offloaded[node.id.index()]);
                    }
                }
            }
        }
        let starts = starts.into_iter().map(|(op, it)| ((op, SavedPart::Value), it));
        let starts: Vec<_> = starts.filter(|(key, _)| !saved.contains_key(key)).collect();
        let always = saved.into_iter().map(|(key, it)| (key, it, false));
        let all = always.chain(starts.into_iter().map(|(key, it)| (key, it, true)));
        all.map(|(key, tensor, is_start)| self.saved_tensor(key, tensor, is_start)).collect()
    }

    fn saved_tensor(
        &self,
        (op, part): (OpId, SavedPart),
        SavedTensor { bytes, until, is_offloadable }: SavedTensor,
        is_start: bool,
    ) -> Saved {
        let block_input = self.block.op(op).kind == OpKind::Input;
        let is_value = part == SavedPart::Value;
        Saved {
            op,
            part,
            bytes,
            until,
            is_offloadable,
            is_start,
            // Only the output of a region's end is saved.
            selective: match self.recomputable(op) {
                Recomputable::No => false,
                Recomputable::Selective | Recomputable::UnlessReceived => true,
                Recomputable::SelectiveEnd => !is_value && part != SavedPart::Cast,
            },
            block_input,
            is_shared: self.block.shares_input()
                && block_input
                && !self.block.is_data(op)
                && is_value
                && !is_start,
        }
    }

    /// Treatment of an operator's output on ranks of this sharding.
    fn recomputable(&self, op: OpId) -> Recomputable {
        self.block.op(op).recomputable.among(self.setting.sharding.expert_parallel)
    }

    /// For each operator, whether the tensors that it saves are offloaded. Where modules were chosen, only those of
    /// these modules are.
    fn is_offloaded(&self) -> Vec<bool> {
        let Some(modules) = self.setting.offloaded else {
            return vec![true; self.block.nodes().len()];
        };
        let all = self.block.offload_modules().into_iter();
        all.map(|module| module.is_some_and(|it| modules.contains(it))).collect()
    }

    /// Bytes that an operator saves in addition to its inputs and outputs.
    fn saved_between(&self, op: OpId) -> Bytes {
        match self.block.op(op).kind {
            OpKind::Recurrence { kind, chunk } => self.saved_by_recurrence(op, kind, chunk),
            _ if self.is_in_scan(op) => Bytes::ZERO,
            OpKind::GatedActivation(_) if self.setting.keeps_gates => self.output_bytes(op),
            _ if self.setting.is_eager => self.saved_by_eager(op),
            _ => Bytes::ZERO,
        }
    }

    /// Bytes that the functions of an operator save, in addition to its inputs and outputs. A root mean square norm
    /// saves its input cast to fp32 and the normalised input; attention's softmax, its output in fp32, before the
    /// cast. Models without rotary embeddings do not cast; the cast of OPT and BLOOM is not counted.
    ///
    /// # Source
    ///
    /// `LlamaRMSNorm` and `eager_attention_forward` of transformers' `modeling_llama.py`, the last also of
    /// `modeling_gpt2.py`, `modeling_bert.py` and `modeling_t5.py`; `GemmaRMSNorm` of `modeling_gemma.py`; and the
    /// tensors that PyTorch's derivatives of the called functions read. The norm's input in 16 bits is not saved.
    fn saved_by_eager(&self, op: OpId) -> Bytes {
        let compute_bytes = self.setting.compute_bytes;
        let wider = |bytes: Bytes| {
            Bytes::new(bytes.get() / compute_bytes * 4_u64.saturating_sub(compute_bytes))
        };
        match self.block.op(op).kind {
            // The normalised input is multiplied by the scale plus 1 before it is cast back.
            ref kind @ OpKind::Norm { unit_offset, .. } if is_rms_norm(kind) => {
                let input = self.input_bytes(op, 0);
                input * 2 + wider(input) * (1 + u64::from(unit_offset))
            }
            OpKind::Softmax { over: DimName::Context } if compute_bytes < 4 && self.is_rotary() => {
                self.output_bytes(op) + wider(self.output_bytes(op))
            }
            _ => Bytes::ZERO,
        }
    }

    fn is_rotary(&self) -> bool {
        self.block.nodes().any(|node| matches!(node.op.kind, OpKind::Rotary(_)))
    }

    /// Bytes that a recurrence saves in addition to its inputs and output. The delta rule saves normalised queries and
    /// keys of each value head, values, the inverse of each chunk's triangle, and decays in fp32. A chunk is no longer
    /// than a sequence.
    ///
    /// # Source
    ///
    /// flash-linear-attention, `fla/ops/gated_delta_rule` and `fla/ops/kda`; nothing is saved by
    /// `mamba_split_conv1d_scan_combined` of mamba's `ssd_combined.py` and `fla/ops/lightning_attn`.
    fn saved_by_recurrence(&self, op: OpId, kind: Recurrence, chunk: u64) -> Bytes {
        let ShardContext { compute_bytes, .. } = self.setting;
        let values = self.output_bytes(op).get();
        let shape = self.recurrence_shape(op);
        let heads = shape.tokens * shape.heads;
        let chunk = chunk.min(Extent::Sequence.resolve(self.setting.sizes));
        let decays = match kind {
            Recurrence::StateSpace { .. } | Recurrence::FixedDecay => return Bytes::ZERO,
            Recurrence::SelectiveScan => {
                let chunks = shape.tokens.div_ceil(chunk);
                return Bytes::new(4 * chunks * shape.features * shape.state);
            }
            Recurrence::DeltaRule => heads,
            Recurrence::DeltaRuleByFeature => heads * shape.state,
        };
        let by_key = 2 * heads * shape.state * compute_bytes;
        Bytes::new(by_key + values + heads * chunk * compute_bytes + 4 * decays)
    }

    /// Bytes saved for an input of `op`: in its own placement if it is gathered for use and again in backward,
    /// otherwise in the placement of its use.
    fn kept_bytes(&self, op: OpId, slot: usize) -> Bytes {
        let source = self.block.inputs(op)[slot];
        let from = self.placements.outputs[source.index()];
        let is_shard = matches!(from, Placement::Shard(_)) && !self.setting.keeps_gathered;
        if is_shard { self.output_bytes(source) } else { self.input_bytes(op, slot) }
    }

    fn parameters(&self) -> LocalParameters {
        let sharding = &self.setting.sharding;
        let mut local = LocalParameters::default();
        for node in self.block.nodes() {
            let is_expert = matches!(node.op.kind, OpKind::GroupedLinear { .. });
            let (held, partial, shapes, ranks) = if is_expert {
                let ranks = sharding.expert_tensor_parallel;
                let partial = &mut local.expert_partial_gradients;
                (&mut local.expert, partial, &mut local.expert_shapes, ranks)
            } else {
                let (partial, ranks) = (&mut local.partial_gradients, sharding.tensor_parallel);
                (&mut local.dense, partial, &mut local.dense_shapes, ranks)
            };
            let output = self.placements.outputs[node.id.index()];
            let sees_part = ranks > 1 && matches!(output, Placement::Shard(_));
            for parameter in &node.op.parameters {
                let elements = self.parameter_elements(node.op, parameter);
                if self.is_cast(node.id) && parameter.dims.len() > 1 {
                    local.cast += elements;
                }
                if node.op.is_frozen() {
                    let bytes = self.frozen_bytes(node.op, parameter);
                    local.frozen.add(bytes, is_expert, parameter.tied_to.is_some());
                } else if parameter.tied_to.is_some() {
                    local.tied += elements;
                } else {
                    *held += elements;
                    self.add_shape(node.op, parameter, shapes);
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

    /// Adds a trained parameter to the shape counts.
    fn add_shape(&self, op: &Op, parameter: &Parameter, shapes: &mut ShapeCounts) {
        let sizes: Vec<u64> = self.parameter_sizes(op, parameter).collect();
        let is_weight = parameter.name == "weight";
        let is_of_layer = parameter.dims.iter().all(|dim| dim.name != DimName::Vocabulary);
        let sides =
            |(rows, columns): (&[u64], &[u64])| [rows, columns].map(|it| it.iter().product());
        match &op.kind {
            OpKind::Linear { contracted, .. } if is_weight => {
                shapes.add_matrices(1, sides(sizes.split_at(contracted.len())), is_of_layer);
            }
            OpKind::GroupedLinear { contracted, .. } if is_weight => {
                let of_each = sizes[1..].split_at(contracted.len());
                shapes.add_matrices(sizes[0], sides(of_each), is_of_layer);
            }
            OpKind::Embedding { .. } => shapes.add_matrices(1, sides(sizes.split_at(1)), false),
            _ => shapes.add_elements(sizes.iter().product()),
        }
    }
}

const fn is_rms_norm(kind: &OpKind) -> bool {
    matches!(kind, OpKind::Norm { kind: NormKind::RmsNorm, .. })
}
