//! Times of the kernels and exchanges of a block, one by one.

use ir::cluster::Precision;
use ir::collective::Collective;
use ir::framework::{CausalPieces, ExpertActivations, GradientAccumulation, Logits, TensorGathers};
use ir::graph::{
    self, AttentionMask, Axis, Block, BlockRecompute, BlockWork, DimName, Exchange, Kernel,
    KernelWork, OpId, OpKind, Pass, ShardContext, Switches, TokenDispatcher,
};
use ir::units::{Bytes, Flops, Seconds};

use super::Groups;
use super::eager::{eager_passes, is_eager};
use crate::StridedGroup;
use crate::hardware::Hardware;
use crate::kernels::{Basis, Bound, MatmulShape, SelfAttentionShape, Timing};

/// Bytes that the graph counts for each logit in the loss's forward and backward, in addition to those of the logit.
/// Forward reads the logit, and writes and reads a softmax in fp32 twice; backward reads the softmax, and writes a
/// gradient (`ir/src/graph/kernels.rs`).
const LOSS_BYTES: [f64; 2] = [16.0, 4.0];

/// Number of times that the output of experts is read or written for their bias, in forward as in backward. Forward
/// writes a product, adds it to the output and copies the sum; backward reads and writes two products, and sums them.
const EXPERT_BIAS_PASSES: f64 = 6.0;

/// Share of a mixture's elementwise work that remains where activation functions and casts of experts are fused into
/// their products: the kernels of attention and of the router.
///
/// Assumed.
const FUSED_EXPERTS: f64 = 0.5;

/// Cost of a block: its work, with the groups and the hardware that time it.
pub(crate) struct BlockCost<'a> {
    pub(crate) block: &'a Block,
    pub(crate) work: &'a BlockWork,
    pub(crate) groups: &'a Groups,
    pub(crate) hardware: &'a Hardware,
    pub(crate) switches: Switches,
    /// True if the host gathers the parameters of each operator for each pass.
    pub(super) gathers_by_operator: bool,
    pub(crate) experts: ExpertTimes,
    /// Timing of each kernel of `work`.
    timings: Vec<Timing>,
    /// Time of each exchange of `work`.
    exchange_times: Vec<Seconds>,
    /// Sums over each operator's kernels, by [`Pass`].
    by_op: Vec<[OfOp; 3]>,
}

/// Sums over the kernels of an operator in a pass.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OfOp {
    pub(crate) time: Seconds,
    pub(crate) flops: Flops,
    /// Bytes read and written.
    pub(crate) touched: Bytes,
}

/// Timing of experts' products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpertTimes {
    /// The time with the given expert parallelism.
    Exact,
    /// A lower bound for every expert parallelism: each token at peak rate.
    Least,
}

impl<'a> BlockCost<'a> {
    pub(crate) fn new(
        block: &'a Block,
        work: &'a BlockWork,
        setting: &ShardContext,
        groups: &'a Groups,
        hardware: &'a Hardware,
        experts: ExpertTimes,
    ) -> Self {
        let untimed = Self::untimed(block, work, setting, groups, hardware);
        let by_op = vec![[OfOp::default(); 3]; block.nodes().count()];
        let mut cost = Self { experts, by_op, ..untimed };
        cost.timings = work.kernels.iter().map(|it| cost.kernel(it)).collect();
        cost.exchange_times = work.exchanges.iter().map(|it| cost.exchange(it)).collect();
        for (kernel, timing) in work.kernels.iter().zip(&cost.timings) {
            let of_op = &mut cost.by_op[kernel.op.index()][kernel.pass as usize];
            of_op.time += timing.time;
            of_op.flops += kernel.flops;
            of_op.touched += kernel.read + kernel.written;
        }
        cost
    }

    /// A cost without times of kernels and exchanges.
    pub(crate) fn untimed(
        block: &'a Block,
        work: &'a BlockWork,
        setting: &ShardContext,
        groups: &'a Groups,
        hardware: &'a Hardware,
    ) -> Self {
        let (timings, exchange_times, by_op) = Default::default();
        let ShardContext { switches, gathers_by_operator, .. } = *setting;
        let experts = ExpertTimes::Exact;
        Self {
            block,
            work,
            groups,
            hardware,
            switches,
            gathers_by_operator,
            experts,
            timings,
            exchange_times,
            by_op,
        }
    }

