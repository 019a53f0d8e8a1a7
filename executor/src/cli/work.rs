//! What ranks do that run no plan, on whatever they are asked to run.

use std::sync::Arc;

use anyhow::ensure;
use executor::communicator::{Communicator, local};
use executor::ops::Kernels;

use super::args::Backend;
use super::job::failed;
use super::measuring::RanksArgs;

/// What each rank does.
pub(super) trait Work: Sync {
    /// Does it on one rank.
    fn run<B: Kernels>(
        &self,
        communicator: Arc<dyn Communicator<B>>,
        device: B::Device,
    ) -> anyhow::Result<()>;
}

/// What is done with all devices of a backend.
pub(super) trait OnDevices {
    /// Does it.
    fn run<B: Kernels>(&self, devices: &[B::Device]);
}

/// All ranks as threads; rank `r` is on device `r`, and they begin anew where there are fewer.
pub(super) fn run_threads<B: Kernels>(
    work: &impl Work,
    args: &RanksArgs,
    devices: &[B::Device],
) -> anyhow::Result<()> {
    let num_ranks = args.num_ranks();
    let threads = (args.backend == Backend::Cpu).then(|| args.threads(num_ranks));
    let program = |communicator: Arc<dyn Communicator<B>>| {
        let device = &devices[communicator.rank() as usize % devices.len()];
        work.run(communicator, device.clone())
    };
    local::run_on(num_ranks, devices, threads, program).map(|_| ()).map_err(failed)
}

/// Refuses a job of processes that is not as large as was said.
#[cfg_attr(
    not(any(feature = "mpi", feature = "cuda")),
    expect(dead_code, reason = "ranks are threads in this build")
)]
pub(super) fn check_started(args: &RanksArgs, started: u32) -> anyhow::Result<()> {
    ensure!(
        args.ranks.is_none_or(|ranks| ranks == started),
        "`--ranks {}`, but {started} were started\nhint: leave it out, or start as many",
        args.num_ranks()
    );
    Ok(())
}
