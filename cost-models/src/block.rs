//! The time of a block: its kernels on a device, its exchanges on a network.

use ir::collective::Collective;
use ir::graph::{
    self, AttentionMask, Axis, Block, BlockWork, Exchange, Kernel, KernelWork, LocalParameters,
    OpId, OpKind, Pass, Recompute, Setting,
};
use ir::units::{Bytes, Seconds};

use crate::Group;
use crate::hardware::Hardware;
use crate::kernels::{AttentionShape, Bound, MatmulShape, Timing};

/// Where the groups of a sharded block lie among the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// Tensor-parallel ranks.
    pub tensor: Group,
    /// Context-parallel ranks.
    pub context: Group,
    /// Expert-parallel ranks.
    pub expert: Group,
}

impl Groups {
    /// The group along an axis.
    pub fn along(&self, axis: Axis) -> Group {
        match axis {
            Axis::Tensor => self.tensor,
            Axis::Context => self.context,
            Axis::Expert => self.expert,
        }
    }
}

/// Time of a pass, by what it is spent on. Communication is what is left exposed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PassTime {
    /// Kernels.
    pub compute: Seconds,
    /// Tensor-parallel collectives.
    pub tensor: Seconds,
    /// Context-parallel exchanges.
    pub context: Seconds,
    /// Expert-parallel exchanges.
    pub expert: Seconds,
}

impl PassTime {
    /// All of it.
    pub fn total(&self) -> Seconds {
        self.compute + self.tensor + self.context + self.expert
    }

    fn add_exposed(&mut self, axis: Axis, time: Seconds) {
        match axis {
            Axis::Tensor => self.tensor += time,
            Axis::Context => self.context += time,
            Axis::Expert => self.expert += time,
        }
    }
}

impl std::ops::Add for PassTime {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            compute: self.compute + other.compute,
            tensor: self.tensor + other.tensor,
            context: self.context + other.context,
            expert: self.expert + other.expert,
        }
    }
}

impl std::ops::Mul<f64> for PassTime {
    type Output = Self;
    fn mul(self, factor: f64) -> Self {
        Self {
            compute: self.compute * factor,
            tensor: self.tensor * factor,
            context: self.context * factor,
            expert: self.expert * factor,
        }
    }
}

impl std::iter::Sum for PassTime {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::default(), std::ops::Add::add)
    }
}

/// What one block of a class costs one rank for one micro-batch.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockCost {
    /// From input to output.
    pub forward: PassTime,
    /// Gradients of activations.
    pub input_grad: PassTime,
    /// Gradients of parameters.
    pub weight_grad: PassTime,
    /// Both, where a zero-bubble schedule runs them apart, so that neither hides the other's
    /// collectives.
    pub grads_apart: [PassTime; 2],
    /// What each [`Recompute`] policy runs again in backward.
    pub recompute: [PassTime; 3],
    /// What each [`Recompute`] policy keeps from forward to backward.
    pub saved: [Bytes; 3],
    /// The largest tensor that an operator puts out.
    pub largest_tensor: Bytes,
    /// Parameters held.
    pub parameters: LocalParameters,
    /// The message to the next block, if it is on another stage.
    pub output: Bytes,
}

impl BlockCost {
    /// Costs `block` in `setting` on `hardware`.
    pub fn new(block: &Block, setting: &Setting, groups: &Groups, hardware: &Hardware) -> Self {
        let work = block.work(setting);
        let coster = Coster { block, work: &work, groups, hardware };
        Self {
            forward: coster.pass(Pass::Forward, |_| true),
            input_grad: coster.pass(Pass::InputGrad, |_| true),
            weight_grad: coster.pass(Pass::WeightGrad, |_| true),
            grads_apart: [Pass::InputGrad, Pass::WeightGrad].map(|pass| coster.pass_alone(pass)),
            recompute: Recompute::ALL
                .map(|policy| coster.pass(Pass::Forward, |op| work.is_recomputed(op, policy))),
            saved: Recompute::ALL.map(|policy| work.saved_bytes(policy)),
            largest_tensor: work.largest_tensor,
            parameters: work.parameters,
            output: work.output,
        }
    }

    /// The same block where no policy recomputes it.
    pub fn never_recomputed(self) -> Self {
        let [saved, ..] = self.saved;
        Self { recompute: [PassTime::default(); 3], saved: [saved; 3], ..self }
    }

    /// Time of a whole backward under a policy.
    pub fn backward(&self, recompute: Recompute) -> PassTime {
        self.input_grad + self.weight_grad + self.recompute[recompute as usize]
    }
}

/// A kernel or exchange with its time, for explanations.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    /// The operator.
    pub op: String,
    /// In which pass.
    pub pass: Pass,
    /// What is done.
    pub work: TermWork,
    /// How long it takes; of an exchange, what is left exposed.
    pub time: Seconds,
}

/// What a [`Term`] does.
#[derive(Clone, Debug, PartialEq)]
pub enum TermWork {
    /// A kernel, and what bounds it.
    Kernel(KernelWork, Bound),
    /// An exchange, and how long it takes where nothing hides it.
    Exchange(Exchange, Seconds),
}

