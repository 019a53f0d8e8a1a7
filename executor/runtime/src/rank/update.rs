//! The end of a step: what is left to be reduced, the norm of all gradients, the update.

use std::sync::Arc;

use executor_communicators::{CommunicationError, JobHandle, Reduction, Tag};
use executor_kernels::array::{Array, Element};
use executor_kernels::ops::Kernels;
use ir::collective::Collective;
use ir::replication::DataParallelMethod;
use ir::schedule::ActionKind;
use traces::timeline::Stream;

use super::{Rank, RunError, StepResult, trained_units_of};
use crate::reducer::Gathering;
use crate::states::Held;
use crate::unit::{Renewal, Role, only};

impl<B: Kernels> Rank<B> {
    /// Waits for all reductions, adds up copies of tied tables, and finds the loss and the norm.
    pub(super) fn finish_step(&mut self) -> Result<StepResult, RunError> {
        for unit in 0..self.units.len() {
            if self.units[unit].has_gradients() {
                self.reduce_unit(unit)?;
            }
        }
        self.take_reduced()?;
        self.note_memory();
        self.reduce_tied()?;
        let place = &self.env.place;
        let is_first = place.tensor == 0;
        let (mut on_device, mut squares) = (std::mem::take(&mut self.losses), 0.0);
        let num_losses = on_device.len();
        let auxiliary = self.env.auxiliary_losses.take();
        let num_auxiliary = auxiliary.len();
        on_device.extend(auxiliary);
        for unit in &self.units {
            let (there, here) = unit.squares();
            on_device.extend(there);
            squares += here;
        }
        // The device is waited for once.
        let found = Array::items(on_device);
        let (losses, others) = found.split_at(num_losses);
        let (auxiliary, of_gradients) = others.split_at(num_auxiliary);
        squares += of_gradients.iter().sum::<f64>();
        let mut loss: f64 = if is_first { losses.iter().sum() } else { 0.0 };
        loss += auxiliary.iter().sum::<f64>();
        let communicator = &self.env.communicator;
        let world = communicator.world();
        let sums = Array::from_f64(vec![loss, squares], &[2], Element::F64, &self.env.device);
        let sums = communicator.on(&world, Stream::Data).all_reduce(sums, Reduction::Sum)?;
        let sums = sums.to_f64();
        let num_norms = self.program.num_means();
        let gradient_norm = (sums[1] / num_norms).sqrt() / self.loss_scale;
        self.own_norm = gradient_norm;
        if num_norms > 1.0 {
            let group = self.env.place.replica_group(&self.program.layout);
            let own = Array::from_f64(vec![squares], &[1], Element::F64, &self.env.device);
            let own = communicator.on(&group, Stream::Data).all_reduce(own, Reduction::Sum)?;
            self.own_norm = own.item().sqrt() / self.loss_scale;
        }
        let is_skipped = self.scaler.observe(gradient_norm);
        Ok(StepResult {
            loss: sums[0] / self.source.num_targets(&self.program) as f64,
            gradient_norm,
            is_skipped,
        })
    }

    /// Waits for all reductions, and for those of their sums that go to the host.
    pub(super) fn take_reduced(&mut self) -> Result<(), RunError> {
        for (unit, sum) in self.reducer.finish()? {
            self.units[unit].states.on_device_mut().add_reduced(sum);
        }
        if let Some(host) = &self.host {
            for (unit, sum) in host.take_gradients()? {
                if let Held::Host(states) = &mut self.units[unit].states {
                    states.add_reduced(sum);
                }
            }
        }
        Ok(())
    }

    /// Adds up the gradients of copies of tied tables: on all ranks in the order of what they are tied to, whichever
    /// each rank's blocks use first.
    fn reduce_tied(&mut self) -> Result<(), RunError> {
        let mut tied: Vec<_> = self.units.iter_mut().filter(|unit| unit.tied.is_some()).collect();
        tied.sort_by(|a, b| a.parameters[0].id.cmp(&b.parameters[0].id));
        for unit in tied {
            let Some(group) = &unit.tied else { continue };
            let communicator = &self.env.communicator;
            let sum = |own| communicator.on(group, Stream::Data).all_reduce(own, Reduction::Sum);
            match (&mut unit.states, &self.host) {
                (Held::Device(states), _) => {
                    states.reduced = states.reduced.take().map(sum).transpose()?;
                }
                (Held::Host(states), Some(host)) => {
                    let own = states.reduced.take();
                    let own = own.map(|own| host.brought(own, ActionKind::ReduceGrad));
                    states.reduced = own.map(sum).transpose()?.map(|sum| host.taken(sum));
                }
                (Held::Host(_), None) => panic!("states on the host need one"),
            }
        }
        Ok(())
    }

    /// What gradients are multiplied by before they update: the limit of their norm, and the scale of
    /// the loss undone; none if the update is skipped.
    pub(super) fn gradient_factor(&self, result: &StepResult) -> Option<f64> {
        let most = self.program.settings.max_gradient_norm;
        let limit = most.map_or(1.0, |most| (most / (self.own_norm + MARGIN)).min(1.0));
        (!result.is_skipped).then_some(limit / self.loss_scale)
    }

