//! Replicas that get their weights from the first replica, the only one that updates them.

use executor_kernels::ops::Kernels;
use ir::collective::Collective;
use ir::replication::DataParallelMethod;
use traces::timeline::Stream;

use crate::flat_parameter::Role;
use crate::rank::{Layer, Rank, RunError};

struct ParameterServer;

/// The layer that broadcasts weights, where the first replica is a parameter server.
pub(super) fn layer<B: Kernels>(rank: &Rank<B>) -> Option<Box<dyn Layer<B>>> {
    let method = rank.program.settings.replication.method;
    (method == DataParallelMethod::ParameterServer).then(|| Box::new(ParameterServer) as _)
}

impl<B: Kernels> Layer<B> for ParameterServer {
    /// Broadcasts the weights of a unit from the replica that updated it.
    fn after_update(&mut self, rank: &mut Rank<B>, unit: usize) -> Result<(), RunError> {
        let unit = &mut rank.units[unit];
        if unit.replicas.num_copies() == 1 {
            return Ok(());
        }
        let group = &unit.replicas.replicate;
        let root = group.ranks()[0];
        let own = (unit.role != Role::Served).then(|| unit.shard_on_device());
        let bytes = unit.shard_on_device().num_bytes();
        let weights = rank.env.recorded(Stream::Data, Collective::Broadcast, bytes, || {
            rank.env.communicator.on(group, Stream::Data).broadcast(root, own)
        })?;
        if unit.role == Role::Served {
            unit.set_served(weights);
        }
        Ok(())
    }
}
