//! Ranks as processes that `mpirun` or `srun` started.

use std::sync::Arc;

use burn_flex::{Flex, FlexDevice};
use executor_communicators::{Communicator, mpi};

use super::measuring::RanksArgs;
use super::work::{RankJob, check_started, reported_once};

/// Runs this process's part of the work.
pub(super) fn run(work: &impl RankJob, args: &RanksArgs) -> anyhow::Result<()> {
    let mut own = 0;
    let device = |rank| {
        own = rank;
        FlexDevice
    };
    let outcome = mpi::run(device, |communicator: Arc<dyn Communicator<Flex>>| {
        check_started(args, communicator.num_ranks())?;
        // All threads of a process serve its one rank.
        if let Some(threads) = work.threads(args, communicator.num_ranks()) {
            rayon::ThreadPoolBuilder::new().num_threads(threads.get()).build_global()?;
        }
        work.run(communicator, FlexDevice)
    });
    outcome.map_err(|failure| reported_once(own, failure))
}