    /// The kernels with their times.
    pub(crate) fn kernels(&self) -> impl Iterator<Item = (&KernelWork, Timing)> {
        self.work.kernels.iter().zip(self.timings.iter().copied())
    }

    /// The exchanges with their times.
    pub(crate) fn timed_exchanges(&self) -> impl Iterator<Item = (&Exchange, Seconds)> {
        self.work.exchanges.iter().zip(self.exchange_times.iter().copied())
    }

    fn kernel(&self, work: &KernelWork) -> Timing {
        let Hardware { device, .. } = self.hardware;
        match work.kernel {
            Kernel::MatMul { batch, m, n, k }
                if self.experts == ExpertTimes::Least && self.is_of_experts(work.op) =>
            {
                // Tokens are rounded up to equal numbers per expert. In a weight's gradient they are summed over.
                let tokens = |count: u64| batch * count.saturating_sub(1) + 1;
                let is_weight_grad = work.pass == Pass::WeightGrad;
                let [m, k] = if is_weight_grad { [m, tokens(k)] } else { [tokens(m), k] };
                let shape = MatmulShape { batch: 1, m, n, k };
                let time = device.least_matmul(self.format(work.op), shape);
                Timing { time, bound: Bound::Compute }
            }
            Kernel::MatMul { batch, m, n, k } => {
                let format = self.format(work.op);
                let is_weight_grad = work.pass == Pass::WeightGrad;
                let chunks = self.chunks(work.op);
                let [m, k] =
                    if is_weight_grad { [m, k.div_ceil(chunks)] } else { [m.div_ceil(chunks), k] };
                let shape = MatmulShape { batch, m, n, k };
                let cast = self.cast(format, work);
                let is_fused = self.hardware.framework.gradients.accumulation
                    == GradientAccumulation::Fused
                    && is_weight_grad
                    && self.is_linear(work.op);
                let sum = is_fused.then(|| self.sum_bytes());
                let Timing { time, bound } =
                    device.training_matmul(format, shape, work.pass, sum, cast);
                let time = (time + self.accumulation(work)) * chunks as f64;
                Timing { time: time + self.sum_of_chunks(work) + self.expert_bias(work), bound }
            }
            Kernel::Attention(shape) => self.attention(shape, work.pass),
            Kernel::Memory => {
                let mut bytes = self.moved(work);
                let family = self.block.op(work.op).kind.family();
                let precision = self.hardware.precision.activation();
                let touched = bytes.get() as f64 * self.passes_over(work);
                if self.is_loss(work.op) {
                    bytes = Bytes::from_f64(bytes.as_f64() * self.parts_of_logits());
                }
                let others = self.accumulation(work) + self.gathered_logits(work);
                if let Some(time) = device.measured_operator(precision, family, work.pass, bytes) {
                    return Timing { time: time + others, bound: Bound::Memory };
                }
                let time = device.training_memory_bound(precision, Bytes::new(touched as u64));
                let time = time + others;
                let launch = device.launch_floor();
                let bound = if time < launch * 2.0 { Bound::Launch } else { Bound::Memory };
                Timing { time, bound }
            }
        }
    }

    /// Bytes that a kernel moves. Products of quantised experts dequantise all experts of a rank first; the lower bound
    /// counts one.
    fn moved(&self, work: &KernelWork) -> Bytes {
        let bytes = work.read + work.written;
        match self.block.op(work.op).kind {
            OpKind::GroupedLinear { num_experts, .. } if self.experts == ExpertTimes::Least => {
                Bytes::new(bytes.get() / num_experts)
            }
            OpKind::Dispatch { .. } | OpKind::Combine if self.sorts_received() => {
                // A token's copies are read and written once more; the operator has them on one side.
                bytes + work.read.max(work.written) * 2
            }
            _ => bytes,
        }
    }

    /// Returns whether received tokens are sorted by expert, and put back into their order of arrival before they are
    /// sent back: an all-to-all delivers them in the order of their senders.
    ///
    /// # Source
    ///
    /// Megatron-Core's `MoEAlltoAllTokenDispatcher` (`sort_chunks_by_idxs` where a rank has several experts),
    /// torchtitan's `expert_parallel.py` (`_permute`), MaxText's `moe.py` (`local_permute`). Tokens that DeepEP or an
    /// all-gather delivers are sorted by expert once.
    fn sorts_received(&self) -> bool {
        let ranks = self.groups.along(Axis::Expert).size;
        let is_exact = self.experts == ExpertTimes::Exact;
        let has_several = self.block.num_experts().is_some_and(|all| all > ranks.into());
        let sends_copies = self.dispatcher() == TokenDispatcher::AllToAll;
        is_exact && ranks > 1 && has_several && sends_copies
    }

