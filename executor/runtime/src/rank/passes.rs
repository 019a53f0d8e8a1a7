//! Passes of micro-batches through the stages of a rank.

use std::sync::Arc;

use executor_communicators::{CommunicationError, Group};
use executor_kernels::array::{Array, Element};
use executor_kernels::ops::Kernels;
use ir::graph::{ElementType, OpId, OpKind};
use ir::layout::ZeroStage;
use ir::schedule::{Action, ActionKind, Updates};

use super::{
    KeptBlock, KeptStage, KeptState, Rank, RunError, StageMessage, UnitAt, WeightAt,
    trained_units_of, units_of,
};
use crate::block::{BlockRun, SharedMicroBatch, Value};
use crate::flat_parameter::FlatParameter;
use crate::gradient::Gradient;
use crate::kept_inputs::KeptInputs;
use crate::weight::Weight;

impl<B: Kernels> Rank<B> {
    /// Forward of a micro-batch through a stage.
    pub(super) fn forward(&mut self, stage: u32, micro_batch: u32) -> Result<(), RunError> {
        let data = self.data(micro_batch)?;
        let given = if stage == 0 {
            Vec::new()
        } else {
            self.inbox.remove(&(stage, false, micro_batch)).expect("a stage is given its input")
        };
        let given = given.into_iter().map(|array| array.expect("activations are all there"));
        let mut values: Vec<Value<B>> = given.map(Value::Array).collect();
        self.env.probe.begin::<B>(&self.env.device);
        let mut kept = Vec::new();
        let blocks = self.stages[&stage].blocks.clone();
        for (place, block) in blocks.clone().enumerate() {
            self.gather(stage, place)?;
            self.gather_ahead(stage, place + 1);
            let inputs = self.block_inputs(block, values, &data);
            let weights = self.weights(stage, place);
            let program = self.program.block(block);
            let run = BlockRun { program, env: &self.env, weights: &weights, number: block };
            let is_recomputed = self.program.is_recomputed(stage, block);
            let before = is_recomputed.then(|| inputs.clone());
            let (outputs, tensors) = run.forward(inputs, &data)?;
            let action = Action { stage, kind: ActionKind::Forward, micro_batch };
            let state = match before {
                Some(inputs) => KeptState::Inputs(self.keep(inputs, action)?),
                None => KeptState::Tensors(tensors),
            };
            // One block's inputs are copied while the next block computes.
            if let Some(KeptBlock { state: KeptState::Inputs(inputs), .. }) = kept.last() {
                inputs.settle();
            }
            let stashed = self.updates_each_micro_batch().then_some(weights);
            kept.push(KeptBlock { state, stashed });
            values = outputs;
            self.note_memory_in_pass(&kept);
            self.free(stage, place);
        }
        self.kept.insert((stage, micro_batch), KeptStage { micro_batch: data, blocks: kept });
        if stage + 1 == self.program.stages.len() as u32 {
            self.losses.extend(values.into_iter().map(Value::array));
        } else {
            let values = values.into_iter().map(|value| Some(value.array())).collect();
            self.pass_on((stage + 1, false, micro_batch), values);
        }
        Ok(())
    }

