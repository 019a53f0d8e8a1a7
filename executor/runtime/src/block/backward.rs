//! Backward through a block: gradients of its inputs, gradients of its parameters, or both.
//!
//! The gradient of a tensor has the tensor's placement, but the gradient of a partial sum is whole. Where a tensor was
//! moved for its uses, its gradient is moved back by the conjugate collective, once for all uses.

use std::collections::BTreeMap;

use executor_communicators::InFlight;
use executor_kernels::array::Array;
use executor_kernels::ops::Kernels;
use executor_kernels::ops::{activation, conv, embedding, linear, pool};
use ir::graph::{OpId, OpKind, Pass, Placement};

use super::forward::function_of;
use super::parts::{repeated, summed};
use super::value::{Extra, Value};
use super::{BlockRun, Gradients, Result, SavedActivations};
use crate::gradient::Gradient;

/// Sums of the gradients that the uses of one tensor give.
#[derive(Default)]
struct Uses<B: Kernels> {
    /// Sum in the tensor's own placement.
    settled: Option<Value<B>>,
    /// Sums in other placements, to which the tensor was moved: gradients that each rank has whole, and partial ones.
    moved: BTreeMap<Placement, [Option<Value<B>>; 2]>,
}

/// The gradient of a tensor, with moves to the tensor's placement in flight.
struct Settling<B: Kernels> {
    settled: Option<Value<B>>,
    moving: Vec<InFlight<Value<B>>>,
}

impl<B: Kernels> Settling<B> {
    /// Returns whether no moves are in flight.
    fn is_done(&self) -> bool {
        self.moving.iter().all(InFlight::is_done)
    }

    /// The whole gradient, if there is one.
    fn wait(self) -> Result<Option<Value<B>>> {
        let mut settled = self.settled;
        for moving in self.moving {
            settled = Some(moving.wait()?.added_to(settled));
        }
        Ok(settled)
    }
}