    /// Bytes of an element of the buffer in which gradients of parameters are accumulated.
    fn sum_bytes(&self) -> u64 {
        let Hardware { precision, fp32_gradients, .. } = self.hardware;
        if *fp32_gradients { 4 } else { precision.activation_bytes() }
    }

    /// Time of the separate kernel that accumulates a parameter's gradient; zero where there is none.
    fn accumulation(&self, work: &KernelWork) -> Seconds {
        let Hardware { device, framework, precision, .. } = self.hardware;
        let is_separate = match (&self.block.op(work.op).kind, framework.gradients.accumulation) {
            _ if work.pass != Pass::WeightGrad => false,
            (_, GradientAccumulation::None) => false,
            (OpKind::Embedding { .. }, _) => true,
            (_, how) => self.is_linear(work.op) && how == GradientAccumulation::Separate,
        };
        if !is_separate {
            return Seconds::ZERO;
        }
        let made = precision.activation_bytes();
        let elements = work.written.get() / made;
        let bytes = Bytes::new(elements * (made + 2 * self.sum_bytes()));
        device.training_memory_bound(precision.activation(), bytes)
    }

    /// Number of chunks of tokens in which an operator's products run; 1, except for the head with some losses.
    fn chunks(&self, op: OpId) -> u64 {
        self.work.head_chunks.map_or(1, |(head, chunks)| if head == op { chunks } else { 1 })
    }

    /// Time to add up a weight's gradients over chunks of the tokens, where accumulation over micro-batches does not do
    /// so already.
    fn sum_of_chunks(&self, work: &KernelWork) -> Seconds {
        let Hardware { device, framework, precision, .. } = self.hardware;
        let is_apart = framework.gradients.accumulation == GradientAccumulation::None;
        let sums = self.chunks(work.op) - 1;
        if work.pass != Pass::WeightGrad || !is_apart || sums == 0 {
            return Seconds::ZERO;
        }
        let elements = work.written.get() / precision.activation_bytes();
        let bytes = Bytes::new(sums * elements * 3 * self.sum_bytes());
        device.training_memory_bound(precision.activation(), bytes)
    }

    /// Time of the kernels that add a bias to the output of experts, and of those that compute its gradient and that of
    /// the tokens' weights: they are not fused into products, as each expert's bias is first multiplied by the weight
    /// of each of its tokens.
    ///
    /// # Source
    ///
    /// Megatron-Core, `TEGroupedMLP._apply_bias`: for each expert `t + b * p`, and `torch.cat` of all.
    fn expert_bias(&self, work: &KernelWork) -> Seconds {
        let op = self.block.op(work.op);
        let is_last = match &op.kind {
            OpKind::GroupedLinear { contracted, bias: true, .. } => {
                contracted.contains(&DimName::Intermediate)
            }
            _ => false,
        };
        let output = match work.pass {
            Pass::Forward if is_last => work.written,
            Pass::WeightGrad if is_last => self.forward_output(work.op),
            _ => return Seconds::ZERO,
        };
        let touched = output.as_f64()
            * EXPERT_BIAS_PASSES
            * self.hardware.framework.kernels.elementwise_traffic;
        let precision = self.hardware.precision.activation();
        self.hardware.device.training_memory_bound(precision, Bytes::from_f64(touched))
    }

    /// Bytes that the kernels of an operator write in forward.
    fn forward_output(&self, op: OpId) -> Bytes {
        let forward = self.work.kernels.iter();
        forward.filter(|it| it.op == op && it.pass == Pass::Forward).map(|it| it.written).sum()
    }

    /// Evidence on which the time of a kernel is based.
    pub(crate) fn basis(&self, work: &KernelWork) -> Basis {
        let Hardware { device, precision, .. } = self.hardware;
        match work.kernel {
            Kernel::MatMul { batch, m, n, k } => {
                device.matmul_basis(self.format(work.op), MatmulShape { batch, m, n, k })
            }
            Kernel::Attention(shape) => {
                device.attention_basis(precision.activation(), known_shape(shape))
            }
            Kernel::Memory if device.is_measured(precision.activation()) => Basis::Interpolated,
            Kernel::Memory => Basis::DataSheet,
        }
    }