    /// Backward of a micro-batch through a stage: input gradients, and if `with_weights` also weight gradients.
    pub(super) fn backward(
        &mut self,
        stage: u32,
        micro_batch: u32,
        with_weights: bool,
    ) -> Result<(), RunError> {
        let is_last = stage + 1 == self.program.stages.len() as u32;
        let mut gradients: Vec<Option<Value<B>>> = if is_last {
            vec![None; self.tensors_between(stage)]
        } else {
            let given = self.inbox.remove(&(stage, true, micro_batch));
            let given = given.expect("a stage is given the gradient of its output");
            given.into_iter().map(|gradient| gradient.map(Value::Array)).collect()
        };
        let mut kept =
            self.kept.remove(&(stage, micro_batch)).expect("forward comes before backward");
        self.env.probe.begin::<B>(&self.env.device);
        let blocks = self.stages[&stage].blocks.clone();
        for (place, block) in blocks.enumerate().rev() {
            self.gather(stage, place)?;
            if let Some(next) = place.checked_sub(1) {
                self.gather_ahead(stage, next);
            }
            let action = Action { stage, kind: ActionKind::Backward, micro_batch };
            let recomputed_inputs = kept.blocks[place].state.take_inputs(action)?;
            if let Some(next) = place.checked_sub(1)
                && let KeptState::Inputs(inputs) = &mut kept.blocks[next].state
            {
                inputs.fetch(action);
            }
            let stashed = kept.blocks[place].stashed.take();
            let weights = stashed.unwrap_or_else(|| self.weights(stage, place));
            let whole = Arc::clone(&self.program);
            let program = whole.block(block);
            if let Some(inputs) = recomputed_inputs {
                let run = BlockRun { program, env: &self.env, weights: &weights, number: block };
                let (_, tensors) = run.forward(inputs, &kept.micro_batch)?;
                kept.blocks[place].state = KeptState::Tensors(tensors);
            }
            self.note_memory_in_pass(&kept.blocks);
            let run = BlockRun { program, env: &self.env, weights: &weights, number: block };
            let kept_block = &mut kept.blocks[place];
            let KeptState::Tensors(tensors) = &mut kept_block.state else {
                unreachable!("what was kept of inputs was computed again")
            };
            gradients = if with_weights {
                let at = &self.stages[&stage].weights[place];
                let element = self.program.settings.gradients;
                let mut adds = accumulate(&mut self.units, at, element);
                run.input_grads(gradients, tensors, Some(&mut adds))?
            } else {
                kept_block.stashed = self.updates_each_micro_batch().then(|| weights.clone());
                run.input_grads(gradients, tensors, None)?
            };
            if with_weights {
                // The block's saved state is no longer needed.
                kept.blocks.truncate(place);
                self.weight_grads_done(stage, place)?;
            }
            self.free(stage, place);
            // Inputs that are data need no gradients.
            gradients.truncate(self.inputs_from_before(block));
        }
        if stage > 0 {
            let gradients =
                gradients.into_iter().map(|gradient| gradient.map(Value::array)).collect();
            self.pass_on((stage - 1, true, micro_batch), gradients);
        }
        if !with_weights {
            self.kept.insert((stage, micro_batch), kept);
        }
        Ok(())
    }

    /// The weight gradients that [`Self::backward`] left out.
    pub(super) fn weight_grad(&mut self, stage: u32, micro_batch: u32) -> Result<(), RunError> {
        let mut kept =
            self.kept.remove(&(stage, micro_batch)).expect("an input gradient comes before");
        let blocks = self.stages[&stage].blocks.clone();
        for (place, block) in blocks.enumerate().rev() {
            self.gather(stage, place)?;
            let kept_block = &mut kept.blocks[place];
            let stashed = kept_block.stashed.take();
            let weights = stashed.unwrap_or_else(|| self.weights(stage, place));
            let program = self.program.block(block);
            let run = BlockRun { program, env: &self.env, weights: &weights, number: block };
            let KeptState::Tensors(tensors) = &mut kept_block.state else {
                unreachable!("an input gradient leaves tensors")
            };
            let at = &self.stages[&stage].weights[place];
            let element = self.program.settings.gradients;
            run.weight_grads(tensors, &mut accumulate(&mut self.units, at, element))?;
            self.weight_grads_done(stage, place)?;
            self.free(stage, place);
        }
        Ok(())
    }

    /// Saves the inputs of a block that will be recomputed.
    fn keep(
        &self,
        inputs: Vec<Value<B>>,
        action: Action,
    ) -> Result<Box<dyn KeptInputs<B>>, RunError> {
        let inputs: Box<dyn KeptInputs<B>> = Box::new(inputs);
        self.layers.iter().try_fold(inputs, |inputs, layer| layer.keep(inputs, action))
    }

