//! Replicas that update by their own gradients, and average their weights with those of their neighbours.

use executor_communicators::{CommunicationError, Reduction, Tag};
use executor_kernels::array::{Array, Element};
use executor_kernels::ops::Kernels;
use ir::collective::Collective;
use ir::replication::DataParallelMethod;
use traces::timeline::Stream;

use crate::rank::{Layer, Rank, RunError};

struct RingAveraging;

/// The layer that averages weights, where replicas form a ring.
pub(super) fn layer<B: Kernels>(rank: &Rank<B>) -> Option<Box<dyn Layer<B>>> {
    let method = rank.program.settings.replication.method;
    (method == DataParallelMethod::RingAveraging).then(|| Box::new(RingAveraging) as _)
}

impl<B: Kernels> Layer<B> for RingAveraging {
    /// Averages the weights of a unit with those of both neighbours on the ring of replicas.
    fn after_update(&mut self, rank: &mut Rank<B>, unit: usize) -> Result<(), RunError> {
        let unit = &mut rank.units[unit];
        if unit.replicas.num_copies() == 1 {
            return Ok(());
        }
        let neighbours = unit.replicas.replicate.neighbours(rank.env.place.rank);
        let own = unit.states.on_device().master.clone();
        let bytes = own.num_bytes() * neighbours.len() as u64;
        let tag = Tag::Stream(Stream::Data);
        let communicator = &rank.env.communicator;
        let theirs = rank.env.recorded(Stream::Data, Collective::SendReceive, bytes, || {
            for neighbour in &neighbours {
                communicator.send(*neighbour, tag, own.clone())?;
            }
            let theirs = neighbours.iter().map(|neighbour| communicator.receive(*neighbour, tag));
            theirs.collect::<Result<Vec<_>, CommunicationError>>()
        })?;
        let share = 1.0 / (theirs.len() + 1) as f64;
        let sum = theirs.into_iter().fold(own, |sum, other| sum + other);
        unit.states.on_device_mut().master = sum.scale(share);
        unit.renew(rank.program.settings.compute);
        Ok(())
    }

    /// The root of the mean, over replicas, of the squared distance from the mean weights.
    ///
    /// ```text
    /// sqrt(1 / d sum_i |w_i - w|^2)        w = 1 / d sum_i w_i
    /// ```
    fn consensus_distance(&self, rank: &Rank<B>) -> Result<Option<f64>, RunError> {
        let communicator = &rank.env.communicator;
        let mut squares = 0.0;
        for unit in &rank.units {
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
        let squares = Array::from_f64(vec![squares], &[1], Element::F64, &rank.env.device);
        let squares = communicator.on(&world, Stream::Data).all_reduce(squares, Reduction::Sum)?;
        Ok(Some((squares.item() / f64::from(rank.program.layout.data_parallel)).sqrt()))
    }
}
