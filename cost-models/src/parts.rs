//! A block's passes part by part: which kernels and exchanges follow each other, and which run side by
//! side. The same kernels and exchanges as [`BlockCost`](crate::block::BlockCost) adds up.

use std::collections::BTreeSet;

use ir::graph::{Axis, Block, Exchange, OpId, Pass, Recompute, Setting};
use ir::units::Seconds;

use crate::Group;
use crate::block::{Coster, Groups};
use crate::frameworks::TensorOverlap;
use crate::hardware::Hardware;

/// A part of a pass. Parts follow each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part {
    /// Kernels.
    Compute(Seconds),
    /// An exchange begins, and the next part does not wait for it.
    Start(TimedExchange),
    /// Nothing, until all exchanges along the axis that began are over.
    Wait(Axis),
}

/// An exchange with its time if nothing else crosses its links.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimedExchange {
    /// What is exchanged.
    pub exchange: Exchange,
    /// Between whom.
    pub group: Group,
    /// How long it takes.
    pub time: Seconds,
}

/// The passes of a block of one class, for one micro-batch on one rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BlockParts {
    /// From input to output.
    pub forward: Vec<Part>,
    /// Both gradients, operator by operator, and what is computed again for them.
    pub backward: Vec<Part>,
    /// Gradients of activations alone, and what is computed again for them.
    pub input_grad: Vec<Part>,
    /// Gradients of parameters alone.
    pub weight_grad: Vec<Part>,
}

impl BlockParts {
    /// The passes of `block` in `setting` on `hardware`, recomputing what the policy says.
    pub fn new(
        block: &Block,
        setting: &Setting,
        groups: &Groups,
        hardware: &Hardware,
        recompute: Recompute,
    ) -> Self {
        let work = block.work(setting);
        let coster = Coster::new(block, &work, groups, hardware);
        let kernels = work.kernels.iter().map(|kernel| kernel.op);
        let ops: BTreeSet<OpId> =
            kernels.chain(work.exchanges.iter().map(|exchange| exchange.op)).collect();
        let mut parts = Self::default();
        let mut again = Sequence::new(&coster);
        let mut forward = Sequence::new(&coster);
        for op in &ops {
            forward.forward(*op);
            if work.is_recomputed(*op, recompute) {
                again.forward(*op);
            }
        }
        forward.compute(coster.forward(|_| true).host);
        again.compute(coster.forward(|op| work.is_recomputed(op, recompute)).host);
        parts.forward = forward.parts;
        let mut backward = Sequence { parts: again.parts.clone(), coster: &coster };
        let mut input_grad = again;
        let mut weight_grad = Sequence::new(&coster);
        for op in ops.iter().rev() {
            backward.backward(*op);
            input_grad.input_grad(*op);
            weight_grad.weight_grad(*op);
        }
        backward.compute(coster.backward_wait());
        input_grad.compute(coster.pass_alone(Pass::InputGrad).host);
        weight_grad.compute(coster.pass_alone(Pass::WeightGrad).host);
        parts.backward = backward.parts;
        parts.input_grad = input_grad.parts;
        parts.weight_grad = weight_grad.parts;
        parts
    }
}

struct Sequence<'a> {
    coster: &'a Coster<'a>,
    parts: Vec<Part>,
}

impl<'a> Sequence<'a> {
    fn new(coster: &'a Coster<'a>) -> Self {
        Self { coster, parts: Vec::new() }
    }

    /// An operator waits for what it consumes; a ring of keys and values runs beside the attention.
    fn forward(&mut self, op: OpId) {
        self.exchanges(op, Pass::Forward, |axis| axis != Axis::Context);
        self.beside(op, Pass::Forward, |axis| axis == Axis::Context, Pass::Forward);
    }