/// Every kernel and exchange of `block` with its time.
pub fn terms(block: &Block, setting: &Setting, groups: &Groups, hardware: &Hardware) -> Vec<Term> {
    let work = block.work(setting);
    let coster = Coster { block, work: &work, groups, hardware };
    let kernels = work.kernels.iter().map(|kernel| {
        let Timing { time, bound } = coster.kernel(kernel);
        let op = block.op(kernel.op).name.clone();
        Term { op, pass: kernel.pass, work: TermWork::Kernel(*kernel, bound), time }
    });
    let exchanges = work.exchanges.iter().map(|exchange| {
        let whole = coster.exchange(exchange);
        let op = block.op(exchange.op).name.clone();
        let time = coster.exposed(exchange);
        Term { op, pass: exchange.pass, work: TermWork::Exchange(*exchange, whole), time }
    });
    kernels.chain(exchanges).collect()
}

/// A block's work, and what times it.
pub(crate) struct Coster<'a> {
    pub(crate) block: &'a Block,
    pub(crate) work: &'a BlockWork,
    pub(crate) groups: &'a Groups,
    pub(crate) hardware: &'a Hardware,
}

impl Coster<'_> {
    /// Time of what `included` operators do in `pass`.
    fn pass(&self, pass: Pass, included: impl Fn(OpId) -> bool) -> PassTime {
        let mut time = PassTime::default();
        for kernel in self.work.kernels.iter().filter(|k| k.pass == pass && included(k.op)) {
            time.compute += self.kernel(kernel).time;
        }
        for exchange in self.work.exchanges.iter().filter(|e| e.pass == pass && included(e.op)) {
            time.add_exposed(exchange.axis, self.exposed(exchange));
        }
        time
    }

    /// Time of `pass` where no other pass runs beside it.
    fn pass_alone(&self, pass: Pass) -> PassTime {
        let mut time = self.pass(pass, |_| true);
        let tensor = |exchange: &&Exchange| exchange.pass == pass && exchange.axis == Axis::Tensor;
        time.tensor = self.work.exchanges.iter().filter(tensor).map(|e| self.exchange(e)).sum();
        time
    }

    pub(crate) fn kernel(&self, work: &KernelWork) -> Timing {
        let Hardware { device, precision, .. } = self.hardware;
        match work.kernel {
            Kernel::MatMul { batch, m, n, k } => {
                // Only linear layers run in 8 bits; products of activations stay in 16.
                let format = match &self.block.op(work.op).kind {
                    OpKind::Linear { .. } | OpKind::GroupedLinear { .. } => *precision,
                    _ => precision.activation(),
                };
                let shape = MatmulShape { batch, m, n, k };
                let accumulates = work.pass == Pass::WeightGrad && self.hardware.fp32_gradients;
                device.training_matmul(format, shape, accumulates)
            }
            Kernel::Attention(shape) => self.attention(shape, work.pass),
            Kernel::Memory => {
                let time = device.memory_bound(work.read + work.written);
                let launch = device.launch_floor();
                let bound = if time < launch * 2.0 { Bound::Launch } else { Bound::Memory };
                Timing { time, bound }
            }
        }
    }

    /// Attention as the fitted curves know it, scaled by the pairs that mask and context
    /// parallelism leave.
    fn attention(&self, shape: graph::AttentionShape, pass: Pass) -> Timing {
        let causal = shape.mask != AttentionMask::Full;
        let known = AttentionShape {
            batch: shape.batch,
            sequence: shape.context,
            heads: shape.heads,
            kv_heads: shape.kv_heads,
            head_dim: shape.head_dim.midpoint(shape.value_head_dim),
            causal,
        };
        let context = shape.context as f64;
        let known_share = if causal { (context + 1.0) / (2.0 * context) } else { 1.0 };
        let share = shape.visible_fraction() / known_share * shape.queries as f64 / context;
        let Hardware { device, precision, .. } = self.hardware;
        let time = match pass {
            Pass::Forward => device.training_attention_forward(precision.activation(), known),
            _ => device.attention_backward(precision.activation(), known),
        };
        let time = (time * share).max(device.launch_floor());
        Timing { time, bound: Bound::Compute }
    }

    pub(crate) fn exchange(&self, exchange: &Exchange) -> Seconds {
        let group = self.groups.along(exchange.axis);
        match exchange.collective {
            Collective::SendReceive => self.hardware.hop(group, exchange.bytes),
            collective => self.hardware.network.time(collective, group, exchange.bytes),
        }
    }

    /// What is left of an exchange beside the kernels that run at the same time:
    ///
    /// - a ring of keys and values beside the attention that consumes it (Liu et al. 2023, arXiv
    ///   2310.01889, section 3);
    /// - the reduction of an input's gradient beside the product for the weight's, and the second
    ///   gathering of a sharded input beside the product for the input's gradient (Megatron-LM,
    ///   `linear_with_grad_accumulation_and_async_allreduce`);
    /// - all others wait.
    fn exposed(&self, exchange: &Exchange) -> Seconds {
        let beside = match (exchange.axis, exchange.pass) {
            (Axis::Context, pass) => Some(pass),
            (Axis::Tensor, Pass::InputGrad) if self.is_linear(exchange.op) => {
                Some(Pass::WeightGrad)
            }
            (Axis::Tensor, Pass::WeightGrad) => Some(Pass::InputGrad),
            _ => None,
        };
        let hidden: Seconds = self
            .work
            .kernels
            .iter()
            .filter(|kernel| kernel.op == exchange.op && Some(kernel.pass) == beside)
            .map(|kernel| self.kernel(kernel).time)
            .sum();
        (self.exchange(exchange) - hidden).max(Seconds::ZERO)
    }

    pub(crate) fn is_linear(&self, op: OpId) -> bool {
        matches!(self.block.op(op).kind, OpKind::Linear { .. } | OpKind::GroupedLinear { .. })
    }
}
