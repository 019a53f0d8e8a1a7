//! Kernels of each pass of each operator, with their operations and the bytes that they read and write.

use std::collections::BTreeSet;

use super::block::OpId;
use super::elementwise::ReduceFunction;
use super::keeps::Keeps;
use super::mask::AttentionMask;
use super::op::{EmbeddedRows, Learning, OpKind, Recurrence};
use super::placement::Placement;
use super::sharded::{RecurrenceShape, Sharded};
use super::tensor::{DimName, ElementType};
use super::work::{AttentionShape, Kernel, KernelWork, Pass};
use crate::units::{Bytes, Flops};

/// FlashAttention's backward computes five products, where forward has two of the same size: the scores again, and the
/// gradients of values, probabilities, queries and keys (Dao et al. 2022, arXiv 2205.14135, algorithm 4).
const FLASH_BACKWARD_FLOPS: f64 = 2.5;

/// All kernels of a block.
pub(super) fn derive(sharded: &Sharded<'_>, requires_grad: &[bool]) -> Vec<KernelWork> {
    let mut kernels = Kernels { sharded, requires_grad, done: Vec::new(), fused: BTreeSet::new() };
    for node in sharded.block.nodes() {
        kernels.add(node.id, &node.op.kind);
    }
    kernels.add_gradient_sums();
    kernels.done
}

struct Kernels<'a, 'b> {
    sharded: &'a Sharded<'b>,
    requires_grad: &'a [bool],
    done: Vec<KernelWork>,
    /// Linear layers that are fused into the matrix product of an earlier layer.
    fused: BTreeSet<OpId>,
}

impl Kernels<'_, '_> {
    fn add(&mut self, op: OpId, kind: &OpKind) {
        match kind {
            OpKind::Linear { contracted, .. } => self.linear(op, contracted),
            OpKind::Router { .. } => self.router(op),
            OpKind::GroupedLinear { num_experts, contracted, .. } => {
                self.grouped_linear(op, *num_experts, contracted);
            }
            OpKind::Conv2d { groups, window, .. }
            | OpKind::ConvTranspose2d { groups, window, .. } => {
                self.convolution(op, *groups, window.kernel[0] * window.kernel[1]);
            }
            OpKind::Attention { mask, .. } => {
                let shape = self.attention_shape(op, *mask);
                self.attention(op, shape);
            }
            OpKind::Indexer { keys, block } => self.indexer(op, *keys, *block),
            OpKind::AttentionScores | OpKind::AttentionValues => self.attention_product(op, kind),
            OpKind::Product { over } => self.product(op, over),
            OpKind::Recurrence { kind, chunk } => self.recurrence(op, *kind, *chunk),
            OpKind::Input
            | OpKind::Buffer { .. }
            | OpKind::Slice { .. }
            | OpKind::Gather
            | OpKind::Flatten
            | OpKind::Reshape { .. }
            | OpKind::Parameter { .. }
            | OpKind::FirstToken
            | OpKind::PatchesToSequence => {}
            _ => self.memory_bound(op, kind),
        }
    }

    /// True if the gradient of input `slot` of `op` is needed.
    fn input_requires_grad(&self, op: OpId, slot: usize) -> bool {
        self.requires_grad[self.sharded.block.inputs(op)[slot].index()]
    }

    fn is_trained(&self, op: OpId) -> bool {
        self.sharded.block.op(op).is_trained()
    }

    fn push(
        &mut self,
        op: OpId,
        pass: Pass,
        kernel: Kernel,
        flops: f64,
        read: Bytes,
        written: Bytes,
    ) {
        self.done.push(KernelWork { op, pass, kernel, flops: Flops::new(flops), read, written });
    }

    fn push_memory(&mut self, op: OpId, pass: Pass, read: Bytes, written: Bytes) {
        self.push(op, pass, Kernel::Memory, 0.0, read, written);
    }

    /// The three products of a linear layer.
    fn matmuls(&mut self, op: OpId, batch: u64, [m, n, k]: [u64; 3]) {
        let element = self.sharded.setting.compute_bytes;
        let bytes = |rows: u64, columns: u64| Bytes::new(batch * rows * columns * element);
        let flops = 2.0 * batch as f64 * m as f64 * n as f64 * k as f64;
        let bytes = [bytes(m, k), bytes(k, n), bytes(m, n)];
        self.products(op, batch, [m, n, k], flops, bytes, self.gradients_of_weight(op));
    }