    /// Number format of an operator's products: where linear layers run in 8 or 4 bits, products of activations run in
    /// 16.
    fn format(&self, op: OpId) -> Precision {
        let Hardware { precision, .. } = self.hardware;
        if self.is_linear(op) { *precision } else { precision.activation() }
    }

    /// Share of a product's input that is cast for it: zero where another product with the same input has cast it, and
    /// a rank's own shard alone where the framework casts before the all-gather.
    fn cast(&self, format: Precision, work: &KernelWork) -> f64 {
        if !format.is_cast() || !self.is_linear(work.op) {
            return 1.0;
        }
        let gathers_8_bit = self.gathers_8_bit();
        let is_of_experts = self.is_of_experts(work.op);
        let axis = if is_of_experts { Axis::ExpertTensor } else { Axis::Tensor };
        let part = 1.0 / f64::from(self.groups.along(axis).size);
        let is_gather = |exchange: &&Exchange, pass: Pass| {
            exchange.axis == axis
                && exchange.collective == Collective::AllGather
                && exchange.pass == pass
        };
        if work.pass == Pass::InputGrad {
            let is_gathered = self.work.exchanges.iter().any(|exchange| {
                is_gather(&exchange, Pass::InputGrad)
                    && self.block.inputs(exchange.op).contains(&work.op)
            });
            return if gathers_8_bit && is_gathered { part } else { 1.0 };
        }
        let input = self.block.inputs(work.op).first().copied();
        let readers = self.block.nodes().map(|node| node.id).filter(|other| {
            self.is_linear(*other) && self.block.inputs(*other).first().copied() == input
        });
        let readers: Vec<OpId> = readers.collect();
        if readers.first() != Some(&work.op) {
            return 0.0;
        }
        let is_gathered =
            self.work.exchanges.iter().any(|exchange| {
                is_gather(&exchange, Pass::Forward) && readers.contains(&exchange.op)
            });
        match work.pass {
            // An input gathered in 8 bits is saved in 8 bits.
            Pass::WeightGrad if gathers_8_bit && is_gathered => 0.0,
            _ if gathers_8_bit && is_gathered => part,
            _ => 1.0,
        }
    }

    /// Returns whether tensor-parallel ranks gather inputs of 8-bit products in 8 bits.
    fn gathers_8_bit(&self) -> bool {
        self.hardware.framework.tensor_parallel.gathers == TensorGathers::Bits8
    }

    /// Factor on the bytes that a kernel reads and writes, for the framework's kernels.
    fn passes_over(&self, work: &KernelWork) -> f64 {
        let kernels = &self.hardware.framework.kernels;
        let loss = &kernels.loss;
        let kind = &self.block.op(work.op).kind;
        match (kind, work.pass) {
            (OpKind::CrossEntropy { .. }, Pass::Forward) => {
                self.parts_of_logits() * loss.forward_bytes_per_logit / self.loss_bytes()[0]
            }
            (OpKind::CrossEntropy { .. }, _) => {
                self.parts_of_logits() * loss.backward_bytes_per_logit / self.loss_bytes()[1]
            }
            (_, pass) => {
                let is_fused = kernels.expert_activations == ExpertActivations::WithinProducts;
                let left = if is_fused && self.block.has_experts() { FUSED_EXPERTS } else { 1.0 };
                let passes =
                    if is_eager(kind, kernels.fusion) { eager_passes(kind, pass) } else { 1.0 };
                kernels.elementwise_traffic * passes * left
            }
        }
    }

    /// Bytes of a logit.
    fn logit_bytes(&self) -> f64 {
        self.hardware.precision.activation_bytes() as f64
    }

    /// Bytes that the graph counts for a logit in the loss's forward and backward.
    fn loss_bytes(&self) -> [f64; 2] {
        LOSS_BYTES.map(|others| self.logit_bytes() + others)
    }

    /// Number of logits of a rank's part of the vocabulary, from the bytes of the loss's forward kernel.
    fn logits(&self, work: &KernelWork) -> f64 {
        (work.read + work.written).as_f64() / self.loss_bytes()[0]
    }

    /// Number of vocabulary shards that the loss of a rank computes.
    fn parts_of_logits(&self) -> f64 {
        match self.hardware.framework.tensor_parallel.logits {
            Logits::Part => 1.0,
            Logits::Whole => f64::from(self.groups.along(Axis::Tensor).size),
        }
    }