    /// The gradient of an operator's input, then of its weight, each beside the exchanges of the other:
    /// the input is gathered again for the weight's while the input's is computed, and the input's is
    /// reduced while the weight's is.
    fn backward(&mut self, op: OpId) {
        let overlaps = self.coster.hardware.framework.tensor_overlap == TensorOverlap::Gradients;
        let is_linear = overlaps && self.coster.is_linear(op);
        let gathers = self.begin(op, Pass::WeightGrad, |axis| overlaps && axis == Axis::Tensor);
        self.beside(op, Pass::InputGrad, |axis| axis == Axis::Context, Pass::InputGrad);
        self.wait(gathers);
        let beside_weight = |axis| is_linear && axis == Axis::Tensor;
        let others = |axis| axis != Axis::Context && !beside_weight(axis);
        self.exchanges(op, Pass::InputGrad, others);
        self.exchanges(op, Pass::WeightGrad, |axis| !overlaps || axis != Axis::Tensor);
        self.beside(op, Pass::InputGrad, beside_weight, Pass::WeightGrad);
    }

    /// The gradient of an operator's input alone, which nothing but itself can hide.
    fn input_grad(&mut self, op: OpId) {
        self.beside(op, Pass::InputGrad, |axis| axis == Axis::Context, Pass::InputGrad);
        self.exchanges(op, Pass::InputGrad, |axis| axis != Axis::Context);
    }

    fn weight_grad(&mut self, op: OpId) {
        self.exchanges(op, Pass::WeightGrad, |_| true);
        self.kernels(op, Pass::WeightGrad);
    }

    /// Exchanges that all wait for.
    fn exchanges(&mut self, op: OpId, pass: Pass, which: impl Fn(Axis) -> bool) {
        let axes = self.begin(op, pass, which);
        self.wait(axes);
    }

    /// Exchanges of a pass, and kernels of another (or of the same) that run at the same time.
    fn beside(&mut self, op: OpId, pass: Pass, which: impl Fn(Axis) -> bool, kernels: Pass) {
        let axes = self.begin(op, pass, which);
        self.kernels(op, kernels);
        self.wait(axes);
    }

    fn begin(&mut self, op: OpId, pass: Pass, which: impl Fn(Axis) -> bool) -> BTreeSet<Axis> {
        let Coster { work, groups, .. } = self.coster;
        let is_meant = |exchange: &&Exchange| {
            exchange.op == op && exchange.pass == pass && which(exchange.axis)
        };
        let mut axes = BTreeSet::new();
        for exchange in work.exchanges.iter().filter(is_meant) {
            let time = self.coster.left_to_begin(exchange);
            if time > Seconds::ZERO {
                let group = groups.along(exchange.axis);
                self.parts.push(Part::Start(TimedExchange { exchange: *exchange, group, time }));
                axes.insert(exchange.axis);
            }
        }
        axes
    }

    fn wait(&mut self, axes: BTreeSet<Axis>) {
        self.parts.extend(axes.into_iter().map(Part::Wait));
    }

    fn kernels(&mut self, op: OpId, pass: Pass) {
        let time = self.coster.kernels_of(op, pass);
        self.compute(time);
    }

    fn compute(&mut self, time: Seconds) {
        if time == Seconds::ZERO {
            return;
        }
        match self.parts.last_mut() {
            Some(Part::Compute(last)) => *last += time,
            _ => self.parts.push(Part::Compute(time)),
        }
    }
}

/// How long parts take if nothing shares their links: exchanges along an axis one after the other,
/// beside the kernels.
pub fn time_alone<'a>(parts: impl IntoIterator<Item = &'a Part>) -> Seconds {
    let mut now = Seconds::ZERO;
    let mut ends = [Seconds::ZERO; 3];
    for part in parts {
        match part {
            Part::Compute(time) => now += *time,
            Part::Start(exchange) => {
                let end = &mut ends[exchange.exchange.axis as usize];
                *end = end.max(now) + exchange.time;
            }
            Part::Wait(axis) => now = now.max(ends[*axis as usize]),
        }
    }
    now
}