impl<B: Kernels> BlockRun<'_, B> {
    /// Gradients of the block's inputs, in their order, from the gradients of its outputs; none for inputs that need
    /// none. Gradients of parameters go to `gradients`, or are left to [`Self::weight_grads`].
    pub(crate) fn input_grads(
        &self,
        outputs: Vec<Option<Value<B>>>,
        kept: &mut SavedActivations<B>,
        mut gradients: Option<&mut Gradients<'_, B>>,
    ) -> Result<Vec<Option<Value<B>>>> {
        let program = self.program;
        let mut uses: Vec<Uses<B>> = program.inputs.iter().map(|_| Uses::default()).collect();
        for (id, gradient) in program.block.outputs().iter().zip(outputs) {
            if let Some(gradient) = gradient {
                let to = self.output_placement(*id);
                self.use_gradient(&mut uses, *id, to, false, gradient);
            }
        }
        let mut of_inputs = Vec::new();
        // Weight gradients of linear layers, deferred to overlap with a collective.
        let mut deferred = Vec::new();
        let nodes: Vec<OpId> = program.block.nodes().map(|node| node.id).collect();
        for id in nodes.into_iter().rev() {
            let settling = self.start_settling(id, std::mem::take(&mut uses[id.index()]))?;
            if !settling.is_done()
                && let Some(gradients) = &mut gradients
            {
                self.run_deferred(&mut deferred, kept, &mut **gradients)?;
            }
            let gradient = settling.wait()?;
            let op = program.op(id);
            match (&op.kind, gradient) {
                (OpKind::Input, gradient) => of_inputs.push(gradient),
                (OpKind::CrossEntropy { .. } | OpKind::MeanSquaredError, _) => {
                    let gradient = self.loss_grad(id, kept);
                    let to = self.wanted(id, 0);
                    self.use_gradient(
                        &mut uses,
                        program.inputs[id.index()][0],
                        to,
                        false,
                        gradient,
                    );
                    self.lap(id, Pass::InputGrad);
                }
                (_, None) => {}
                (_, Some(gradient)) => {
                    let is_linear = matches!(op.kind, OpKind::Linear { .. });
                    if is_linear && op.is_trained() && gradients.is_some() {
                        self.prefetch(id, 0, kept)?;
                    }
                    let added = B::adds_products()
                        && is_linear
                        && self.add_product(id, &gradient, &mut uses);
                    let slots =
                        if added { Vec::new() } else { self.input_grad(id, &gradient, kept)? };
                    for (slot, gradient) in slots.into_iter().enumerate() {
                        let source = program.inputs[id.index()][slot];
                        let Some(gradient) = gradient else { continue };
                        let is_partial = program.placements.partial_gradients[id.index()][slot];
                        let from = program.placements.outputs[source.index()];
                        let is_summand = op.kind == OpKind::Add && from == Placement::Partial;
                        let to = if is_summand { from } else { self.wanted(id, slot) };
                        self.use_gradient(&mut uses, source, to, is_partial, gradient);
                    }
                    self.lap(id, Pass::InputGrad);
                    if op.is_trained() {
                        match &mut gradients {
                            Some(_) if is_linear && self.env.tensor.len() > 1 => {
                                deferred.push((id, gradient));
                            }
                            Some(gradients) => {
                                self.weight_grad(id, gradient, kept, gradients)?;
                                self.lap(id, Pass::WeightGrad);
                            }
                            None => kept.pending.push((id, gradient)),
                        }
                    }
                }
            }
        }
        if let Some(gradients) = &mut gradients {
            self.run_deferred(&mut deferred, kept, &mut **gradients)?;
        }
        of_inputs.reverse();
        if gradients.is_none() {
            kept.values.retain(|key, _| program.kept_for_weight_grad.contains(key));
        }
        Ok(of_inputs)
    }

    /// Computes the deferred weight gradients.
    fn run_deferred(
        &self,
        deferred: &mut Vec<(OpId, Value<B>)>,
        kept: &mut SavedActivations<B>,
        gradients: &mut Gradients<'_, B>,
    ) -> Result<()> {
        for (id, gradient) in deferred.drain(..) {
            self.weight_grad(id, gradient, kept, gradients)?;
            self.lap(id, Pass::WeightGrad);
        }
        Ok(())
    }

    /// The weight gradients that [`Self::input_grads`] left for later.
    pub(crate) fn weight_grads(
        &self,
        kept: &mut SavedActivations<B>,
        gradients: &mut Gradients<'_, B>,
    ) -> Result<()> {
        for (id, gradient) in std::mem::take(&mut kept.pending) {
            self.weight_grad(id, gradient, kept, gradients)?;
        }
        Ok(())
    }

    /// Adds the gradient that one use of a tensor gives.
    fn use_gradient(
        &self,
        uses: &mut [Uses<B>],
        source: OpId,
        to: Placement,
        is_partial: bool,
        gradient: Value<B>,
    ) {
        if self.program.requires_grad[source.index()] {
            let sum = self.sum_of_uses(uses, source, to, is_partial);
            *sum = Some(gradient.added_to(sum.take()));
        }
    }

    /// The sum of the gradients of a tensor's uses with this placement.
    fn sum_of_uses<'a>(
        &self,
        uses: &'a mut [Uses<B>],
        source: OpId,
        to: Placement,
        is_partial: bool,
    ) -> &'a mut Option<Value<B>> {
        let from = self.program.placements.outputs[source.index()];
        let uses = &mut uses[source.index()];
        if from == to && !is_partial {
            &mut uses.settled
        } else {
            &mut uses.moved.entry(to).or_default()[usize::from(is_partial)]
        }
    }

    /// Adds the input gradient of the linear layer `id` to the sum of other uses, if there is one, in the product's own
    /// kernel. Returns whether it did.
    fn add_product(&self, id: OpId, gradient: &Value<B>, uses: &mut [Uses<B>]) -> bool {
        if !self.needs_grad(id, 0) {
            return false;
        }
        let source = self.program.inputs[id.index()][0];
        let is_partial = self.program.placements.partial_gradients[id.index()][0];
        let sum = self.sum_of_uses(uses, source, self.wanted(id, 0), is_partial);
        let Some(Value::Array(others)) = sum else { return false };
        let (grad, weight, shape) = self.factors_of_input_grad(id, gradient.clone().array());
        let others = others.clone().reshape(&[grad.size(0), weight.size(0)]);
        let all = linear::input_grad_plus(grad, weight, others).reshape(&shape);
        *sum = Some(Value::Array(all));
        true
    }

    /// The rows of a linear layer's gradient, its weight as a matrix, and the shape of its input.
    fn factors_of_input_grad(&self, id: OpId, grad: Array<B>) -> (Array<B>, Array<B>, Vec<usize>) {
        let OpKind::Linear { contracted, .. } = &self.program.op(id).kind else {
            panic!("the gradient of a linear layer is asked for")
        };
        let weight = self.weight(id, "weight").expect("a linear layer has a weight");
        let produced = weight.rank() - contracted.len();
        let mut shape = grad.shape();
        shape.truncate(shape.len() - produced);
        shape.extend(&weight.shape()[..contracted.len()]);
        (grad.rows(produced), weight.rows(produced), shape)
    }

    /// Starts to move the gradients of the uses of `id`'s output to the placement of that output.
    fn start_settling(&self, id: OpId, uses: Uses<B>) -> Result<Settling<B>> {
        let from = self.program.placements.outputs[id.index()];
        let tensor = &self.program.op(id).output;
        let mut moving = Vec::new();
        for (to, gradients) in uses.moved {
            for (is_partial, gradient) in [false, true].into_iter().zip(gradients) {
                if let Some(gradient) = gradient {
                    moving.push(self.start_moving_back(gradient, from, to, is_partial, tensor)?);
                }
            }
        }
        Ok(Settling { settled: uses.settled, moving })
    }

    fn needs_grad(&self, id: OpId, slot: usize) -> bool {
        self.program.requires_grad[self.program.inputs[id.index()][slot].index()]
    }

    /// Gradients of the inputs of operator `id`, in the placements in which the operator takes the inputs.
    #[expect(clippy::too_many_lines, reason = "a table: one arm an operator")]
    fn input_grad(
        &self,
        id: OpId,
        gradient: &Value<B>,
        kept: &mut SavedActivations<B>,
    ) -> Result<Vec<Option<Value<B>>>> {
        let op = self.program.op(id);
        let grad = || gradient.clone().array();
        let one = |array: Array<B>| vec![Some(Value::Array(array))];
        if op.kind != OpKind::Add
            && !(0..self.program.inputs[id.index()].len()).any(|s| self.needs_grad(id, s))
        {
            return Ok(Vec::new());
        }
        Ok(match &op.kind {
            OpKind::Input | OpKind::Buffer { .. } | OpKind::Embedding { .. } => Vec::new(),
            OpKind::Linear { .. } => {
                let (grad, weight, shape) = self.factors_of_input_grad(id, grad());
                one(linear::input_grad(grad, weight).reshape(&shape))
            }
            OpKind::GroupedLinear { .. } => {
                let routed = gradient.clone().routed();
                vec![Some(Value::Routed(self.grouped_input_grad(id, &routed)))]
            }
            OpKind::Attention { .. } => {
                let grads = self.attend_grad(id, grad(), kept)?;
                grads.map(|grad| Some(Value::Array(grad))).into()
            }
            OpKind::ShortConvolution { .. } => one(self.convolved_input_grad(id, grad(), kept)?),
            OpKind::Recurrence { .. } => {
                let grads = self.recurrence_grad(id, grad(), kept)?;
                grads.into_iter().map(|grad| Some(Value::Array(grad))).collect()
            }
            OpKind::Norm { .. } => one(self.norm_input_grad(id, grad(), kept)?),
            OpKind::Activation(function) => {
                let function = function_of(*function);
                let kept = if function.keeps_output() {
                    self.take((id, self.program.placements.outputs[id.index()]), kept)?
                } else {
                    self.input(id, 0, kept)?
                };
                let grads =
                    kept.joined(gradient.clone(), |kept, grad| [function.input_grad(kept, grad)]);
                grads.map(Some).into()
            }
            OpKind::GatedActivation(function) => {
                let function = function_of(*function);
                let (gate, value) = (self.input(id, 0, kept)?, self.input(id, 1, kept)?);
                let gradient = gradient.clone().into_rows();
                let grads = gate.joined(value, |gate, value| {
                    let (gate, value) =
                        activation::gated_input_grad(function, gate, value, gradient);
                    [gate, value]
                });
                grads.map(Some).into()
            }
            OpKind::ClampedSwiGlu { limit } => {
                let (gate, value) = (self.input(id, 0, kept)?, self.input(id, 1, kept)?);
                let slopes = gate.joined(value, |gate, value| {
                    activation::clamped_swiglu_slopes(gate, value, limit.0)
                });
                let times = |slope| gradient.clone().joined(slope, |grad, slope| [grad * slope]);
                slopes.map(times).into_iter().flatten().map(Some).collect()
            }
            OpKind::SoftCap { cap } => {
                let place = self.program.placements.outputs[id.index()];
                let y = self.take((id, place), kept)?;
                let grads = y.joined(gradient.clone(), |y, grad| {
                    [activation::soft_cap_grad(y, grad, cap.0)]
                });
                grads.map(Some).into()
            }
            OpKind::Clamp { limit } => {
                let x = self.input(id, 0, kept)?;
                let grads = x
                    .joined(gradient.clone(), |x, grad| [activation::clamp_grad(x, grad, limit.0)]);
                grads.map(Some).into()
            }
            OpKind::Add => self.add_grad(id, gradient)?,
            OpKind::Scale { factor } => vec![Some(gradient.clone().scale(factor.0))],
            OpKind::Multiply => {
                let (a, b) = (self.input(id, 0, kept)?.array(), self.input(id, 1, kept)?.array());
                let (own, dims) = (self.given(id, 1), self.given(id, 0));
                let of_b = summed(grad() * a.clone(), own, dims);
                let of_a = grad() * repeated(b, own, dims, &a.shape());
                [of_a, of_b].map(|grad| Some(Value::Array(grad))).into()
            }
            OpKind::Rotary(rotation) => {
                let grad = grad();
                one(self.rotary(id, rotation, grad.size(grad.rank() - 1)).apply_inverse(grad))
            }
            OpKind::Slice { dim, start } => {
                let grad = grad();
                let (dim, range) = self.sliced(id, dim.name, *start as usize);
                let shape = self.kept_shape(id, kept);
                let nothing = Array::zeros(&shape, grad.element(), &grad.device());
                one(nothing.add_at(dim, range.start, grad))
            }
            OpKind::Concat { over } => self.concat_grad(id, *over, &grad()),
            OpKind::AddParameter { .. } => one(grad()),
            // The correction of a router has no gradient.
            OpKind::Router { .. } => one(self.router_input_grad(id, grad(), kept)?),
            OpKind::Dispatch { .. } => {
                let routed = gradient.clone().routed();
                vec![Some(Value::Array(self.dispatch_grad(routed)?)), None]
            }
            OpKind::Combine => self.combine_grad(id, grad(), kept)?,
            OpKind::Conv2d { window, groups, .. } => {
                let x = self.input(id, 0, kept)?.array();
                let weight = self.weight(id, "weight").expect("a convolution has a weight");
                one(conv::input_grad(x, weight, grad(), window, *groups as usize))
            }
            OpKind::MaxPool2d(window) => {
                let x = self.input(id, 0, kept)?.array();
                let Some(Extra::Places(places)) = self.extra(id, kept)? else {
                    panic!("a maximum keeps where it was found")
                };
                one(pool::max_input_grad(x, places, window, grad()))
            }
            OpKind::AveragePool2d(window) => {
                let x = self.input(id, 0, kept)?.array();
                one(pool::average_input_grad(&x.shape(), window, grad()))
            }
            OpKind::AdaptiveAveragePool2d { .. } => {
                one(pool::adaptive_average_input_grad(&self.kept_shape(id, kept), grad()))
            }
            OpKind::Dropout { .. } => one(self.dropped(id, grad(), kept)),
            OpKind::PatchesToSequence => {
                one(grad().swap_dims(1, 2).reshape(&self.kept_shape(id, kept)))
            }
            OpKind::PrependParameter => {
                let grad = grad();
                one(grad.narrow(1, 1..grad.size(1)))
            }
            OpKind::FirstToken => {
                let (grad, shape) = (grad(), self.kept_shape(id, kept));
                let nothing = Array::zeros(&shape, grad.element(), &grad.device());
                one(nothing.add_at(1, 0, grad.reshape(&[shape[0], 1, shape[2]])))
            }
            OpKind::Gather => one(grad()),
            OpKind::Flatten => one(grad().reshape(&self.kept_shape(id, kept))),
            other => panic!("a checked program has no operator {other:?}"),
        })
    }

    fn kept_shape(&self, id: OpId, kept: &SavedActivations<B>) -> Vec<usize> {
        match kept.extras.get(&id) {
            Some(Extra::Shape(shape)) => shape.clone(),
            _ => panic!("`{}` keeps the shape of its input", self.program.op(id).name),
        }
    }

    /// Each summand has the gradient of the sum. Partial sums, which were added before they were moved, get it in their
    /// own placement; it is moved back once.
    fn add_grad(&self, id: OpId, gradient: &Value<B>) -> Result<Vec<Option<Value<B>>>> {
        let sources = &self.program.inputs[id.index()];
        let mut back: Option<Value<B>> = None;
        let mut grads = Vec::with_capacity(sources.len());
        for (slot, source) in sources.iter().enumerate() {
            let from = self.program.placements.outputs[source.index()];
            let to = self.wanted(id, slot);
            let whole = gradient.clone();
            if from != Placement::Partial || to == Placement::Partial || !self.needs_grad(id, slot)
            {
                grads.push(Some(whole));
                continue;
            }
            let tensor = &self.program.op(*source).output;
            let value = match back.take() {
                Some(value) => value,
                None => self.start_moving_back(whole, from, to, false, tensor)?.wait()?,
            };
            back = Some(value.clone());
            grads.push(Some(value));
        }
        Ok(grads)
    }

    /// Gradients of the parameters of operator `id`.
    fn weight_grad(
        &self,
        id: OpId,
        gradient: Value<B>,
        kept: &mut SavedActivations<B>,
        gradients: &mut Gradients<'_, B>,
    ) -> Result<()> {
        let op = self.program.op(id);
        let index = |name: &str| op.parameters.iter().position(|p| p.name == name);
        let mut ready = |at: usize, grad: Array<B>| gradients(id, at, Gradient::Ready(grad));
        match &op.kind {
            OpKind::Embedding { .. } => {
                let (ids, _) = self.embedded_ids(id, &kept.micro_batch);
                let rows = self.weights[id.index()][0].shape()[0];
                let grad = gradient.array().rows(1);
                ready(0, embedding::weight_grad(&ids, self.first_row(id), rows, grad));
            }
            OpKind::Linear { contracted, .. } => {
                let x = self.input(id, 0, kept)?.array().rows(contracted.len());
                let shape = self.weights[id.index()][0].shape();
                let grad = gradient.array().rows(shape.len() - contracted.len());
                if let Some(bias) = index("bias") {
                    let bias_shape = self.weights[id.index()][bias].shape();
                    ready(bias, linear::bias_grad(grad.clone()).reshape(&bias_shape));
                }
                gradients(id, 0, Gradient::of_linear(x, grad, shape));
            }
            OpKind::GroupedLinear { .. } => {
                let x = self.input(id, 0, kept)?.routed();
                self.grouped_weight_grad(id, x, gradient.routed(), gradients);
            }
            OpKind::Norm { .. } => {
                let grads = self.norm_weight_grad(id, gradient.array(), kept)?;
                for (name, grad) in ["weight", "bias"].into_iter().zip(grads) {
                    if let Some(index) = index(name) {
                        let shape = self.weights[id.index()][index].shape();
                        ready(index, grad.reshape(&shape));
                    }
                }
            }
            OpKind::ShortConvolution { .. } => {
                let grads = self.convolved_weight_grad(id, gradient.array(), kept)?;
                for (index, grad) in grads.into_iter().enumerate() {
                    ready(index, grad);
                }
            }
            OpKind::Attention { .. } | OpKind::Recurrence { .. } => {
                for (index, gradient) in kept.of_parameters.remove(&id).unwrap_or_default() {
                    ready(index, gradient);
                }
            }
            OpKind::AddParameter { .. } => {
                let dims = &op.parameters[0].dims;
                ready(0, summed(gradient.array(), dims, self.given(id, 0)));
            }
            OpKind::PrependParameter => {
                let gradient = gradient.array().narrow(1, 0..1);
                ready(0, gradient.sum_dim(0).flatten());
            }
            OpKind::Router { .. } => {
                self.router_weight_grad(id, gradient.array(), kept, gradients)?;
            }
            OpKind::Conv2d { window, groups, .. } => {
                let x = self.input(id, 0, kept)?.array();
                let grad = gradient.array();
                let weight = self.weights[id.index()][0].array();
                if let Some(bias) = index("bias") {
                    ready(bias, conv::bias_grad(grad.clone()));
                }
                ready(0, conv::weight_grad(x, weight, grad, window, *groups as usize));
            }
            other => panic!("a checked program trains nothing in {other:?}"),
        }
        Ok(())
    }
}