    /// Passes of the gradients of an operator's first input and of its weight, where they are needed.
    fn gradients_of_weight(&self, op: OpId) -> [Option<Pass>; 2] {
        let of_input = self.input_requires_grad(op, 0).then_some(Pass::InputGrad);
        [of_input, self.is_trained(op).then_some(Pass::WeightGrad)]
    }

    /// The product of two tensors and those that make their gradients: `y = a b`, `da = dy b'`, `db = a' dy`. `bytes`
    /// are those of a, b and y.
    fn products(
        &mut self,
        op: OpId,
        batch: u64,
        [m, n, k]: [u64; 3],
        flops: f64,
        [a, b, y]: [Bytes; 3],
        [of_a, of_b]: [Option<Pass>; 2],
    ) {
        let product = |m, n, k| Kernel::MatMul { batch, m, n, k };
        self.push(op, Pass::Forward, product(m, n, k), flops, a + b, y);
        if let Some(pass) = of_a {
            self.push(op, pass, product(m, k, n), flops, y + b, a);
        }
        if let Some(pass) = of_b {
            self.push(op, pass, product(k, n, m), flops, y + a, b);
        }
    }

    /// Rows, columns and summed dimension of a linear layer on one rank.
    fn linear_shape(&self, op: OpId, contracted: &[DimName]) -> [u64; 3] {
        let extent = |is_summed: bool| {
            self.sharded.input_extent(op, 0, |name| contracted.contains(&name) == is_summed)
        };
        let (m, k) = (extent(false), extent(true));
        [m, self.sharded.output_elements(op) / m, k]
    }

    /// Linear layers that read the same tensor run as one matrix product: fused query, key and value, fused gate and
    /// up projection. Adapters stay separate products.
    fn linear(&mut self, op: OpId, contracted: &[DimName]) {
        if self.fused.contains(&op) {
            return;
        }
        let sharded = self.sharded;
        let source = sharded.block.inputs(op)[0];
        let wanted = sharded.placements.wanted[op.index()][0];
        let [m, mut n, k] = self.linear_shape(op, contracted);
        let learning = sharded.block.op(op).learning;
        let fuses = sharded.setting.fuses_projections && learning != Learning::Adapter;
        self.dequantise(op);
        for sibling in sharded.block.nodes().filter(|node| fuses && node.id > op) {
            let index = sibling.id.index();
            let same = matches!(&sibling.op.kind, OpKind::Linear { contracted: c, .. } if c == contracted)
                && sharded.block.inputs(sibling.id)[0] == source
                && sharded.placements.wanted[index][0] == wanted
                && sibling.op.learning == learning;
            if same {
                self.dequantise(sibling.id);
                n += self.linear_shape(sibling.id, contracted)[1];
                self.fused.insert(sibling.id);
            }
        }
        self.matmuls(op, 1, [m, n, k]);
    }

    /// Kernels that dequantise a weight for its products: once in forward, and again for the input gradient.
    fn dequantise(&mut self, op: OpId) {
        let sharded = self.sharded;
        let read = sharded.quantised_bytes(op);
        if read == Bytes::ZERO {
            return;
        }
        let written = sharded.dequantised_bytes(op);
        self.push_memory(op, Pass::Forward, read, written);
        if self.input_requires_grad(op, 0) {
            self.push_memory(op, Pass::InputGrad, read, written);
        }
    }

    fn router(&mut self, op: OpId) {
        let shape = self.linear_shape(op, &[DimName::Hidden]);
        self.matmuls(op, 1, shape);
        // Softmax and choice read and write the scores in fp32.
        let scores = self.sharded.output_bytes(op);
        self.push_memory(op, Pass::Forward, scores * 2, scores * 2);
        self.push_memory(op, Pass::InputGrad, scores * 2, scores);
    }

