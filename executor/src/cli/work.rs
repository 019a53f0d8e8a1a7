//! Work of ranks, on any backend and communicator.

use std::num::NonZeroUsize;
use std::sync::Arc;

use anyhow::anyhow;
#[cfg(any(feature = "mpi", feature = "cuda"))]
use anyhow::ensure;
#[cfg(feature = "cuda")]
use burn_cuda::CudaDevice;
use executor_communicators::{Cause, Communicator, RankFailure, local};
use executor_kernels::ops::Kernels;

use super::args::Backend;
use super::measuring::RanksArgs;

/// Work of each rank.
pub(super) trait RankJob: Sync {
    /// Runs the work on one rank.
    fn run<B: Kernels>(
        &self,
        communicator: Arc<dyn Communicator<B>>,
        device: B::Device,
    ) -> anyhow::Result<()>;

    /// Threads for the kernels of each of `num_ranks` ranks; none where ranks share the process's threads.
    fn threads(&self, ranks: &RanksArgs, num_ranks: u32) -> Option<NonZeroUsize> {
        (ranks.backend == Backend::Cpu).then(|| ranks.threads(num_ranks))
    }

    /// Refuses a GPU whose free memory `num_ranks` ranks exceed.
    #[cfg(feature = "cuda")]
    fn check_memory(&self, _gpu: &CudaDevice, _num_ranks: usize) -> anyhow::Result<()> {
        Ok(())
    }
}

/// A job on all devices of a backend.
pub(super) trait OnDevices {
    /// Runs the job.
    fn run<B: Kernels>(&self, devices: &[B::Device]);
}

/// Runs all ranks as threads; rank `r` is on device `r` modulo the number of devices.
pub(super) fn run_threads<B: Kernels>(
    work: &impl RankJob,
    args: &RanksArgs,
    devices: &[B::Device],
) -> anyhow::Result<()> {
    let num_ranks = args.num_ranks();
    let program = |communicator: Arc<dyn Communicator<B>>| {
        let device = &devices[communicator.rank() as usize % devices.len()];
        work.run(communicator, device.clone())
    };
    let threads = work.threads(args, num_ranks);
    local::run_on(num_ranks, devices, threads, program).map(|_| ()).map_err(failed)
}

/// Refuses a job whose number of processes differs from `--ranks`.
#[cfg(any(feature = "mpi", feature = "cuda"))]
pub(super) fn check_started(args: &RanksArgs, started: u32) -> anyhow::Result<()> {
    ensure!(
        args.ranks.is_none_or(|ranks| ranks == started),
        "`--ranks {}`, but {started} were started\nhint: leave it out, or start as many",
        args.num_ranks()
    );
    Ok(())
}

/// A failure that another rank reports.
#[derive(Debug, thiserror::Error)]
#[error("another rank failed")]
pub(super) struct ReportedElsewhere;

/// The failure of a job of processes, if this process, which is rank `own`, is to report it.
#[cfg(any(feature = "mpi", feature = "cuda"))]
pub(super) fn reported_once(own: u32, failure: RankFailure<anyhow::Error>) -> anyhow::Error {
    if failure.teller() == own { failed(failure) } else { ReportedElsewhere.into() }
}

/// A failure with its causes.
fn failed(RankFailure { rank, cause }: RankFailure<anyhow::Error>) -> anyhow::Error {
    let error = match cause {
        Cause::Error(error) => error,
        cause => anyhow!("{cause}"),
    };
    error.context(format!("rank {rank} failed"))
}
