//! A rank: it executes its list of the schedule's actions, step by step.

mod build;
mod layers;
mod passes;
mod state;
mod update;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use executor_communicators::{CommunicationError, Communicator, Tag};
use executor_kernels::array::Array;
use executor_kernels::clock::now;
use executor_kernels::ops::Kernels;
use ir::schedule::{Action, ActionKind, Schedule, ScheduleStep, Updates};
use ir::units::Bytes;
use traces::timeline::{Activity, Stream, Track};

use crate::batches::Source;
use crate::block::{Env, SavedActivations, SharedMicroBatch};
use crate::checkpoint::CheckpointError;
use crate::data::DataError;
use crate::flat_parameter::FlatParameter;
use crate::frozen::FrozenParameter;
use crate::kept_inputs::KeptInputs;
use crate::probe::Laps;
use crate::program::Program;
use crate::reducer::{Gathering, Reducer};
use crate::scaler::Scaler;
use crate::server::Staleness;
use crate::sharded::Sharded;
use crate::weight::Weight;

/// Errors of a rank's step.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Another rank stopped, or cannot be reached.
    #[error(transparent)]
    Communication(#[from] CommunicationError),
    /// The data cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A checkpoint cannot be written or read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The device has no usable clock for the recorded step.
    #[error("the times of a step cannot be taken: {0}")]
    Clock(String),
}

/// A unit of this rank: its index among trained units, or among frozen ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum UnitAt {
    Trained(usize),
    Frozen(usize),
}

/// Location of a parameter on this rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WeightAt {
    unit: UnitAt,
    index: usize,
    /// True where the operator reads the transpose, as a head that is tied to a table does.
    is_transposed: bool,
}

/// A stage that the rank holds.
#[derive(Debug)]
struct LocalStage {
    blocks: Range<usize>,
    /// By block and operator, the locations of its parameters.
    weights: Vec<Vec<Vec<WeightAt>>>,
}

/// Saved state of a micro-batch in a stage, from forward to backward.
struct KeptStage<B: Kernels> {
    micro_batch: SharedMicroBatch<B>,
    blocks: Vec<KeptBlock<B>>,
}

/// Saved state of a micro-batch in a block.
struct KeptBlock<B: Kernels> {
    state: KeptState<B>,
    /// The weights that forward read, where later updates may change them (weight stashing).
    stashed: Option<Vec<Vec<Weight<B>>>>,
}

impl<B: Kernels> KeptBlock<B> {
    /// Bytes on the device, and on the host.
    fn num_bytes(&self) -> [u64; 2] {
        match &self.state {
            KeptState::Tensors(kept) => [kept.num_bytes(), 0],
            KeptState::Inputs(inputs) => inputs.num_bytes(),
        }
    }
}

enum KeptState<B: Kernels> {
    /// Activations that backward needs.
    Tensors(SavedActivations<B>),
    /// Inputs of a block whose other activations are recomputed.
    Inputs(Box<dyn KeptInputs<B>>),
}

/// A layer of the training loop. The loop itself trains replicas that reduce gradients and update in the same way.
/// Other features of a plan are layers, whose methods the loop calls at the points below. All layers are listed in
/// [`layers`].
trait Layer<B: Kernels>: Send {
    /// Called before the first pass of a step.
    fn before_step(&mut self, _rank: &mut Rank<B>) -> Result<(), RunError> {
        Ok(())
    }

    /// Saves the inputs of a block that backward will recompute.
    fn keep(
        &self,
        inputs: Box<dyn KeptInputs<B>>,
        _action: Action,
    ) -> Result<Box<dyn KeptInputs<B>>, RunError> {
        Ok(inputs)
    }

    /// Called after a pass that began at `start`.
    fn after_pass(&mut self, _start: Instant) {}

    /// Called before an update. Returns the result of the step if the layer does the update itself.
    fn instead_of_update(&mut self, _rank: &mut Rank<B>) -> Result<Option<StepResult>, RunError> {
        Ok(None)
    }