    /// Work of a linear layer of experts; the tokens of a rank are assumed to spread evenly over its experts.
    fn grouped_linear(&mut self, op: OpId, num_experts: u64, contracted: &[DimName]) {
        let [m, n, k] = self.linear_shape(op, contracted);
        self.dequantise(op);
        let expert_parallel = self.sharded.setting.sharding.expert_parallel;
        let local_experts = num_experts.div_ceil(expert_parallel.into());
        self.matmuls(op, local_experts, [m.div_ceil(local_experts), n, k]);
    }

    /// A convolution as an implicit matrix product: positions by output channels, summed over the window. A transposed
    /// convolution is the product that computes the input gradient of a plain one: positions of its own input by
    /// kernels of the output.
    fn convolution(&mut self, op: OpId, groups: u64, window: u64) {
        let sharded = self.sharded;
        let source = sharded.block.inputs(op)[0];
        let channels = |id: OpId| {
            let tensor = &sharded.block.op(id).output;
            let of = |dim| sharded.local_extent(tensor, dim, Placement::Whole);
            tensor.dim(DimName::Channels).map_or(1, of) / groups
        };
        let (c_in, c_out) = (channels(source), channels(op));
        let is_transposed = matches!(sharded.block.op(op).kind, OpKind::ConvTranspose2d { .. });
        let (image, channels) = if is_transposed { (source, c_in) } else { (op, c_out) };
        let positions = sharded.elements(&sharded.block.op(image).output, Placement::Whole)
            / (channels * groups);
        let flops = 2.0 * (positions * c_out * groups) as f64 * (c_in * window) as f64;
        let weight = Bytes::new(groups * c_in * c_out * window * sharded.setting.compute_bytes);
        let bytes = [sharded.output_bytes(source), weight, sharded.output_bytes(op)];
        let shape = if is_transposed {
            [positions, c_out * window, c_in]
        } else {
            [positions, c_out, c_in * window]
        };
        self.products(op, groups, shape, flops, bytes, self.gradients_of_weight(op));
    }

    /// A product of two tensors, once for each index of the dimensions that both have.
    fn product(&mut self, op: OpId, over: &[DimName]) {
        let sharded = self.sharded;
        let has = |slot: usize, name: DimName| sharded.input(op, slot).0.dim(name).is_some();
        let is_shared = |name: DimName| has(0, name) && has(1, name);
        let batch = sharded.input_extent(op, 0, |name| is_shared(name) && !over.contains(&name));
        let k = sharded.input_extent(op, 0, |name| over.contains(&name));
        let [m, n] = [0, 1].map(|slot| sharded.input_extent(op, slot, |name| !is_shared(name)));
        let flops = 2.0 * (batch * m) as f64 * (n * k) as f64;
        let bytes =
            [sharded.input_bytes(op, 0), sharded.input_bytes(op, 1), sharded.output_bytes(op)];
        let gradients =
            [0, 1].map(|slot| self.input_requires_grad(op, slot).then_some(Pass::InputGrad));
        self.products(op, batch, [m, n, k], flops, bytes, gradients);
    }

    fn attention_shape(&self, op: OpId, mask: AttentionMask) -> AttentionShape {
        let sharded = self.sharded;
        let inputs = &sharded.block.inputs(op);
        let local = |slot: usize, name: DimName| sharded.input_extent(op, slot, |it| it == name);
        let context = sharded.block.op(inputs[1]).output.dim(DimName::Sequence);
        // All positions of a shard of the heads, where heads are exchanged.
        let share = u64::from(sharded.setting.sharding.head_exchange());
        let head_dim = local(0, DimName::HeadDim);
        let context = context.map_or(1, |dim| dim.extent.resolve(sharded.setting.sizes));
        let attended =
            sharded.setting.documents.map_or(context, |it| it.attended.clamp(1, context));
        AttentionShape {
            batch: self.sequences(op),
            heads: local(0, DimName::Heads).div_ceil(share),
            kv_heads: local(1, DimName::KvHeads).div_ceil(share),
            queries: local(0, DimName::Sequence) * share,
            context,
            head_dim,
            value_head_dim: if inputs.len() > 2 { local(2, DimName::HeadDim) } else { head_dim },
            mask,
            document: attended,
        }
    }