    /// Time to gather all logits on each rank, where the loss needs all: part of the loss, as it waits for them.
    fn gathered_logits(&self, work: &KernelWork) -> Seconds {
        let parts = self.parts_of_logits();
        if !self.is_loss(work.op) || work.pass != Pass::Forward || parts < 2.0 {
            return Seconds::ZERO;
        }
        let logits = self.logits(work) * self.logit_bytes() * parts;
        let group = self.groups.along(Axis::Tensor);
        let gather =
            self.hardware.network.time(Collective::AllGather, group, Bytes::from_f64(logits));
        gather * self.hardware.framework.exchanges.within_blocks
    }

    /// Peak memory of gradients of activations; for a loss that needs all logits, of all of them.
    pub(crate) fn gradients(&self) -> Bytes {
        let parts = if self.has_loss() { self.parts_of_logits() } else { 1.0 };
        Bytes::from_f64(self.work.gradients.as_f64() * parts)
    }

    fn has_loss(&self) -> bool {
        self.block.nodes().any(|node| self.is_loss(node.id))
    }

    fn is_loss(&self, op: OpId) -> bool {
        matches!(self.block.op(op).kind, OpKind::CrossEntropy { .. })
    }

    /// Timing of attention by the fitted curves, scaled by the query-key pairs that mask and context parallelism leave.
    fn attention(&self, shape: graph::AttentionShape, pass: Pass) -> Timing {
        let known = known_shape(shape);
        let causal = known.causal;
        let [context, document] = [shape.context, shape.document].map(|tokens| tokens as f64);
        let known_share = if causal { (document + 1.0) / (2.0 * document) } else { 1.0 };
        let known_share = known_share * document / context;
        // The fitted curve is of whole numbers of documents.
        let documents = context / document;
        let rounded = documents / documents.round();
        let share = shape.visible_fraction() / known_share * shape.queries as f64 / context;
        let share = share * self.uneven_context(shape);
        let Hardware { device, precision, .. } = self.hardware;
        let alone = |known| device.training_attention(precision.activation(), known, pass);
        let is_whole = shape.queries >= shape.context;
        let is_known = matches!(shape.mask, AttentionMask::Causal | AttentionMask::Full);
        let time = if is_whole || !is_known {
            alone(known) * (share * rounded)
        } else {
            // One kernel for each step of the ring, over as many keys as a rank has. A causal mask leaves the rank's
            // own keys, and half of those of the others.
            let [own, other] = [causal, false].map(|causal| {
                let (batch, sequence) = (shape.batch, shape.queries);
                alone(SelfAttentionShape { batch, sequence, causal, ..known })
                    .max(device.launch_floor())
            });
            let others = context / shape.queries as f64 - 1.0;
            let half = if causal { 0.5 } else { 1.0 };
            (own + other * (others * half)) * (self.uneven_context(shape) / documents)
        };
        Timing { time: time.max(device.launch_floor()), bound: Bound::Compute }
    }

    /// Work of the last of `n` context-parallel ranks in a causal attention, over the mean of all, where the sequence
    /// is cut into `n` contiguous pieces: `n - 1` whole blocks and half of its own, over a mean of `n / 2`.
    fn uneven_context(&self, shape: graph::AttentionShape) -> f64 {
        let n = shape.context as f64 / shape.queries as f64;
        let is_balanced = self.hardware.framework.context_parallel == CausalPieces::Balanced;
        let is_even = is_balanced || shape.mask != AttentionMask::Causal;
        if is_even || n <= 1.0 { 1.0 } else { (2.0 * n - 1.0) / n }
    }

    pub(crate) fn exchange(&self, exchange: &Exchange) -> Seconds {
        let group = self.groups.along(exchange.axis);
        let Hardware { network, framework, .. } = self.hardware;
        let alone = match self.collective_of(exchange) {
            Some((Collective::SendReceive, bytes)) => self.hardware.to_neighbour(group, bytes),
            Some((collective, bytes)) => network.time(collective, group, bytes),
            None => {
                let top_k = self.top_k();
                let most_domains =
                    framework.experts.most_domains.or_else(|| self.most_domains(group));
                network.dispatch(group, exchange.bytes.shard(top_k), top_k, most_domains)
            }
        };
        alone * framework.exchanges.within_blocks
    }