    pub(super) fn updates_each_micro_batch(&self) -> bool {
        self.program.schedule.updates() == Updates::AfterEachMicroBatch
    }

    /// This rank's part of a micro-batch's data.
    fn data(&mut self, micro_batch: u32) -> Result<SharedMicroBatch<B>, RunError> {
        if let Some(data) = self.micro_batches.get(&micro_batch) {
            return Ok(Arc::clone(data));
        }
        let (source, step) = (Arc::clone(&self.source), self.num_steps);
        let data = source.micro_batch(&self.program, &self.env, step, micro_batch)?;
        self.micro_batches.insert(micro_batch, Arc::clone(&data));
        Ok(data)
    }

    /// Inputs of a block: the outputs of the block before, then data.
    fn block_inputs(
        &self,
        block: usize,
        before: Vec<Value<B>>,
        data: &SharedMicroBatch<B>,
    ) -> Vec<Value<B>> {
        let nodes = self.program.block(block).block.nodes();
        let inputs = nodes.filter(|node| node.op.kind == OpKind::Input);
        let further = inputs.skip(before.len()).map(|node| {
            if node.op.output.element == ElementType::Index {
                Value::Tokens
            } else {
                Value::Array(data.inputs.clone().expect("a model that takes samples is given them"))
            }
        });
        let further: Vec<Value<B>> = further.collect();
        before.into_iter().chain(further).collect()
    }

    /// Number of a block's inputs that are outputs of the block before.
    fn inputs_from_before(&self, block: usize) -> usize {
        match block.checked_sub(1) {
            Some(before) => self.program.block(before).block.outputs().len(),
            None => 0,
        }
    }

    /// Passes tensors to a stage of this rank, or queues them to be sent.
    fn pass_on(&mut self, message: StageMessage, arrays: Vec<Option<Array<B>>>) {
        let (stage, _, micro_batch) = message;
        if self.schedule().rank(stage, micro_batch) == self.env.place.pipeline {
            self.inbox.insert(message, arrays);
        } else {
            self.outbox.insert(message, arrays);
        }
    }

    /// The weights of a block, by operator and parameter.
    fn weights(&self, stage: u32, place: usize) -> Vec<Vec<Weight<B>>> {
        let weight = |at: &WeightAt| {
            let weight = self.sharded(at.unit).weight(at.index);
            if at.is_transposed { weight.transpose() } else { weight }
        };
        let of_op = |op: &Vec<WeightAt>| op.iter().map(weight).collect();
        self.stages[&stage].weights[place].iter().map(of_op).collect()
    }

    /// Waits until the weights of a block are gathered.
    fn gather(&mut self, stage: u32, place: usize) -> Result<(), CommunicationError> {
        for unit in units_of(&self.stages[&stage].weights[place]) {
            self.start_gathering(unit);
            let Some(pending) = self.gathering.remove(&unit) else { continue };
            let gathered = pending.wait()?.wait()?;
            self.sharded_mut(unit).set_gathered(gathered);
        }
        Ok(())
    }

    /// Starts to gather the weights of the next block, overlapped with the current block's computation.
    fn gather_ahead(&mut self, stage: u32, place: usize) {
        let Some(block) = self.stages[&stage].weights.get(place) else { return };
        for unit in units_of(block) {
            self.start_gathering(unit);
        }
    }

    fn start_gathering(&mut self, at: UnitAt) {
        let unit = self.sharded(at);
        if !unit.is_gathered() && !self.gathering.contains_key(&at) {
            let gathering = self.reducer.gather(unit.shards(), unit.replicas());
            self.gathering.insert(at, gathering);
        }
    }