    /// Number of sequences that attention treats separately: elements of its queries without the dimensions of heads,
    /// positions and features.
    fn sequences(&self, op: OpId) -> u64 {
        let of_each = [DimName::Heads, DimName::Sequence, DimName::HeadDim];
        self.sharded.input_extent(op, 0, |name| !of_each.contains(&name))
    }

    fn attention(&mut self, op: OpId, shape: AttentionShape) {
        let flops = shape.full_flops().get() * shape.visible_fraction();
        let slots = 0..shape.mask.inputs();
        let given: Bytes = slots.map(|slot| self.sharded.input_bytes(op, slot)).sum();
        let output = self.sharded.output_bytes(op);
        let kernel = Kernel::Attention(shape);
        self.push(op, Pass::Forward, kernel, flops, given, output);
        // Reads the inputs, the output and its gradient; writes the gradients of the inputs.
        let backward = flops * FLASH_BACKWARD_FLOPS;
        self.push(op, Pass::InputGrad, kernel, backward, given + output * 2, given);
        self.join_ring(op, given, output);
    }

    /// Choice of the best among all earlier keys, by scores. Half of all pairs are computed; each score is written and
    /// read in fp32. In backward only the chosen keys have scores and gradients; where blocks are chosen, none have.
    ///
    /// # Source
    ///
    /// DeepSeek-AI 2025, *DeepSeek-V3.2*, section 2.1.
    fn indexer(&mut self, op: OpId, keys: u64, block: u64) {
        let sharded = self.sharded;
        let [query, key] = [0, 1].map(|slot| sharded.block.inputs(op)[slot]);
        let of = |id: OpId| &sharded.block.op(id).output;
        let rows = of(query).dims[..2].iter();
        let rows: u64 =
            rows.map(|dim| sharded.local_extent(of(query), *dim, Placement::Whole)).product();
        let features = sharded.elements(of(query), Placement::Whole) / rows;
        let context = of(key).dims[1].extent.resolve(sharded.setting.sizes);
        let product = |n: u64| Kernel::MatMul { batch: 1, m: rows, n, k: features };
        let flops = |n: u64| 2.0 * (rows * n) as f64 * features as f64;
        let (all, chosen) = (context.div_ceil(2), keys.min(context.div_ceil(2)));
        let given = sharded.output_bytes(query);
        self.push(op, Pass::Forward, product(all), flops(all), given, Bytes::ZERO);
        // Rows of all heads where each head makes its own choice.
        let scored = sharded.elements(of(op), Placement::Whole) / keys.div_ceil(block);
        let scores = Bytes::new(4 * scored * all);
        self.push_memory(op, Pass::Forward, scores, scores + sharded.output_bytes(op));
        for _ in 0..if block == 1 { 2 } else { 0 } {
            self.push(op, Pass::InputGrad, product(chosen), flops(chosen), given, given);
        }
    }

    /// Each step of a ring adds its result to the sum of the steps before: of outputs in forward, of the gradients of
    /// the inputs (`given`) in backward (Liu et al. 2023, arXiv 2310.01889, section 3).
    fn join_ring(&mut self, op: OpId, given: Bytes, output: Bytes) {
        let sharding = self.sharded.setting.sharding;
        let is_ring = sharding.context_parallel > 1 && sharding.head_exchange() == 1;
        for _ in 1..if is_ring { sharding.context_parallel } else { 1 } {
            for (pass, bytes) in [(Pass::Forward, output), (Pass::InputGrad, given)] {
                self.push_memory(op, pass, bytes * 2, bytes);
            }
        }
    }

