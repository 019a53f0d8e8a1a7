//! The end of a step: outstanding reductions, the norm of all gradients, the update.

use std::collections::BTreeSet;
use std::sync::Arc;

use executor_communicators::{JobHandle, Reduction};
use executor_kernels::array::{Array, Element};
use executor_kernels::ops::Kernels;
use traces::timeline::Stream;

use super::{Rank, RunError, StepResult, trained_units_of};
use crate::flat_parameter::{Renewal, Role};
use crate::reducer::Gathering;
use crate::sharded::Sharded;

impl<B: Kernels> Rank<B> {
    /// Waits for all reductions, sums the copies of tied tables, and computes the loss and the norm.
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
        // All numbers are read with one wait for the device.
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

    /// Waits for all reductions, and for copies of their sums to the host.
    pub(super) fn take_reduced(&mut self) -> Result<(), RunError> {
        for (unit, sum) in self.reducer.finish()? {
            self.units[unit].states.on_device_mut().add_reduced(sum);
        }
        Ok(self.units.iter_mut().try_for_each(|unit| unit.states.finish_reduced())?)
    }

    /// Sums the gradients of copies of tied tables. All ranks do so in the order of the original parameters, whatever
    /// the order in which their blocks use them.
    fn reduce_tied(&mut self) -> Result<(), RunError> {
        let mut tied: Vec<_> = self.units.iter_mut().filter(|unit| unit.tied.is_some()).collect();
        tied.sort_by(|a, b| a.parameters[0].id.cmp(&b.parameters[0].id));
        for unit in tied {
            let Some(group) = &unit.tied else { continue };
            let communicator = &self.env.communicator;
            let sum = |own| communicator.on(group, Stream::Data).all_reduce(own, Reduction::Sum);
            unit.states.change_reduced(sum)?;
        }
        Ok(())
    }

    /// The factor of gradients in the update: it clips their norm and undoes the scale of the loss; none if the update
    /// is skipped.
    pub(super) fn gradient_factor(&self, result: &StepResult) -> Option<f64> {
        let most = self.program.settings.max_gradient_norm;
        let limit = most.map_or(1.0, |most| (most / (self.own_norm + MARGIN)).min(1.0));
        (!result.is_skipped).then_some(limit / self.loss_scale)
    }

    /// Updates the parameters of a stage with its gradients times `factor`; without a factor the update is skipped.
    pub(super) fn update(&mut self, stage: u32, factor: Option<f64>) -> Result<(), RunError> {
        let program = Arc::clone(&self.program);
        let settings = &program.settings;
        let rate = settings.schedule.at(self.num_steps);
        let blocks = self.stages[&stage].weights.iter();
        let of_stage: BTreeSet<usize> = blocks.flat_map(|block| trained_units_of(block)).collect();
        let mut renewing = Vec::new();
        for index in of_stage {
            let unit = &mut self.units[index];
            let Some(factor) = factor else {
                unit.states.drop_reduced();
                continue;
            };
            // A unit that several stages use is updated by the first of them.
            let renewal = unit.update(settings, [rate, factor], &self.env.device);
            if renewal.is_none() && unit.role != Role::Served {
                continue;
            }
            match renewal {
                Some(Renewal::Gather(shard)) => {
                    let gathered = self.reducer.gather(vec![shard], &unit.replicas);
                    renewing.push((index, Renewing::Whole(gathered)));
                }
                Some(Renewal::Copy(copied)) => renewing.push((index, Renewing::Shard(copied))),
                Some(Renewal::Done) | None => {}
            }
            self.ask(|layer, rank| layer.after_update(rank, index))?;
        }
        for (index, renewing) in renewing {
            match renewing {
                Renewing::Whole(pending) => {
                    self.units[index].set_gathered(pending.wait()?.wait()?);
                }
                Renewing::Shard(pending) => self.units[index].set_shard(pending.wait()?),
            }
        }
        Ok(())
    }
}

/// Weights of an updated unit on their way to kernels.
enum Renewing<B: Kernels> {
    /// All weights.
    Whole(Gathering<B>),
    /// This rank's shard.
    Shard(JobHandle<Array<B>>),
}

/// Keeps the norm from dividing by zero, as in PyTorch's `clip_grad_norm_`.
const MARGIN: f64 = 1e-6;