    /// Updates the parameters of a stage with its gradients times `factor`; none skips the update.
    pub(super) fn update(&mut self, stage: u32, factor: Option<f64>) -> Result<(), RunError> {
        let program = Arc::clone(&self.program);
        let settings = &program.settings;
        let rate = settings.schedule.at(self.num_steps);
        let blocks = self.stages[&stage].weights.iter();
        let mut of_stage: Vec<usize> = blocks.flat_map(|block| trained_units_of(block)).collect();
        of_stage.sort_unstable();
        of_stage.dedup();
        let method = settings.replication.method;
        let mut renewing = Vec::new();
        for index in of_stage {
            let unit = &mut self.units[index];
            let Some(factor) = factor else {
                unit.states.drop_reduced();
                continue;
            };
            // Of several stages that use a unit, the first updates it.
            let renewal = unit.update(settings, [rate, factor], &self.env.device);
            if renewal.is_none() && unit.role != Role::Served {
                continue;
            }
            let num_replicas = unit.replicas.len();
            match renewal {
                Some(Renewal::Gather(shard)) => {
                    let gathered = self.reducer.gather(vec![shard], &unit.replicas);
                    renewing.push((index, Renewing::Whole(gathered)));
                }
                Some(Renewal::Copy(shard)) => {
                    let host = self.host.as_ref().expect("only an offload copies shards");
                    let copied = host.to_device(shard, ActionKind::OptimizerStep);
                    renewing.push((index, Renewing::Shard(copied)));
                }
                Some(Renewal::Done) | None => {}
            }
            match method {
                DataParallelMethod::ParameterServer if num_replicas > 1 => self.serve(index)?,
                DataParallelMethod::RingAveraging if num_replicas > 1 => self.average(index)?,
                _ => {}
            }
        }
        for (index, renewing) in renewing {
            match renewing {
                Renewing::Whole(pending) => {
                    self.units[index].set_weights(only(pending.wait()?.wait()?));
                }
                Renewing::Shard(pending) => self.units[index].set_shard(pending.wait()?),
            }
        }
        Ok(())
    }

    /// Hands the weights of a unit from the replica that updated it to all others.
    fn serve(&mut self, index: usize) -> Result<(), RunError> {
        let unit = &mut self.units[index];
        let group = &unit.replicas.replicate;
        let root = group.ranks()[0];
        let own = (unit.role != Role::Served).then(|| unit.shard_on_device());
        let bytes = unit.shard_on_device().num_bytes();
        let activity = self.env.of_replicas(Collective::Broadcast);
        let weights = self.env.recorder.record(Stream::Data, activity, bytes, || {
            self.env.communicator.on(group, Stream::Data).broadcast(root, own)
        })?;
        if unit.role == Role::Served {
            unit.set_served(weights);
        }
        Ok(())
    }

    /// Averages the weights of a unit with those of both neighbours on the ring of replicas.
    fn average(&mut self, index: usize) -> Result<(), RunError> {
        let unit = &mut self.units[index];
        let neighbours = unit.replicas.replicate.neighbours(self.env.place.rank);
        let own = unit.states.on_device().master.clone();
        let bytes = own.num_bytes() * neighbours.len() as u64;
        let tag = Tag::Stream(Stream::Data);
        let communicator = &self.env.communicator;
        let activity = self.env.of_replicas(Collective::SendReceive);
        let theirs = self.env.recorder.record(Stream::Data, activity, bytes, || {
            for neighbour in &neighbours {
                communicator.send(*neighbour, tag, own.clone())?;
            }
            let theirs = neighbours.iter().map(|neighbour| communicator.receive(*neighbour, tag));
            theirs.collect::<Result<Vec<_>, CommunicationError>>()
        })?;
        let share = 1.0 / (theirs.len() + 1) as f64;
        let sum = theirs.into_iter().fold(own, |sum, other| sum + other);
        unit.states.on_device_mut().master = sum.scale(share);
        unit.renew(self.program.settings.compute);
        Ok(())
    }

    /// How far replicas are from agreeing on the weights: the root of the mean over replicas of the squared
    /// distance from their mean.
    ///
    /// ```text
    /// sqrt(1 / d sum_i |w_i - w|^2)        w = 1 / d sum_i w_i
    /// ```
    ///
    /// All ranks call it together. None where replicas are alike by what they do.
    ///
    /// # Errors
    ///
    /// [`RunError`] where another rank stopped.
    pub fn consensus_distance(&self) -> Result<Option<f64>, RunError> {
        if self.program.settings.replication.method != DataParallelMethod::RingAveraging {
            return Ok(None);
        }
        let communicator = &self.env.communicator;
        let mut squares = 0.0;
        for unit in &self.units {
            let group = &unit.replicas.replicate;
            let own = unit.states.on_device().master.clone();
            let sum =
                communicator.on(group, Stream::Data).all_reduce(own.clone(), Reduction::Sum)?;
            let away = own - sum.scale(1.0 / group.len() as f64);
            for range in unit.ranges_in_norm() {
                let part = away.narrow(0, range).widened();
                squares += part.square().sum().item();
            }
        }
        let world = communicator.world();
        let squares = Array::from_f64(vec![squares], &[1], Element::F64, &self.env.device);
        let squares = communicator.on(&world, Stream::Data).all_reduce(squares, Reduction::Sum)?;
        Ok(Some((squares.item() / f64::from(self.program.layout.data_parallel)).sqrt()))
    }
}

/// What kernels will read of a unit that was updated.
enum Renewing<B: Kernels> {
    /// All weights.
    Whole(Gathering<B>),
    /// This rank's shard.
    Shard(JobHandle<Array<B>>),
}

/// Keeps the norm from dividing by zero, as in PyTorch's `clip_grad_norm_`.
const MARGIN: f64 = 1e-6;