    /// Products of a recurrence within and between chunks, and the bytes of its inputs, output and states. Backward
    /// has two products for each product of forward, and repeats those that compute scores and states.
    ///
    /// # Source
    ///
    /// Dao and Gu 2024 (arXiv 2405.21060), section 6; Qin et al. 2024 (arXiv 2401.04658), algorithm 1; Yang, Kautz and
    /// Hatamizadeh 2024 (arXiv 2412.06464), section 3.3.
    fn recurrence(&mut self, op: OpId, kind: Recurrence, chunk: u64) {
        let sharded = self.sharded;
        let RecurrenceShape { tokens, heads, groups, features, state } =
            sharded.recurrence_shape(op);
        let chunk = chunk.min(tokens);
        let chunks = tokens.div_ceil(chunk);
        // Batch; rows, columns and summed dimension; and whether backward repeats the product.
        let products = match kind {
            // The products of a selective scan are of single numbers: it takes as long as moving its inputs and
            // outputs does.
            Recurrence::SelectiveScan => Vec::new(),
            Recurrence::StateSpace { .. } | Recurrence::FixedDecay => vec![
                (groups, [chunk, chunk, state], true),
                (heads, [chunk, features, chunk], false),
                (heads, [features, state, chunk], true),
                (heads, [chunk, features, state], false),
            ],
            Recurrence::DeltaRule | Recurrence::DeltaRuleByFeature => vec![
                (heads, [chunk, chunk, state], true),
                (heads, [chunk, chunk, state], true),
                (heads, [chunk, state, chunk], true),
                (heads, [chunk, features, chunk], true),
                (heads, [chunk, features, chunk], false),
                (heads, [chunk, features, state], true),
                (heads, [chunk, features, state], false),
                (heads, [state, features, chunk], true),
            ],
        };
        for (each, [m, n, k], is_recomputed) in products {
            let batch = each * chunks;
            let kernel = Kernel::MatMul { batch, m, n, k };
            let flops = 2.0 * (batch * m) as f64 * (n * k) as f64;
            // Inputs and outputs of chunks are counted below; products stay on the chip.
            self.push(op, Pass::Forward, kernel, flops, Bytes::ZERO, Bytes::ZERO);
            for _ in 0..2 + u64::from(is_recomputed) {
                self.push(op, Pass::InputGrad, kernel, flops, Bytes::ZERO, Bytes::ZERO);
            }
        }
        let inputs = 0..sharded.block.inputs(op).len();
        let given: Bytes = inputs.map(|slot| sharded.input_bytes(op, slot)).sum();
        let output = sharded.output_bytes(op);
        let states = Bytes::new(4 * chunks * heads * features * state);
        self.push_memory(op, Pass::Forward, given + states, output + states);
        self.push_memory(op, Pass::InputGrad, given + output + states * 2, given + states * 2);
    }

    /// One product of unfused attention. Kernels do not skip masked pairs.
    fn attention_product(&mut self, op: OpId, kind: &OpKind) {
        let sharded = self.sharded;
        let output = &sharded.block.op(op).output;
        let placement = sharded.placements.outputs[op.index()];
        let of = |name: DimName| {
            output.dim(name).map_or(1, |dim| sharded.local_extent(output, dim, placement))
        };
        let given = |name: DimName| sharded.input_extent(op, 0, |it| it == name);
        let [n, k] = if *kind == OpKind::AttentionScores {
            [of(DimName::Context), given(DimName::HeadDim)]
        } else {
            [of(DimName::HeadDim), given(DimName::Context)]
        };
        let share = u64::from(sharded.setting.sharding.head_exchange());
        let heads = of(DimName::Heads).div_ceil(share);
        let (batch, m) = (of(DimName::Batch) * heads, of(DimName::Sequence) * share);
        let flops = 2.0 * (batch * m) as f64 * (n * k) as f64;
        let bytes =
            [sharded.input_bytes(op, 0), sharded.input_bytes(op, 1), sharded.output_bytes(op)];
        self.products(op, batch, [m, n, k], flops, bytes, [Some(Pass::InputGrad); 2]);
    }

