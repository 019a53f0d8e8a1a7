//! Ranks as processes that `mpirun` or `srun` started.

use std::sync::Arc;

use burn_flex::{Flex, FlexDevice};
use executor::communicator::{Communicator, mpi};

use super::args::RunArgs;
use super::job::{run_process, told_once};

/// Runs this process's rank.
pub(super) fn run(args: &RunArgs) -> anyhow::Result<()> {
    let mut own = 0;
    let device = |rank| {
        own = rank;
        FlexDevice
    };
    let outcome = mpi::run(device, |communicator: Arc<dyn Communicator<Flex>>| {
        run_process(args, communicator, FlexDevice)
    });
    outcome.map_err(|failure| told_once(own, failure))
}
