//! Steps of replicas that wait for no other: weights are taken from the one that keeps them, and gradients
//! brought there.

use std::sync::Arc;

use executor_communicators::CommunicationError;
use executor_kernels::array::Array;
use executor_kernels::ops::Kernels;
use ir::collective::Collective;
use ir::replication::DataParallelMethod;
use traces::timeline::Stream;

use super::{Rank, RunError, StepResult};
use crate::server::{Server, Shared, Staleness, TAG};
use crate::unit::Unit;

impl<B: Kernels> Rank<B> {
    /// Begins to share weights, where replicas wait for no other.
    pub(super) fn share_weights(&mut self) {
        let replication = self.program.settings.replication;
        let DataParallelMethod::Asynchronous { staleness } = replication.method else { return };
        let num_replicas = self.program.layout.data_parallel;
        if self.env.place.rank > 0 {
            self.shared = Some(Shared::At(0));
            return;
        }
        let units = self.units.iter_mut().map(Unit::hand_over);
        let settings = self.program.settings.clone();
        let server = Arc::new(Server::new(units.collect(), settings, staleness, num_replicas));
        for replica in 1..num_replicas {
            server.serve(Arc::clone(&self.env.communicator), replica);
        }
        self.shared = Some(Shared::Here(server));
    }

    /// Ends the sharing of weights, once all replicas have done their steps: the rank that keeps them has all
    /// that they came to. Nothing where no weights are shared.
    ///
    /// # Errors
    ///
    /// [`RunError`] where another rank stopped.
    pub fn settle(&mut self) -> Result<(), RunError> {
        if self.shared.is_none() {
            return Ok(());
        }
        self.synchronize()?;
        if let Some(Shared::Here(server)) = &self.shared {
            let (units, num_updates) = server.settle()?;
            for (unit, states) in self.units.iter_mut().zip(units) {
                unit.take_back(states, num_updates, self.program.settings.compute);
            }
        }
        Ok(())
    }

    /// How old the gradients were that updated shared weights, on the rank that keeps them.
    pub fn staleness(&self) -> Option<Staleness> {
        match &self.shared {
            Some(Shared::Here(server)) => Some(server.staleness()),
            _ => None,
        }
    }

    /// Bytes of shared weights that this rank keeps.
    pub(super) fn shared_bytes(&self) -> u64 {
        match &self.shared {
            Some(Shared::Here(server)) => server.num_bytes(),
            _ => 0,
        }
    }

    /// Takes the shared weights as they are now.
    pub(super) fn take_shared(&mut self) -> Result<(), RunError> {
        let bytes = self.units.iter().map(|unit| unit.shard_on_device().num_bytes()).sum();
        let activity = self.env.of_replicas(Collective::SendReceive);
        let communicator = &self.env.communicator;
        let take = || match &self.shared {
            Some(Shared::Here(server)) => server.take(0),
            Some(Shared::At(keeper)) => {
                let device = &self.env.device;
                let request = Array::zeros(&[0], self.program.settings.compute, device);
                communicator.send(*keeper, TAG, request)?;
                self.units.iter().map(|_| communicator.receive(*keeper, TAG)).collect()
            }
            None => panic!("only shared weights are taken"),
        };
        let weights: Result<Vec<Array<B>>, CommunicationError> =
            self.env.recorder.record(Stream::Data, activity, bytes, take);
        for (unit, weights) in self.units.iter_mut().zip(weights?) {
            unit.set_served(weights);
        }
        Ok(())
    }

    /// Brings this step's gradients to the shared weights. Loss and norm are the replica's own.
    pub(super) fn bring_gradients(&mut self) -> Result<StepResult, RunError> {
        // The replica is this rank alone, and has nothing twice.
        let reduced = self.units.iter().filter_map(|it| it.states.on_device().reduced.clone());
        let squares: f64 = reduced.map(|it| it.widened().square().sum().item()).sum();
        let losses = std::mem::take(&mut self.losses);
        let loss: f64 = losses.iter().map(Array::item).sum();
        let auxiliary = Array::items(self.env.auxiliary_losses.take());
        let loss = loss + auxiliary.iter().sum::<f64>();
        self.own_norm = squares.sqrt() / self.loss_scale;
        let num_targets = self.source.num_targets(&self.program) as f64 / self.program.num_means();
        let (loss, gradient_norm) = (loss / num_targets, self.own_norm);
        let result = StepResult { loss, gradient_norm, is_skipped: false };
        let factor = self.gradient_factor(&result).unwrap_or(1.0);
        let element = self.program.settings.compute;
        let device = &self.env.device;
        let gradients = self.units.iter_mut().map(|unit| unit.take_reduced(element, device));
        let gradients: Vec<Array<B>> = gradients.map(|gradient| gradient.scale(factor)).collect();
        let bytes = gradients.iter().map(Array::num_bytes).sum();
        let activity = self.env.of_replicas(Collective::SendReceive);
        let communicator = &self.env.communicator;
        self.env.recorder.record(Stream::Data, activity, bytes, || match &self.shared {
            Some(Shared::Here(server)) => server.apply(0, gradients),
            Some(Shared::At(keeper)) => {
                gradients.into_iter().try_for_each(|it| communicator.send(*keeper, TAG, it))
            }
            None => panic!("gradients are brought to shared weights"),
        })?;
        Ok(result)
    }
}