    /// Kernels of operators that read and write each element about once.
    fn memory_bound(&mut self, op: OpId, kind: &OpKind) {
        let sharded = self.sharded;
        let inputs: Bytes =
            (0..sharded.block.inputs(op).len()).map(|slot| sharded.input_bytes(op, slot)).sum();
        let y = sharded.output_bytes(op);
        let mask = || Bytes::new(sharded.output_elements(op));
        // For each of forward and backward, bytes read and bytes written.
        let (forward, backward) = match kind {
            OpKind::Embedding { rows: EmbeddedRows::Bag, width, .. } => {
                let width = width.extent.resolve(sharded.setting.sizes);
                let of_rows = inputs.get() / ElementType::Index.bytes(0) * width;
                let read = Bytes::new(of_rows * sharded.setting.compute_bytes);
                ((read + inputs, y), (y + inputs, self.table_bytes(op)))
            }
            // The gradient of the table is dense, and is first set to zero (PyTorch's `embedding_dense_backward`).
            OpKind::Embedding { .. } => ((y, y), (y, self.table_bytes(op))),
            OpKind::Dropout { .. } => ((inputs, y + mask()), (y + mask(), inputs)),
            // The gradient of a sum goes to each summand unchanged.
            OpKind::Add | OpKind::AddParameter { .. } | OpKind::PrependParameter => {
                ((inputs, y), (Bytes::ZERO, Bytes::ZERO))
            }
            OpKind::Rotary(_)
            | OpKind::Scale { .. }
            | OpKind::Concat { .. }
            | OpKind::Pad { .. }
            | OpKind::Upsample2d { .. }
            | OpKind::Reduce { function: ReduceFunction::Sum | ReduceFunction::Mean, .. } => {
                ((inputs, y), (y, inputs))
            }
            OpKind::Take { .. } => ((y, y), (y, inputs)),
            OpKind::Elementwise(function) => {
                let given: Bytes = function
                    .keeps()
                    .iter()
                    .map(|kept| match kept {
                        Keeps::Input(slot) => sharded.input_bytes(op, *slot),
                        Keeps::Mask => mask(),
                        _ => y,
                    })
                    .sum();
                ((inputs, y), (y + given, inputs))
            }
            OpKind::CrossEntropy { .. } => self.cross_entropy_bytes(op),
            // The output's gradient, and the saved tensors.
            _ => ((inputs, y), (inputs + y, inputs)),
        };
        let flops = match kind {
            OpKind::ShortConvolution { kernel, .. } => 2.0 * (kernel * mask().get()) as f64,
            _ => 0.0,
        };
        self.push(op, Pass::Forward, Kernel::Memory, flops, forward.0, forward.1);
        let (pass, is_needed) = match kind {
            OpKind::Embedding { .. } => (Pass::WeightGrad, self.is_trained(op)),
            _ => (Pass::InputGrad, self.input_requires_grad(op, 0)),
        };
        if backward.1 > Bytes::ZERO && is_needed {
            self.push(op, pass, Kernel::Memory, 2.0 * flops, backward.0, backward.1);
        }
    }

    /// Bytes of a rank's shard of an embedding's table, in the precision of the step.
    fn table_bytes(&self, op: OpId) -> Bytes {
        let op = self.sharded.block.op(op);
        let tables = op.parameters.iter();
        let elements: u64 = tables.map(|table| self.sharded.parameter_elements(op, table)).sum();
        Bytes::new(elements * self.sharded.setting.compute_bytes)
    }

    /// Bytes of the cross-entropy. Logits become a softmax in fp32, which is read for maximum and sum; backward turns
    /// the softmax into the gradient (Megatron-LM's vocabulary-parallel cross-entropy).
    fn cross_entropy_bytes(&self, op: OpId) -> ((Bytes, Bytes), (Bytes, Bytes)) {
        let logits = self.sharded.input_bytes(op, 0);
        let softmax = Bytes::new(
            logits.get() / self.sharded.setting.compute_bytes * ElementType::Float32.bytes(4),
        );
        ((logits + softmax * 2, softmax * 2), (softmax, logits))
    }

    /// Adds the gradients of tensors that several operators read.
    fn add_gradient_sums(&mut self) {
        let block = self.sharded.block;
        let mut uses = vec![0u64; self.requires_grad.len()];
        for node in block.nodes().filter(|node| !self.fused.contains(&node.id)) {
            for input in self.sharded.block.inputs(node.id) {
                uses[input.index()] += 1;
            }
        }
        for node in block.nodes() {
            let extra = uses[node.id.index()].saturating_sub(1);
            if extra > 0 && self.requires_grad[node.id.index()] {
                let bytes = self.sharded.output_bytes(node.id);
                self.push_memory(node.id, Pass::InputGrad, bytes * (2 * extra), bytes * extra);
            }
        }
    }
}