    /// Bytes of an exchange: half as many where inputs of 8-bit products are cast before the all-gather.
    pub(super) fn exchanged_bytes(&self, exchange: &Exchange) -> Bytes {
        let Hardware { precision, .. } = self.hardware;
        let is_gather = exchange.axis.is_tensor() && exchange.collective == Collective::AllGather;
        let is_cast = self.gathers_8_bit() && *precision == Precision::Fp8 && is_gather;
        if !is_cast {
            return exchange.bytes;
        }
        let is_of_linear = match exchange.pass {
            Pass::InputGrad => {
                self.block.inputs(exchange.op).iter().any(|maker| self.is_linear(*maker))
            }
            _ => self.is_linear(exchange.op),
        };
        if is_of_linear { exchange.bytes.shard(2) } else { exchange.bytes }
    }

    /// Bytes saved for backward by the framework's kernels. With full recompute a block's input is saved, by every
    /// framework.
    pub(crate) fn saved(&self, policy: BlockRecompute) -> Bytes {
        let saved = self.work.saved_bytes(policy).as_f64();
        if self.has_loss() {
            return Bytes::from_f64(self.parts_of_logits() * (saved + self.buffered_logits()));
        }
        self.saved_by_framework(policy, saved)
    }

    /// Part of [`Self::saved`] that can be offloaded; all of it where no modules were chosen.
    pub(crate) fn offloadable(&self, policy: BlockRecompute) -> Bytes {
        self.saved_by_framework(policy, self.work.offloadable_bytes(policy).as_f64())
    }

    fn saved_by_framework(&self, policy: BlockRecompute, saved: f64) -> Bytes {
        Bytes::from_f64(match policy {
            BlockRecompute::Full => saved,
            _ => saved * self.hardware.framework.memory.saved,
        })
    }

    /// Bytes of a vocabulary shard's logits that stay in buffers.
    fn buffered_logits(&self) -> f64 {
        let each = self.hardware.framework.kernels.loss.buffer_bytes_per_logit;
        let works = self.work.kernels.iter().filter(|work| work.pass == Pass::Forward);
        let of_loss = works.filter(|work| self.is_loss(work.op));
        of_loss.map(|work| self.logits(work) * each).sum()
    }

    /// The most network domains that hold experts of one token, where the router chooses groups of experts first and
    /// each group's ranks fill whole domains; `None` without such a limit.
    ///
    /// # Source
    ///
    /// DeepSeek-AI 2024, *DeepSeek-V3* (arXiv 2412.19437), section 2.1.2: node-limited routing.
    fn most_domains(&self, group: StridedGroup) -> Option<u32> {
        let of = |kind: &OpKind| match kind {
            OpKind::Router { routing, .. } => routing.groups,
            _ => None,
        };
        let groups = self.block.nodes().find_map(|node| of(&node.op.kind))?;
        let ranks = u64::from(group.size) * u64::from(group.stride);
        let domain = u64::from(self.hardware.domain);
        let is_whole = groups.count > 0 && ranks.is_multiple_of(groups.count * domain);
        let domains = is_whole.then(|| groups.chosen * (ranks / groups.count / domain))?;
        u32::try_from(domains).ok()
    }

    /// The way in which tokens reach their experts.
    pub(super) const fn dispatcher(&self) -> TokenDispatcher {
        self.switches.token_dispatcher
    }

    /// Number of experts that process each token of the block.
    pub(super) fn top_k(&self) -> u64 {
        self.block.top_k().unwrap_or(1)
    }

    /// Sums over an operator's kernels in a pass.
    pub(crate) fn kernels_of(&self, op: OpId, pass: Pass) -> OfOp {
        self.by_op.get(op.index()).map_or_else(OfOp::default, |passes| passes[pass as usize])
    }

    pub(crate) fn is_of_experts(&self, op: OpId) -> bool {
        matches!(self.block.op(op).kind, OpKind::GroupedLinear { .. })
    }

    pub(crate) fn is_linear(&self, op: OpId) -> bool {
        matches!(self.block.op(op).kind, OpKind::Linear { .. } | OpKind::GroupedLinear { .. })
    }
}

/// Shape of an attention in the terms of the fitted curves: as many queries as keys, heads of one size.
fn known_shape(shape: graph::AttentionShape) -> SelfAttentionShape {
    SelfAttentionShape {
        batch: shape.batch * (shape.context as f64 / shape.document as f64).round() as u64,
        sequence: shape.document,
        heads: shape.heads,
        kv_heads: shape.kv_heads,
        head_dim: shape.head_dim.midpoint(shape.value_head_dim),
        causal: shape.mask != AttentionMask::Full,
    }
}
