//! The passes of a block, part by part: the order of kernels and exchanges, and their overlap.

use ir::collective::Collective;
use ir::framework::{RecomputeEnd, TensorOverlap};
use ir::graph::{Axis, Block, BlockRecompute, Exchange, OpId, Pass, ShardContext};
use ir::units::Nanos;

use super::cost::{BlockCost, ExpertTimes};
use super::groups::Groups;
use super::part::{BlockPart, KernelSequence, TimedExchange};
use super::play::{ByAxis, played};
use super::policy::ByPolicy;
use crate::hardware::Hardware;

/// The passes of a block of one class, for one micro-batch on one rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BlockParts {
    /// Parts of the forward pass.
    pub forward: Vec<BlockPart>,
    /// Parts of the backward pass, with both gradients, operator by operator.
    pub backward: Vec<BlockPart>,
    /// Parts of the gradients of activations alone.
    pub input_grad: Vec<BlockPart>,
    /// Parts of the gradients of parameters alone.
    pub weight_grad: Vec<BlockPart>,
    /// Parts of recompute before the gradients, by policy.
    pub recompute: ByPolicy<Vec<BlockPart>>,
}

impl BlockCost<'_> {
    /// The exchanges of the block that take any time, by operator.
    fn exchanges(&self) -> Vec<TimedExchange> {
        let timed = self.timed_exchanges().map(|(exchange, whole)| TimedExchange {
            exchange: *exchange,
            group: self.groups.along(exchange.axis),
            whole: whole.into(),
            time: self.not_hidden(exchange, whole).into(),
        });
        let mut timed: Vec<TimedExchange> =
            timed.filter(|timed| timed.whole > Nanos::ZERO).collect();
        timed.sort_by_key(|timed| timed.exchange.op);
        timed
    }
}

impl BlockParts {
    /// The passes of `block`, sharded as `setting` says, on `hardware`.
    pub fn new(
        block: &Block,
        setting: &ShardContext,
        groups: &Groups,
        hardware: &Hardware,
    ) -> Self {
        let work = block.work(setting);
        Self::of(&BlockCost::new(block, &work, setting, groups, hardware, ExpertTimes::Exact))
    }

    pub(super) fn of(cost: &BlockCost<'_>) -> Self {
        let work = cost.work;
        let exchanges = cost.exchanges();
        let ops = || cost.block.nodes().map(|node| node.id);
        let forward = |included: &dyn Fn(OpId) -> bool| {
            let mut forward = Sequence::new(cost, &exchanges);
            ops().filter(|op| included(*op)).for_each(|op| forward.forward(op));
            forward.launched(&[Pass::Forward], included)
        };
        let [mut backward, mut input_grad, mut weight_grad] =
            std::array::from_fn(|_| Sequence::new(cost, &exchanges));
        for op in ops().rev() {
            backward.backward(op);
            input_grad.input_grad(op);
            weight_grad.weight_grad(op);
        }
        Self {
            forward: forward(&|_| true),
            backward: backward.launched(&[Pass::InputGrad, Pass::WeightGrad], |_| true),
            input_grad: input_grad.launched(&[Pass::InputGrad], |_| true),
            weight_grad: weight_grad.launched(&[Pass::WeightGrad], |_| true),
            recompute: ByPolicy::new(|policy| match policy {
                BlockRecompute::None => Vec::new(),
                BlockRecompute::Full
                    if cost.hardware.framework.recompute_end == RecomputeEnd::LastSaved =>
                {
                    let last = work.last_saved();
                    forward(&|op| Some(op) <= last)
                }
                policy => forward(&|op| work.is_recomputed(op, policy)),
            }),
        }
    }
}

/// Returns whether an exchange is a ring of keys and values.
fn is_ring(exchange: &Exchange) -> bool {
    exchange.axis == Axis::Context && exchange.collective == Collective::SendReceive
}

struct Sequence<'a> {
    cost: &'a BlockCost<'a>,
    exchanges: &'a [TimedExchange],
    parts: Vec<BlockPart>,
}

impl<'a> Sequence<'a> {
    fn new(cost: &'a BlockCost<'a>, exchanges: &'a [TimedExchange]) -> Self {
        Self { cost, exchanges, parts: Vec::with_capacity(16) }
    }

    /// Adds the forward of an operator: it waits for its inputs; a ring of keys and values overlaps the attention.
    fn forward(&mut self, op: OpId) {
        self.exchanges(op, Pass::Forward, |it| !is_ring(it));
        self.overlap(op, Pass::Forward, is_ring, Pass::Forward);
    }