    /// Called after a unit was updated.
    fn after_update(&mut self, _rank: &mut Rank<B>, _unit: usize) -> Result<(), RunError> {
        Ok(())
    }

    /// Called after the last step.
    fn settle(&mut self, _rank: &mut Rank<B>) -> Result<(), RunError> {
        Ok(())
    }

    /// Staleness of the gradients that updated weights, on the rank that counts it.
    fn staleness(&self) -> Option<Staleness> {
        None
    }

    /// Distance of the replicas' weights from their mean.
    fn consensus_distance(&self, _rank: &Rank<B>) -> Result<Option<f64>, RunError> {
        Ok(None)
    }

    /// Bytes that the layer holds.
    fn num_bytes(&self) -> u64 {
        0
    }
}

/// Key of the tensors that a stage's pass sends to a neighbouring stage: the receiving stage, whether they are
/// gradients, and the micro-batch.
type StageMessage = (u32, bool, u32);

/// One rank of a program, with its parameters and the state of its current step.
pub struct Rank<B: Kernels> {
    program: Arc<Program>,
    source: Arc<Source>,
    env: Env<B>,
    units: Vec<FlatParameter<B>>,
    frozen: Vec<FrozenParameter<B>>,
    stages: BTreeMap<u32, LocalStage>,
    reducer: Reducer<B>,
    layers: Vec<Box<dyn Layer<B>>>,
    scaler: Scaler,
    /// Inputs of this rank's stages, from their neighbours.
    inbox: BTreeMap<StageMessage, Vec<Option<Array<B>>>>,
    /// Outputs to send to other ranks' stages.
    outbox: BTreeMap<StageMessage, Vec<Option<Array<B>>>>,
    kept: BTreeMap<(u32, u32), KeptStage<B>>,
    micro_batches: BTreeMap<u32, SharedMicroBatch<B>>,
    /// Gathers in flight, by unit.
    gathering: BTreeMap<UnitAt, Gathering<B>>,
    /// Sums of losses of this step's micro-batches.
    losses: Vec<Array<B>>,
    /// For each unit, the number of blocks' weight gradients that are left in this step.
    uses_left: Vec<usize>,
    /// Stages whose weights stay gathered until the schedule frees them.
    held_stages: BTreeSet<u32>,
    /// The scale of this step's loss.
    loss_scale: f64,
    /// Norm of the gradients that update this rank's weights.
    own_norm: f64,
    /// Number of steps so far.
    num_steps: u64,
    /// Peak bytes of tensors on the device.
    peak_memory: u64,
    /// Peak bytes of offloaded tensors on the host.
    peak_host_memory: u64,
}

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepResult {
    /// The mean loss over all targets of the step.
    pub loss: f64,
    /// The norm of all gradients, before clipping.
    pub gradient_norm: f64,
    /// True where the update was skipped, since a gradient was infinite or NaN.
    pub is_skipped: bool,
}

impl<B: Kernels> Rank<B> {
    /// Runs the next step.
    ///
    /// # Errors
    ///
    /// [`RunError`] where another rank stopped, or data cannot be used.
    pub fn step(&mut self) -> Result<StepResult, RunError> {
        let program = Arc::clone(&self.program);
        self.loss_scale = self.scaler.scale();
        // Where each micro-batch updates the weights, its gradient is that of the micro-batch's mean loss.
        let share = match program.schedule.updates() {
            Updates::AfterFlush => 1.0,
            Updates::AfterEachMicroBatch => f64::from(program.layout.num_micro_batches),
        };
        let share = share * self.program.num_means();
        self.env
            .gradient_scale
            .set(self.loss_scale * share / self.source.num_targets(&program) as f64);
        let schedule = program.schedule_of(self.env.place.data);
        let steps = &schedule.ranks()[self.env.place.pipeline as usize];
        self.env.communicator.begin_step();
        self.count_uses(steps);
        self.ask(|layer, rank| layer.before_step(rank))?;
        self.note_memory();
        let mut result = None;
        for action in steps.iter().flat_map(|step| step.actions()) {
            self.env.action.set(action);
            self.act(action, &mut result)?;
            self.note_memory();
        }
        let result = match result {
            Some(result) => result,
            None => self.finish_step()?,
        };
        self.num_steps += 1;
        self.micro_batches.clear();
        debug_assert!(self.kept.is_empty() && self.inbox.is_empty() && self.outbox.is_empty());
        Ok(result)
    }