    /// Frees gathered weights of a block, unless its stage is held.
    fn free(&mut self, stage: u32, place: usize) {
        if self.held_stages.contains(&stage) {
            return;
        }
        for unit in units_of(&self.stages[&stage].weights[place]) {
            self.sharded_mut(unit).free();
        }
    }

    /// Gathers the weights of a stage and holds them until the stage is freed.
    pub(super) fn hold_stage(&mut self, stage: u32) {
        self.held_stages.insert(stage);
        for place in 0..self.stages[&stage].weights.len() {
            self.gather_ahead(stage, place);
        }
    }

    /// Frees the weights of a stage.
    pub(super) fn free_stage(&mut self, stage: u32) {
        self.held_stages.remove(&stage);
        for place in 0..self.stages[&stage].weights.len() {
            self.free(stage, place);
        }
    }

    /// Counts a block's weight gradients of a micro-batch as done, and starts to reduce complete units: sharded
    /// gradients after each micro-batch, others after the last.
    fn weight_grads_done(&mut self, stage: u32, place: usize) -> Result<(), RunError> {
        let each_time = self.program.layout.zero_stage >= ZeroStage::Gradients
            || self.updates_each_micro_batch();
        for unit in trained_units_of(&self.stages[&stage].weights[place]) {
            self.uses_left[unit] -= 1;
            // Where micro-batches run through the pipeline in both directions, ranks would reduce in different orders.
            let in_order = self.program.holders(stage).len() == 1;
            if in_order && (each_time || self.uses_left[unit] == 0) {
                self.reduce_unit(unit)?;
            }
        }
        Ok(())
    }

    /// Starts to reduce the gradients of a unit; where each replica updates by its own gradients, only adds them up.
    pub(super) fn reduce_unit(&mut self, index: usize) -> Result<(), CommunicationError> {
        let unit = &mut self.units[index];
        for count in unit.summed_over() {
            let Some(partial) = unit.partial_gradients(count) else { continue };
            let env = &self.env;
            let all = if unit.is_of_experts() { &env.expert_tensor } else { &env.tensor };
            let first = env.place.tensor as usize / count * count;
            let neighbours =
                (count < all.len()).then(|| Group::new(all.ranks()[first..first + count].to_vec()));
            let sums = env.all_reduce_among(neighbours.as_ref().unwrap_or(all), partial)?;
            unit.set_partial_gradients(count, &sums);
        }
        let element = self.program.settings.gradients;
        let device = &self.env.device;
        let gradient =
            self.env.probe.gradients::<B, _>(device, || unit.take_gradients(element, device));
        let is_shared = self.program.settings.replication.method.is_synchronous();
        if unit.replicas.num_copies() > 1 && is_shared {
            self.reducer.reduce(index, gradient, &unit.replicas);
            return Ok(());
        }
        unit.states.add_reduced(gradient);
        Ok(())
    }
}

impl<B: Kernels> KeptState<B> {
    /// The inputs of a block that is to be recomputed; none where its activations are saved.
    fn take_inputs(&mut self, action: Action) -> Result<Option<Vec<Value<B>>>, RunError> {
        let Self::Inputs(inputs) = self else { return Ok(None) };
        Ok(Some(std::mem::replace(inputs, Box::new(Vec::new())).take(action)?))
    }
}

/// Returns a closure that adds gradients of a block's parameters to their units.
fn accumulate<'a, B: Kernels>(
    units: &'a mut [FlatParameter<B>],
    at: &'a [Vec<WeightAt>],
    element: Element,
) -> impl FnMut(OpId, usize, Gradient<B>) + 'a {
    move |op, index, gradient| {
        let WeightAt { unit, index, is_transposed } = at[op.index()][index];
        let UnitAt::Trained(unit) = unit else { panic!("frozen parameters have no gradients") };
        let gradient = if is_transposed { gradient.transposed() } else { gradient };
        units[unit].add_gradient(index, gradient, element);
    }
}
