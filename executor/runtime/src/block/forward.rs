//! Forward through a block.

use std::sync::Arc;

use executor_kernels::array::Array;
use executor_kernels::ops::Kernels;
use executor_kernels::ops::activation::{self, Function};
use executor_kernels::ops::rotary::{self, Rotary};
use executor_kernels::ops::{conv, embedding, linear, pool};
use ir::graph::{Activation, EmbeddedRows, OpId, OpKind, Pass, Placement, Rotation};

use super::parts::repeated;
use super::program::Key;
use super::value::{Extra, Value};
use super::{BlockRun, MicroBatch, Result, SavedActivations, SharedMicroBatch};
use crate::program::DECODER_TOKENS;

impl<B: Kernels> BlockRun<'_, B> {
    /// The outputs of the block for `inputs`, which are in the order of the graph's inputs, and the activations saved
    /// for backward.
    pub(crate) fn forward(
        &self,
        inputs: Vec<Value<B>>,
        micro_batch: &SharedMicroBatch<B>,
    ) -> Result<(Vec<Value<B>>, SavedActivations<B>)> {
        let program = self.program;
        let mut kept = SavedActivations::new(Arc::clone(micro_batch));
        let mut inputs = inputs.into_iter();
        let mut uses: Vec<usize> = vec![0; program.inputs.len()];
        for source in program.inputs.iter().flatten().chain(program.block.outputs()) {
            uses[source.index()] += 1;
        }
        for node in program.block.nodes() {
            if B::adds_products() && program.is_summand(node.id) {
                continue;
            }
            let value = if node.op.kind == OpKind::Input {
                inputs.next().expect("a block is given as many inputs as it has")
            } else {
                self.compute(node.id, &mut kept)?
            };
            kept.values.insert((node.id, program.placements.outputs[node.id.index()]), value);
            // Values without further uses that backward does not need are freed.
            let product = program.product_of_sum(node.id).filter(|_| B::adds_products());
            let of_product = product.map_or(&[][..], |(id, _)| &program.inputs[id.index()]);
            for source in program.inputs[node.id.index()].iter().chain(of_product) {
                uses[source.index()] -= 1;
                if uses[source.index()] == 0 {
                    kept.values.retain(|key, _| key.0 != *source || program.keeps(key));
                }
            }
            self.lap(node.id, Pass::Forward);
        }
        let outputs = program.block.outputs().iter();
        let outputs = outputs.map(|id| self.take((*id, self.output_placement(*id)), &mut kept));
        let outputs = outputs.collect::<Result<_>>()?;
        kept.values.retain(|key, _| program.keeps(key));
        kept.extras.retain(|id, _| !program.is_recomputed(*id));
        Ok((outputs, kept))
    }

    /// The extra that operator `id` saved in addition to tensors; if it was dropped, the operator is recomputed.
    pub(super) fn extra(
        &self,
        id: OpId,
        kept: &mut SavedActivations<B>,
    ) -> Result<Option<Extra<B>>> {
        if self.program.is_recomputed(id) && !kept.extras.contains_key(&id) {
            let value = self.compute(id, kept)?;
            kept.values.insert((id, self.program.placements.outputs[id.index()]), value);
        }
        Ok(kept.extras.get(&id).cloned())
    }

    /// The placement of the block's outputs, which is that of the residual stream.
    pub(super) fn output_placement(&self, id: OpId) -> Placement {
        let tensor = &self.program.op(id).output;
        let sequence = tensor.dim(ir::graph::DimName::Sequence).is_some();
        if self.env.layout.sequence_parallel && sequence {
            Placement::Shard(ir::graph::DimName::Sequence)
        } else {
            Placement::Whole
        }
    }

    /// A tensor in a placement: as saved, moved from another placement, or recomputed.
    pub(super) fn take(&self, key: Key, kept: &mut SavedActivations<B>) -> Result<Value<B>> {
        if let Some(value) = kept.values.get(&key) {
            return Ok(value.clone());
        }
        if let Some(moving) = kept.in_flight.remove(&key) {
            let value = Value::Array(moving.wait()?);
            kept.values.insert(key, value.clone());
            return Ok(value);
        }
        let (source, to) = key;
        let from = self.program.placements.outputs[source.index()];
        if !kept.values.contains_key(&(source, from)) {
            let value = self.compute(source, kept)?;
            kept.values.insert((source, from), value);
        }
        if from == to {
            return Ok(kept.values[&key].clone());
        }
        let value = kept.values[&(source, from)].clone();
        let value = self.moved(value, from, to, &self.program.op(source).output)?;
        kept.values.insert(key, value.clone());
        Ok(value)
    }

    /// The input of operator `id` at `slot`, in the placement in which the operator takes it.
    pub(super) fn input(
        &self,
        id: OpId,
        slot: usize,
        kept: &mut SavedActivations<B>,
    ) -> Result<Value<B>> {
        let source = self.program.inputs[id.index()][slot];
        self.take((source, self.wanted(id, slot)), kept)
    }

    /// Starts to gather the input of operator `id` at `slot`, if it is saved in another placement, so that the gather
    /// overlaps with computation until the input is taken.
    pub(super) fn prefetch(
        &self,
        id: OpId,
        slot: usize,
        kept: &mut SavedActivations<B>,
    ) -> Result<()> {
        let source = self.program.inputs[id.index()][slot];
        let (from, to) = (self.program.placements.outputs[source.index()], self.wanted(id, slot));
        let key = (source, to);
        if kept.values.contains_key(&key) || kept.in_flight.contains_key(&key) {
            return Ok(());
        }
        if let Some(Value::Array(array)) = kept.values.get(&(source, from)) {
            let tensor = &self.program.op(source).output;
            if let Some(moving) = self.started(array, from, to, tensor)? {
                kept.in_flight.insert(key, moving);
            }
        }
        Ok(())
    }

    fn array(&self, id: OpId, slot: usize, kept: &mut SavedActivations<B>) -> Result<Array<B>> {
        Ok(self.input(id, slot, kept)?.array())
    }

    /// The output of operator `id`.
    #[expect(clippy::too_many_lines, reason = "a table: one arm an operator")]
    fn compute(&self, id: OpId, kept: &mut SavedActivations<B>) -> Result<Value<B>> {
        let op = self.program.op(id);
        let value = match &op.kind {
            OpKind::Input => panic!("the block's inputs are kept, not computed"),
            OpKind::Embedding { .. } => self.embed(id, kept),
            OpKind::Linear { contracted, .. } => {
                let x = self.array(id, 0, kept)?;
                self.linear(id, contracted.len(), x)
            }
            OpKind::GroupedLinear { .. } => {
                let routed = self.input(id, 0, kept)?.routed();
                return Ok(Value::Routed(self.grouped_linear(id, &routed)));
            }
            OpKind::Attention { .. } => self.attend(id, kept)?,
            OpKind::ShortConvolution { .. } => self.convolved(id, kept)?,
            OpKind::Recurrence { .. } => self.recurrence(id, kept)?,
            OpKind::Norm { .. } => {
                let x = self.array(id, 0, kept)?;
                let (y, statistics) = self.norm(id, x)?;
                kept.extras.insert(id, Extra::Statistics(statistics));
                y
            }
            OpKind::Activation(function) => {
                let function = function_of(*function);
                return Ok(self.input(id, 0, kept)?.mapped(|x| function.forward(x)));
            }
            OpKind::GatedActivation(function) => {
                let function = function_of(*function);
                let (gate, value) = (self.input(id, 0, kept)?, self.input(id, 1, kept)?);
                let [joined] = gate.joined(value, |gate, value| {
                    [activation::gated_forward(function, gate, value)]
                });
                return Ok(joined);
            }
            OpKind::ClampedSwiGlu { limit } => {
                let (gate, value) = (self.input(id, 0, kept)?, self.input(id, 1, kept)?);
                let [joined] = gate.joined(value, |gate, value| {
                    [activation::clamped_swiglu(gate, value, limit.0)]
                });
                return Ok(joined);
            }
            OpKind::SoftCap { cap } => {
                return Ok(self.input(id, 0, kept)?.mapped(|x| activation::soft_cap(x, cap.0)));
            }
            OpKind::Clamp { limit } => {
                return Ok(self.input(id, 0, kept)?.mapped(|x| activation::clamp(x, limit.0)));
            }
            OpKind::Add => {
                if let Some((product, slot)) = self.program.product_of_sum(id)
                    && B::adds_products()
                    && let Value::Array(addend) = self.input(id, 1 - slot, kept)?
                {
                    self.product_plus(product, addend, kept)?
                } else {
                    return self.add(id, kept);
                }
            }
            OpKind::Scale { factor } => return Ok(self.input(id, 0, kept)?.scale(factor.0)),
            OpKind::Multiply => {
                let (a, b) = (self.array(id, 0, kept)?, self.array(id, 1, kept)?);
                let b = repeated(b, self.given(id, 1), self.given(id, 0), &a.shape());
                a * b
            }
            OpKind::Rotary(rotation) => {
                let x = self.array(id, 0, kept)?;
                self.rotary(id, rotation, x.size(x.rank() - 1)).apply(x)
            }
            OpKind::Slice { dim, start } => {
                let x = self.array(id, 0, kept)?;
                let (dim, range) = self.sliced(id, dim.name, *start as usize);
                kept.extras.insert(id, Extra::Shape(x.shape()));
                x.narrow(dim, range)
            }
            OpKind::Concat { over } => self.concat(id, *over, kept)?,
            OpKind::AddParameter { .. } => {
                let x = self.array(id, 0, kept)?;
                let weight = self.weight(id, "weight").expect("an added parameter is there");
                let dims = &op.parameters[0].dims;
                let weight = repeated(weight, dims, self.given(id, 0), &x.shape());
                x + weight
            }
            OpKind::Router { .. } => {
                let x = self.array(id, 0, kept)?;
                let probabilities = self.router(id, x);
                if let Some(slopes) = self.balancing_slopes(id, &probabilities)? {
                    kept.extras.insert(id, Extra::Slopes(slopes));
                }
                probabilities
            }
            OpKind::Dispatch { .. } => {
                let (x, probabilities) = (self.array(id, 0, kept)?, self.array(id, 1, kept)?);
                return Ok(Value::Routed(self.dispatch(id, x, &probabilities, kept)?));
            }
            OpKind::Combine => {
                let routed = self.input(id, 0, kept)?.routed();
                let sent = Arc::clone(&routed.sent);
                let (output, returned) = self.combine(routed)?;
                kept.extras.insert(id, Extra::Returned(returned, sent));
                output
            }
            OpKind::CrossEntropy { .. } => {
                let logits = self.array(id, 0, kept)?;
                let (loss, extra) = self.cross_entropy(id, logits, &kept.micro_batch.clone())?;
                kept.extras.insert(id, extra);
                loss
            }
            OpKind::MeanSquaredError => {
                let prediction = self.array(id, 0, kept)?;
                let (loss, extra) = Self::squared_error(prediction, &kept.micro_batch);
                kept.extras.insert(id, extra);
                loss
            }
            OpKind::Conv2d { window, groups, .. } => {
                let x = self.array(id, 0, kept)?;
                let weight = self.weight(id, "weight").expect("a convolution has a weight");
                conv::forward(x, weight, self.weight(id, "bias"), window, *groups as usize)
            }
            OpKind::MaxPool2d(window) => {
                let (y, places) = pool::max_forward(self.array(id, 0, kept)?, window);
                kept.extras.insert(id, Extra::Places(places));
                y
            }
            OpKind::AveragePool2d(window) => {
                pool::average_forward(self.array(id, 0, kept)?, window)
            }
            OpKind::AdaptiveAveragePool2d { output } => {
                let x = self.array(id, 0, kept)?;
                kept.extras.insert(id, Extra::Shape(x.shape()));
                pool::adaptive_average_forward(x, *output)
            }
            OpKind::Dropout { .. } => {
                let x = self.array(id, 0, kept)?;
                self.dropped(id, x, kept)
            }
            OpKind::PatchesToSequence => {
                let x = self.array(id, 0, kept)?;
                let [batch, channels] = [x.size(0), x.size(1)];
                kept.extras.insert(id, Extra::Shape(x.shape()));
                let patches = x.num_elements() / (batch * channels);
                x.reshape(&[batch, channels, patches]).swap_dims(1, 2)
            }
            OpKind::PrependParameter => {
                let x = self.array(id, 0, kept)?;
                let row = self.weight(id, "weight").expect("a class token is there");
                let row = row.reshape(&[1, 1, x.size(2)]).expand(&[x.size(0), 1, x.size(2)]);
                Array::concat(vec![row, x], 1)
            }
            OpKind::FirstToken => {
                let x = self.array(id, 0, kept)?;
                kept.extras.insert(id, Extra::Shape(x.shape()));
                x.narrow(1, 0..1).reshape(&[x.size(0), x.size(2)])
            }
            OpKind::Buffer { .. } => self.weight(id, "weight").expect("a buffer is there"),
            // The input is whole already.
            OpKind::Gather => self.array(id, 0, kept)?,
            OpKind::Flatten => {
                let x = self.array(id, 0, kept)?;
                let shape = x.shape();
                let y = x.rows(shape.len() - 1);
                kept.extras.insert(id, Extra::Shape(shape));
                y
            }
            other => panic!("a checked program has no operator {other:?}"),
        };
        Ok(Value::Array(value))
    }

    /// `y = x W + b`, over the last `contracted` dimensions of `x`.
    fn linear(&self, id: OpId, contracted: usize, x: Array<B>) -> Array<B> {
        let weight = self.weight(id, "weight").expect("a linear layer has a weight");
        let mut shape = x.shape();
        shape.truncate(shape.len() - contracted);
        shape.extend(&weight.shape()[contracted..]);
        let bias = self.weight(id, "bias").filter(|_| self.adds_bias(id));
        let produced = weight.rank() - contracted;
        let y =
            linear::forward(x.rows(contracted), weight.rows(produced), bias.map(Array::flatten));
        y.reshape(&shape)
    }

    /// The output of the linear layer `id`, which has no bias, plus `addend` of the same shape.
    fn product_plus(
        &self,
        id: OpId,
        addend: Array<B>,
        kept: &mut SavedActivations<B>,
    ) -> Result<Array<B>> {
        let OpKind::Linear { contracted, .. } = &self.program.op(id).kind else {
            panic!("a product that is added is that of a linear layer")
        };
        let x = self.array(id, 0, kept)?.rows(contracted.len());
        let weight = self.weight(id, "weight").expect("a linear layer has a weight");
        let produced = weight.rank() - contracted.len();
        let shape = addend.shape();
        Ok(linear::forward_plus(x, weight.rows(produced), addend.rows(produced)).reshape(&shape))
    }

    /// Rows of a table: of tokens, by their ids; of positions, by the position in the sequence; of types, always the
    /// first row.
    fn embed(&self, id: OpId, kept: &SavedActivations<B>) -> Array<B> {
        let table = self.weight(id, "weight").expect("an embedding has a table");
        let width = table.size(1);
        let (ids, [batch, length]) = self.embedded_ids(id, &kept.micro_batch);
        let first = self.first_row(id);
        embedding::forward(table, &ids, first).reshape(&[batch, length, width])
    }

    /// The row indices of an embedding, with the numbers of sequences and of positions.
    pub(super) fn embedded_ids(
        &self,
        id: OpId,
        micro_batch: &MicroBatch<B>,
    ) -> (Vec<u32>, [usize; 2]) {
        let env = self.env;
        let batch = env.micro_batch_size;
        let op = self.program.op(id);
        let positions = self.positions(id);
        let length = positions.len();
        let OpKind::Embedding { rows, .. } = op.kind else {
            panic!("only an embedding has rows for tokens")
        };
        let ids = match rows {
            EmbeddedRows::Tokens { ahead: 0 } => {
                let given = &self.program.op(self.program.inputs[id.index()][0]).name;
                let of_decoder = micro_batch.decoder_tokens.as_ref();
                let of_decoder = of_decoder.filter(|_| given == DECODER_TOKENS);
                of_decoder.unwrap_or(&micro_batch.tokens).clone()
            }
            EmbeddedRows::Tokens { ahead } => {
                micro_batch.further[ahead as usize - 1].tokens.clone()
            }
            EmbeddedRows::Positions { first } => {
                let rows: Vec<u32> = positions.iter().map(|it| it + first as u32).collect();
                rows.repeat(batch)
            }
            EmbeddedRows::Bag => panic!("refused before"),
            EmbeddedRows::TokenTypes => vec![0; batch * length],
        };
        (ids, [batch, length])
    }

    /// The first row of this rank's part of a table.
    pub(super) fn first_row(&self, id: OpId) -> usize {
        let parameter = &self.program.op(id).parameters[0];
        let rows = parameter.dims[0].extent.fixed();
        let (Some(rows), Some(0)) = (rows, parameter.cut(false).tensor) else {
            return 0;
        };
        self.env.tensor_part(rows as usize).start
    }

    /// The sum of all inputs; partial sums are added first and moved once.
    fn add(&self, id: OpId, kept: &mut SavedActivations<B>) -> Result<Value<B>> {
        let sources = &self.program.inputs[id.index()];
        let partial = |source: &OpId, slot: usize| {
            self.program.placements.outputs[source.index()] == Placement::Partial
                && self.wanted(id, slot) != Placement::Partial
        };
        let mut sum: Option<Value<B>> = None;
        let mut partial_sum: Option<Value<B>> = None;
        let mut first = None;
        for (slot, source) in sources.iter().enumerate() {
            if partial(source, slot) {
                let value = self.take((*source, Placement::Partial), kept)?;
                partial_sum = Some(value.added_to(partial_sum));
                first = first.or(Some((*source, slot)));
            } else {
                sum = Some(self.input(id, slot, kept)?.added_to(sum));
            }
        }
        if let Some((value, (source, slot))) = partial_sum.zip(first) {
            let tensor = &self.program.op(source).output;
            let value = self.moved(value, Placement::Partial, self.wanted(id, slot), tensor)?;
            sum = Some(value.added_to(sum));
        }
        Ok(sum.expect("a sum has inputs"))
    }
}

