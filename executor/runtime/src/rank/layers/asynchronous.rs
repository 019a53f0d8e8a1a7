//! Asynchronous replicas: each takes weights from a server and sends its gradients there, without waiting for others.

use std::sync::Arc;

use executor_kernels::array::Array;
use executor_kernels::ops::Kernels;
use ir::collective::Collective;
use ir::replication::DataParallelMethod;
use traces::timeline::Stream;

use crate::flat_parameter::FlatParameter;
use crate::rank::{Layer, Rank, RunError, StepResult};
use crate::server::{Server, Staleness, TAG};

/// Location of the server of the shared weights.
enum Shared<B: Kernels> {
    /// On this rank.
    Here(Arc<Server<B>>),
    /// On the rank with this number.
    At(u32),
}

/// The layer that shares weights, where replicas are asynchronous.
pub(super) fn layer<B: Kernels>(rank: &mut Rank<B>) -> Option<Box<dyn Layer<B>>> {
    let method = rank.program.settings.replication.method;
    let DataParallelMethod::Asynchronous { staleness } = method else { return None };
    if rank.env.place.rank > 0 {
        return Some(Box::new(Shared::At(0)));
    }
    let num_replicas = rank.program.layout.data_parallel;
    let units = rank.units.iter_mut().map(FlatParameter::hand_over);
    let settings = rank.program.settings.clone();
    let server = Arc::new(Server::new(units.collect(), settings, staleness, num_replicas));
    for replica in 1..num_replicas {
        server.serve(Arc::clone(&rank.env.communicator), replica);
    }
    Some(Box::new(Shared::Here(server)))
}

impl<B: Kernels> Layer<B> for Shared<B> {
    /// Takes the current shared weights.
    fn before_step(&mut self, rank: &mut Rank<B>) -> Result<(), RunError> {
        let bytes = rank.units.iter().map(|unit| unit.shard_on_device().num_bytes()).sum();
        let communicator = &rank.env.communicator;
        let take = || match self {
            Self::Here(server) => server.take(0),
            Self::At(keeper) => {
                let device = &rank.env.device;
                let request = Array::zeros(&[0], rank.program.settings.compute, device);
                communicator.send(*keeper, TAG, request)?;
                rank.units.iter().map(|_| communicator.receive(*keeper, TAG)).collect()
            }
        };
        let weights = rank.env.recorded(Stream::Data, Collective::SendReceive, bytes, take)?;
        for (unit, weights) in rank.units.iter_mut().zip(weights) {
            unit.set_served(weights);
        }
        Ok(())
    }

    /// Sends this step's gradients to the server. Loss and norm are the replica's own.
    fn instead_of_update(&mut self, rank: &mut Rank<B>) -> Result<Option<StepResult>, RunError> {
        // The replica is one rank, so no gradient counts twice.
        let reduced = rank.units.iter().filter_map(|it| it.states.on_device().reduced.clone());
        let squares: f64 = reduced.map(|it| it.widened().square().sum().item()).sum();
        let losses = std::mem::take(&mut rank.losses);
        let loss: f64 = losses.iter().map(Array::item).sum();
        let auxiliary = Array::items(rank.env.auxiliary_losses.take());
        let loss = loss + auxiliary.iter().sum::<f64>();
        rank.own_norm = squares.sqrt() / rank.loss_scale;
        let num_targets = rank.source.num_targets(&rank.program) as f64 / rank.program.num_means();
        let (loss, gradient_norm) = (loss / num_targets, rank.own_norm);
        let result = StepResult { loss, gradient_norm, is_skipped: false };
        let factor = rank.gradient_factor(&result).unwrap_or(1.0);
        let element = rank.program.settings.compute;
        let device = &rank.env.device;
        let gradients = rank.units.iter_mut().map(|unit| unit.take_reduced(element, device));
        let gradients: Vec<Array<B>> = gradients.map(|gradient| gradient.scale(factor)).collect();
        let bytes = gradients.iter().map(Array::num_bytes).sum();
        let communicator = &rank.env.communicator;
        rank.env.recorded(Stream::Data, Collective::SendReceive, bytes, || match self {
            Self::Here(server) => server.apply(0, gradients),
            Self::At(keeper) => {
                gradients.into_iter().try_for_each(|it| communicator.send(*keeper, TAG, it))
            }
        })?;
        Ok(Some(result))
    }

    /// Ends the sharing of weights, once all replicas have done their steps: the rank of the server takes back the
    /// final weights.
    fn settle(&mut self, rank: &mut Rank<B>) -> Result<(), RunError> {
        rank.synchronize()?;
        let Self::Here(server) = self else { return Ok(()) };
        let (units, num_updates) = server.settle()?;
        for (unit, states) in rank.units.iter_mut().zip(units) {
            unit.take_back(states, num_updates, rank.program.settings.compute);
        }
        Ok(())
    }

    fn staleness(&self) -> Option<Staleness> {
        match self {
            Self::Here(server) => Some(server.staleness()),
            Self::At(_) => None,
        }
    }

    fn num_bytes(&self) -> u64 {
        match self {
            Self::Here(server) => server.num_bytes(),
            Self::At(_) => 0,
        }
    }
}
