//! Ranks as processes that `mpirun` or `srun` started.

use std::sync::Arc;

use burn_flex::{Flex, FlexDevice};
use executor::communicator::{Communicator, mpi};

use super::args::RunArgs;
use super::job::{run_process, told_once};
use super::measuring::RanksArgs;
use super::work::{Work, check_started};

/// Runs this process's rank.
pub(super) fn run(args: &RunArgs) -> anyhow::Result<()> {
    let mut own = 0;
    let device = |rank| {
        own = rank;
        FlexDevice
    };
    let outcome = mpi::run(device, |communicator: Arc<dyn Communicator<Flex>>| {
        if let Some(threads) = args.threads_per_rank {
            rayon::ThreadPoolBuilder::new().num_threads(threads.get()).build_global()?;
        }
        run_process(args, communicator, FlexDevice)
    });
    outcome.map_err(|failure| told_once(own, failure))
}

/// Does this process's part of some work.
pub(super) fn run_work(work: &impl Work, args: &RanksArgs) -> anyhow::Result<()> {
    let mut own = 0;
    let device = |rank| {
        own = rank;
        FlexDevice
    };
    let outcome = mpi::run(device, |communicator: Arc<dyn Communicator<Flex>>| {
        check_started(args, communicator.num_ranks())?;
        // A process has the threads of its one rank.
        let threads = args.threads(communicator.num_ranks()).get();
        rayon::ThreadPoolBuilder::new().num_threads(threads).build_global()?;
        work.run(communicator, FlexDevice)
    });
    outcome.map_err(|failure| told_once(own, failure))
}