/// The kernels' function of an activation of the graph.
pub(super) const fn function_of(activation: Activation) -> Function {
    match activation {
        Activation::Gelu => Function::Gelu,
        Activation::GeluTanh => Function::GeluTanh,
        Activation::QuickGelu => Function::QuickGelu,
        Activation::Relu => Function::Relu,
        Activation::SquaredRelu => Function::SquaredRelu,
        Activation::Silu => Function::Silu,
        Activation::Tanh => Function::Tanh,
        Activation::Sigmoid => Function::Sigmoid,
        Activation::Xielu => panic!("refused before"),
    }
}

impl<B: Kernels> BlockRun<'_, B> {
    /// The positions of operator `id`'s output on this rank.
    pub(super) fn positions(&self, id: OpId) -> Vec<u32> {
        let positions = self.env.positions();
        if self.is_cut_by_sequence(id) {
            return positions[self.env.tensor_part(positions.len())].to_vec();
        }
        positions
    }

    /// Returns whether operator `id`'s output is sharded by sequence over tensor-parallel ranks.
    fn is_cut_by_sequence(&self, id: OpId) -> bool {
        let sequence = Placement::Shard(ir::graph::DimName::Sequence);
        self.program.placements.outputs[id.index()] == sequence
    }

    /// Table of angles for heads of `features` features, at the positions of operator `id` on this rank.
    pub(super) fn rotary(&self, id: OpId, rotation: &Rotation, features: usize) -> Arc<Rotary<B>> {
        let env = self.env;
        let mut tables = env.rotary.borrow_mut();
        let key = (rotation.clone(), features, self.is_cut_by_sequence(id));
        let table = tables.entry(key).or_insert_with(|| {
            let rotated = rotation.features.map_or(features, |rotated| rotated as usize);
            let length = env.sequence_length;
            let (frequencies, factor) =
                rotary::frequencies(rotated, rotation.theta.0, &rotation.scaling, length);
            let (positions, pairs, element) = (self.positions(id), rotation.pairs, env.element);
            let table = Rotary::new(&positions, pairs, &frequencies, factor, element, &env.device);
            Arc::new(table)
        });
        Arc::clone(table)
    }
}
