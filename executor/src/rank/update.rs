//! The end of a step: what is left to be reduced, the norm of all gradients, the update.

use ir::collective::Collective;
use ir::replication::DataParallelMethod;
use traces::timeline::Stream;

use super::{Rank, RunError, StepResult, trained_units_of};
use crate::array::{Array, Element};
use crate::communicator::{CommunicationError, Group, Reduction, Tag};
use crate::ops::Kernels;
use crate::optimizer;
use crate::unit::{Role, only};

impl<B: Kernels> Rank<B> {
    /// Waits for all reductions, adds up copies of tied tables, and finds the loss and the norm.
    pub(super) fn finish_step(&mut self) -> Result<StepResult, RunError> {
        for unit in 0..self.units.len() {
            if self.units[unit].has_gradients() {
                self.reduce_unit(unit)?;
            }
        }
        self.take_reduced()?;
        for unit in &mut self.units {
            let Some(group) = &unit.tied else { continue };
            let Some(reduced) = unit.reduced.take() else { continue };
            let communicator = &self.env.communicator;
            let sum = communicator.all_reduce(group, Stream::Data, reduced, Reduction::Sum)?;
            unit.reduced = Some(sum);
        }
        let place = &self.env.place;
        let is_first = place.tensor == 0;
        let mut squares = 0.0;
        for unit in &self.units {
            squares += unit.squares(is_first);
        }
        let losses = std::mem::take(&mut self.losses);
        let mut loss: f64 = losses.iter().map(Array::item).sum();
        if !is_first {
            loss = 0.0;
        }
        loss += self.env.auxiliary_loss.take();
        let world = Group::new((0..self.env.communicator.num_ranks()).collect::<Vec<_>>());
        let sums = Array::from_f64(vec![loss, squares], &[2], Element::F64, &self.env.device);
        let sums =
            self.env.communicator.all_reduce(&world, Stream::Data, sums, Reduction::Sum)?.to_f64();
        let num_norms = self.program.num_means();
        let gradient_norm = (sums[1] / num_norms).sqrt() / self.loss_scale;
        self.own_norm = gradient_norm;
        if num_norms > 1.0 {
            let group = self.env.place.replica_group(&self.program.layout);
            let own = Array::from_f64(vec![squares], &[1], Element::F64, &self.env.device);
            let own =
                self.env.communicator.all_reduce(&group, Stream::Data, own, Reduction::Sum)?;
            self.own_norm = own.item().sqrt() / self.loss_scale;
        }
        let is_skipped = self.scaler.observe(gradient_norm);
        Ok(StepResult {
            loss: sums[0] / self.program.num_targets() as f64,
            gradient_norm,
            is_skipped,
        })
    }

    /// Waits for all reductions.
    pub(super) fn take_reduced(&mut self) -> Result<(), RunError> {
        for (unit, sum) in self.reducer.finish()? {
            self.units[unit].add_reduced(sum);
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
        let settings = &self.program.settings;
        let rate = settings.schedule.at(self.num_steps);
        let blocks = self.stages[&stage].weights.iter();
        let mut of_stage: Vec<usize> = blocks.flat_map(|block| trained_units_of(block)).collect();
        of_stage.sort_unstable();
        of_stage.dedup();
        let method = self.program.settings.replication.method;
        for index in of_stage {
            // Of several stages that use a unit, the first updates it.
            let gradient = self.units[index].reduced.take();
            let Some(factor) = factor else { continue };
            let num_replicas = self.units[index].replicas.len();
            if let Some(gradient) = gradient {
                self.update_unit(index, gradient, [rate, factor])?;
            } else if self.units[index].role != Role::Served {
                continue;
            }
            match method {
                DataParallelMethod::ParameterServer if num_replicas > 1 => self.serve(index)?,
                DataParallelMethod::RingAveraging if num_replicas > 1 => self.average(index)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Updates what this rank has of a unit by a gradient.
    fn update_unit(
        &mut self,
        index: usize,
        gradient: Array<B>,
        [rate, factor]: [f64; 2],
    ) -> Result<(), RunError> {
        let settings = &self.program.settings;
        let unit = &mut self.units[index];
        let gradient = gradient.cast(settings.master);
        unit.num_updates += 1;
        let (master, moments) = unit.take_states();
        let moments = moments.into_iter().map(|moment| moment.cast(settings.master)).collect();
        let (master, moments) = optimizer::update(
            &settings.optimizer,
            [rate, factor],
            unit.num_updates,
            master,
            moments,
            gradient,
        );
        unit.moments = moments.into_iter().map(|moment| moment.cast(settings.moments)).collect();
        if unit.set_master(master, settings.compute) {
            let pending = self.reducer.gather(vec![unit.shard()], &unit.replicas);
            unit.set_weights(only(pending.wait()?));
        }
        Ok(())
    }

    /// Hands the weights of a unit from the replica that updated it to all others.
    fn serve(&mut self, index: usize) -> Result<(), RunError> {
        let unit = &mut self.units[index];
        let group = &unit.replicas.replicate;
        let root = group.ranks()[0];
        let own = (unit.role != Role::Served).then(|| unit.shard());
        let bytes = unit.shard().num_bytes();
        let activity = self.env.of_replicas(Collective::Broadcast);
        let weights = self.env.recorder.record(Stream::Data, activity, bytes, || {
            self.env.communicator.broadcast(group, Stream::Data, root, own)
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
        let own = unit.master.clone();
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
        unit.set_master(sum.scale(share), self.program.settings.compute);
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
            let own = unit.master.clone();
            let sum = communicator.all_reduce(group, Stream::Data, own.clone(), Reduction::Sum)?;
            let away = own - sum.scale(1.0 / group.len() as f64);
            for range in unit.ranges_in_norm(self.env.place.tensor == 0) {
                let part = away.narrow(0, range).widened();
                squares += part.square().sum().item();
            }
        }
        let world = Group::new((0..communicator.num_ranks()).collect::<Vec<_>>());
        let squares = Array::from_f64(vec![squares], &[1], Element::F64, &self.env.device);
        let squares = communicator.all_reduce(&world, Stream::Data, squares, Reduction::Sum)?;
        Ok(Some((squares.item() / f64::from(self.program.layout.data_parallel)).sqrt()))
    }
}

/// Keeps the norm from dividing by zero, as in PyTorch's `clip_grad_norm_`.
const MARGIN: f64 = 1e-6;