    /// Adds the gradient of an operator's input, then of its weight, each overlapped with the exchanges of the other:
    /// the input is gathered for the weight's gradient while the input's gradient is computed, and the input's gradient
    /// is reduced while the weight's is computed.
    fn backward(&mut self, op: OpId) {
        let overlaps =
            self.cost.hardware.framework.tensor_parallel.overlap == TensorOverlap::Gradients;
        let is_linear = overlaps && self.cost.is_linear(op);
        let gathers = self.begin(op, Pass::WeightGrad, |it| overlaps && it.axis == Axis::Tensor);
        self.overlap(op, Pass::InputGrad, is_ring, Pass::InputGrad);
        self.wait(gathers);
        let overlaps_weight_grad = |it: &Exchange| is_linear && it.axis == Axis::Tensor;
        let others = |it: &Exchange| !is_ring(it) && !overlaps_weight_grad(it);
        self.exchanges(op, Pass::InputGrad, others);
        self.exchanges(op, Pass::WeightGrad, |it| !overlaps || it.axis != Axis::Tensor);
        self.overlap(op, Pass::InputGrad, overlaps_weight_grad, Pass::WeightGrad);
    }

    /// Adds the gradient of an operator's input alone; only its own kernels can hide exchanges.
    fn input_grad(&mut self, op: OpId) {
        self.overlap(op, Pass::InputGrad, is_ring, Pass::InputGrad);
        self.exchanges(op, Pass::InputGrad, |it| !is_ring(it));
    }

    fn weight_grad(&mut self, op: OpId) {
        self.exchanges(op, Pass::WeightGrad, |_| true);
        self.kernels(op, Pass::WeightGrad);
    }

    /// Adds exchanges that are waited for at once, one axis after the other: an operator's exchange along one axis uses
    /// the data of its exchange along the axis before.
    fn exchanges(&mut self, op: OpId, pass: Pass, which: impl Fn(&Exchange) -> bool) {
        if self.exchanges_of(op, pass).next().is_none() {
            return;
        }
        for axis in Axis::ALL {
            let axes = self.begin(op, pass, |it| it.axis == axis && which(it));
            self.wait(axes);
        }
    }

    /// Adds exchanges of a pass, overlapped with kernels of another pass or of the same.
    fn overlap(&mut self, op: OpId, pass: Pass, which: impl Fn(&Exchange) -> bool, kernels: Pass) {
        let axes = self.begin(op, pass, which);
        self.kernels(op, kernels);
        self.wait(axes);
    }

    /// Exchanges of an operator in a pass.
    fn exchanges_of(
        &self,
        op: OpId,
        pass: Pass,
    ) -> impl Iterator<Item = &'a TimedExchange> + use<'a> {
        let first = self.exchanges.partition_point(|it| it.exchange.op < op);
        let of_op = self.exchanges[first..].iter().take_while(move |it| it.exchange.op == op);
        of_op.filter(move |it| it.exchange.pass == pass)
    }

    /// Begins exchanges of a pass; returns true for the axes of those that began.
    fn begin(&mut self, op: OpId, pass: Pass, which: impl Fn(&Exchange) -> bool) -> ByAxis<bool> {
        let mut axes = ByAxis::default();
        for timed in self.exchanges_of(op, pass).filter(|it| which(&it.exchange)) {
            self.parts.push(BlockPart::Start(*timed));
            axes[timed.exchange.axis as usize] = true;
        }
        axes
    }

    fn wait(&mut self, axes: ByAxis<bool>) {
        let waited = Axis::ALL.into_iter().filter(|axis| axes[*axis as usize]);
        self.parts.extend(waited.map(BlockPart::Wait));
    }

    fn kernels(&mut self, op: OpId, pass: Pass) {
        let of_op = self.cost.kernels_of(op, pass);
        let (time, flops, touched) = (Nanos::from(of_op.time), of_op.flops, of_op.touched);
        match self.parts.last_mut() {
            _ if time == Nanos::ZERO => {}
            Some(BlockPart::Kernels(last)) => {
                last.time += time;
                last.flops += flops;
                last.touched += touched;
            }
            _ => self.parts.push(BlockPart::Kernels(KernelSequence { time, flops, touched })),
        }
    }

    /// The parts, followed by the wait for the host where it launches them more slowly than they run.
    fn launched(mut self, passes: &[Pass], included: impl Fn(OpId) -> bool) -> Vec<BlockPart> {
        let device = played(&self.parts, self.cost.hardware.slowdown_per_mille(), |_| {});
        let host = self.cost.wait_for_host(passes, included, device.total());
        if host > Nanos::ZERO {
            self.parts.push(BlockPart::Host(host));
        }
        self.parts
    }
}