    /// Runs the next step, and returns the times of its operators.
    ///
    /// # Errors
    ///
    /// As [`Self::step`].
    pub fn probed_step(&mut self) -> Result<(StepResult, Laps), RunError> {
        self.env.probe.start();
        let result = self.step();
        let laps = self.env.probe.finish();
        Ok((result?, laps))
    }

    /// Starts recording events of the rank. All ranks call it together, so that their time zeros agree.
    ///
    /// # Errors
    ///
    /// [`RunError::Clock`].
    pub fn record(&self) -> Result<(), RunError> {
        let device = &self.env.device;
        B::sync(device).map_err(|error| RunError::Clock(error.to_string()))?;
        let clock = B::clock(device).map_err(RunError::Clock)?;
        self.synchronize()?;
        self.env.recorder.start(clock).map_err(RunError::Clock)
    }

    /// The recorded events.
    ///
    /// # Errors
    ///
    /// [`RunError::Clock`].
    pub fn recorded(&self) -> Result<Track, RunError> {
        let rank = self.env.place.rank;
        self.env.recorder.finish(rank, format!("rank {rank}")).map_err(RunError::Clock)
    }

    /// The program of the rank.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Number of steps so far.
    pub fn num_steps(&self) -> u64 {
        self.num_steps
    }

    /// The learning rate of the next update.
    pub fn learning_rate(&self) -> f64 {
        self.program.settings.schedule.at(self.num_steps)
    }

    /// The device of the rank.
    pub fn device(&self) -> &B::Device {
        &self.env.device
    }

    /// The communicator of the rank.
    pub fn communicator(&self) -> &dyn Communicator<B> {
        self.env.communicator.as_ref()
    }

    /// Waits until all ranks have called it.
    ///
    /// # Errors
    ///
    /// [`RunError`] where another rank stopped.
    pub fn synchronize(&self) -> Result<(), RunError> {
        let world = self.env.communicator.world();
        Ok(self.env.communicator.on(&world, Stream::Host).barrier()?)
    }

    /// Peak bytes of offloaded tensors so far, in the host's memory.
    pub fn peak_host_memory(&self) -> Bytes {
        Bytes::new(self.peak_host_memory)
    }

    /// Peak bytes of the rank's tensors so far: parameters, gradients, optimizer state, and tensors saved between
    /// passes. Workspace of operators is not included.
    pub fn peak_memory(&self) -> Bytes {
        Bytes::new(self.peak_memory)
    }

    /// Updates peak memory with the tensors that the rank holds now.
    fn note_memory(&mut self) {
        self.note_memory_in_pass(&[]);
    }

    /// Notes memory as [`Self::note_memory`] does, within a pass whose blocks have saved `of_pass`.
    fn note_memory_in_pass(&mut self, of_pass: &[KeptBlock<B>]) {
        let units = self.units.iter().map(FlatParameter::num_bytes);
        let frozen = self.frozen.iter().map(FrozenParameter::num_bytes);
        let kept = self.kept.values().flat_map(|stage| &stage.blocks);
        let kept = kept.chain(of_pass).map(KeptBlock::num_bytes);
        let placed = units.chain(frozen).chain(kept);
        let [held, on_host] = placed.fold([0; 2], |[a, b], [c, d]| [a + c, b + d]);
        self.peak_host_memory = self.peak_host_memory.max(on_host);
        let messages = self.inbox.values().chain(self.outbox.values()).flatten().flatten();
        let total = held
            + self.reducer.num_bytes()
            + self.layers.iter().map(|layer| layer.num_bytes()).sum::<u64>()
            + messages.map(Array::num_bytes).sum::<u64>();
        self.peak_memory = self.peak_memory.max(total);
        self.env.recorder.memory(total);
    }

