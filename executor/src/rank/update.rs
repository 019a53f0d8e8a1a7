//! The end of a step: what is left to be reduced, the norm of all gradients, the update.

use traces::timeline::Stream;

use super::{Rank, RunError, StepResult, trained_units_of};
use crate::array::{Array, Element};
use crate::communicator::{Group, Reduction};
use crate::ops::Kernels;
use crate::optimizer;
use crate::unit::only;

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
            let Some(reduced) = &unit.reduced else { continue };
            for range in unit.ranges_in_norm(is_first) {
                let part = reduced.narrow(0, range).cast(wide(reduced.element()));
                squares += part.square().sum().item();
            }
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
        let gradient_norm = sums[1].sqrt() / self.loss_scale;
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
        let limit = most.map_or(1.0, |most| (most / (result.gradient_norm + MARGIN)).min(1.0));
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
        for index in of_stage {
            let unit = &mut self.units[index];
            // Of several stages that use a unit, the first updates it.
            let Some(gradient) = unit.reduced.take() else { continue };
            let Some(factor) = factor else { continue };
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
            unit.moments =
                moments.into_iter().map(|moment| moment.cast(settings.moments)).collect();
            if unit.set_master(master, settings.compute) {
                let pending = self.reducer.gather(vec![unit.shard()], &unit.replicas);
                unit.set_weights(only(pending.wait()?));
            }
        }
        Ok(())
    }
}

/// Keeps the norm from dividing by zero, as in PyTorch's `clip_grad_norm_`.
const MARGIN: f64 = 1e-6;

/// The element type in which squares are added up.
fn wide(element: Element) -> Element {
    if element == Element::F64 { element } else { Element::F32 }
}