    fn act(&mut self, action: Action, result: &mut Option<StepResult>) -> Result<(), RunError> {
        let recorder = Arc::clone(&self.env.recorder);
        let activity = Activity::Action(action);
        let Action { stage, kind, micro_batch } = action;
        let start = now();
        match kind {
            ActionKind::Forward => recorder
                .record(Stream::Compute, activity, 0, || self.forward(stage, micro_batch))?,
            ActionKind::Backward | ActionKind::InputGrad => {
                recorder.record(Stream::Compute, activity, 0, || {
                    self.backward(stage, micro_batch, kind == ActionKind::Backward)
                })?;
            }
            ActionKind::WeightGrad => recorder
                .record(Stream::Compute, activity, 0, || self.weight_grad(stage, micro_batch))?,
            ActionKind::SendForward => self.send(action, (stage + 1, false, micro_batch))?,
            ActionKind::SendBackward => self.send(action, (stage - 1, true, micro_batch))?,
            ActionKind::RecvForward => self.receive(action, (stage, false, micro_batch))?,
            ActionKind::RecvBackward => self.receive(action, (stage, true, micro_batch))?,
            ActionKind::Unshard => self.hold_stage(stage),
            ActionKind::Reshard => self.free_stage(stage),
            ActionKind::ReduceGrad => self.reducer.flush(),
            ActionKind::OptimizerStep => self.optimizer_step(action, result)?,
        }
        if kind.is_compute() {
            self.layers.iter_mut().for_each(|layer| layer.after_pass(start));
        }
        Ok(())
    }

    /// Updates the parameters of a stage; the first call of a step finishes the step's reductions.
    fn optimizer_step(
        &mut self,
        action: Action,
        result: &mut Option<StepResult>,
    ) -> Result<(), RunError> {
        let mut done = None;
        self.ask(|layer, rank| {
            done = done.or(layer.instead_of_update(rank)?);
            Ok(())
        })?;
        if done.is_some() {
            *result = done;
            return Ok(());
        }
        let factor = if self.updates_each_micro_batch() {
            self.take_reduced()?;
            Some(1.0)
        } else {
            let result = match *result {
                Some(result) => result,
                None => *result.insert(self.finish_step()?),
            };
            self.gradient_factor(&result)
        };
        let recorder = Arc::clone(&self.env.recorder);
        recorder.record(Stream::Compute, Activity::Action(action), 0, || {
            self.update(action.stage, factor)
        })
    }

    /// Calls `ask` with each layer in turn.
    fn ask(
        &mut self,
        mut ask: impl FnMut(&mut dyn Layer<B>, &mut Self) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        let mut layers = std::mem::take(&mut self.layers);
        let asked = layers.iter_mut().try_for_each(|layer| ask(layer.as_mut(), self));
        self.layers = layers;
        asked
    }

    /// Ends the training, after all ranks have done their steps.
    ///
    /// # Errors
    ///
    /// [`RunError`] where another rank stopped.
    pub fn settle(&mut self) -> Result<(), RunError> {
        self.ask(|layer, rank| layer.settle(rank))
    }

    /// Staleness of the gradients that updated shared weights, on the rank of the server.
    pub fn staleness(&self) -> Option<Staleness> {
        self.layers.iter().find_map(|layer| layer.staleness())
    }

    /// Distance of the replicas' weights from their mean: the root of the mean over replicas of the squared distance.
    /// All ranks call it together. None where replicas have equal weights by construction.
    ///
    /// # Errors
    ///
    /// [`RunError`] where another rank stopped.
    pub fn consensus_distance(&self) -> Result<Option<f64>, RunError> {
        self.layers.iter().find_map(|it| it.consensus_distance(self).transpose()).transpose()
    }

    /// The weights of a unit.
    fn sharded(&self, at: UnitAt) -> &dyn Sharded<B> {
        match at {
            UnitAt::Trained(unit) => &self.units[unit],
            UnitAt::Frozen(unit) => &self.frozen[unit],
        }
    }

    /// The weights of a unit, as in [`Self::sharded`].
    fn sharded_mut(&mut self, at: UnitAt) -> &mut dyn Sharded<B> {
        match at {
            UnitAt::Trained(unit) => &mut self.units[unit],
            UnitAt::Frozen(unit) => &mut self.frozen[unit],
        }
    }

    /// The schedule of the rank's replica.
    fn schedule(&self) -> &Schedule {
        self.program.schedule_of(self.env.place.data)
    }

    /// Sends the outputs of a stage's pass.
    fn send(&mut self, action: Action, message: StageMessage) -> Result<(), RunError> {
        let partner = action.partner().expect("a message has a partner");
        let to = self.schedule().rank(partner.stage, partner.micro_batch);
        let to = self.env.place.on_pipeline_rank(&self.env.layout, to);
        let arrays = self.outbox.remove(&message).expect("a pass comes before its send");
        // An output that no later block used, such as the encoder's output in T5's head, has zero gradient. All outputs
        // of a block have the same shape.
        let like = arrays.iter().flatten().next().cloned();
        let zeros = |like: &Array<B>| Array::zeros(&like.shape(), like.element(), &like.device());
        let arrays: Vec<Array<B>> =
            arrays.into_iter().filter_map(|it| it.or_else(|| like.as_ref().map(zeros))).collect();
        let bytes = arrays.iter().map(Array::num_bytes).sum();
        let communicator = Arc::clone(&self.env.communicator);
        self.env.recorder.record(Stream::Send, Activity::Action(action), bytes, || {
            for array in arrays {
                communicator.send(to, Tag::Message(partner), array)?;
            }
            Ok(())
        })
    }

    /// Receives the outputs of another rank's stage.
    fn receive(&mut self, action: Action, message: StageMessage) -> Result<(), RunError> {
        let partner = action.partner().expect("a message has a partner");
        let from = self.schedule().rank(partner.stage, partner.micro_batch);
        let from = self.env.place.on_pipeline_rank(&self.env.layout, from);
        let sent = self.tensors_between(partner.stage.min(action.stage));
        let communicator = Arc::clone(&self.env.communicator);
        let arrays: Result<Vec<_>, CommunicationError> =
            self.env.recorder.record(Stream::Receive, Activity::Action(action), 0, || {
                let receive = |_| communicator.receive(from, Tag::Message(action)).map(Some);
                (0..sent).map(receive).collect()
            });
        self.inbox.insert(message, arrays?);
        Ok(())
    }

    /// Number of tensors that a stage passes to the next.
    fn tensors_between(&self, stage: u32) -> usize {
        let last = self.program.stages[stage as usize].end - 1;
        self.program.block(last).block.outputs().len()
    }

    /// Counts for each unit the weight gradients of blocks in this step.
    fn count_uses(&mut self, steps: &[ScheduleStep]) {
        let mut uses = vec![0; self.units.len()];
        for action in steps.iter().flat_map(|step| step.actions()) {
            if matches!(action.kind, ActionKind::Backward | ActionKind::WeightGrad) {
                let stage = &self.stages[&action.stage];
                for block in &stage.weights {
                    for unit in trained_units_of(block) {
                        uses[unit] += 1;
                    }
                }
            }
        }
        self.uses_left = uses;
    }
}

/// The units that a block reads, each once.
fn units_of(block: &[Vec<WeightAt>]) -> BTreeSet<UnitAt> {
    block.iter().flatten().map(|at| at.unit).collect()
}

/// The trained units that a block reads, by their indices.
fn trained_units_of(block: &[Vec<WeightAt>]) -> impl Iterator<Item = usize> + use<> {
    units_of(block).into_iter().filter_map(|unit| match unit {
        UnitAt::Trained(unit) => Some(unit),
        UnitAt::Frozen(_) => None,
    })
}
