//! Ranks as processes that `mpirun` or `srun` started.

use std::sync::Arc;

use anyhow::bail;
use burn_flex::{Flex, FlexDevice};
use executor::communicator::{Cause, Communicator, RankFailure, mpi};

use super::run::Job;

/// Where MPI libraries and Slurm tell a process its rank before MPI has started.
const RANK_VARIABLES: [&str; 3] = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"];

/// Whether this is the process that tells what is wrong with what all are given.
pub(super) fn is_first_process() -> bool {
    let rank = RANK_VARIABLES.iter().find_map(|name| std::env::var(name).ok());
    rank.is_none_or(|rank| rank == "0")
}

/// Runs this process's rank. Of several that fail, the one that failed first says so.
pub(super) fn run(job: &Job<'_>) -> anyhow::Result<()> {
    let mut own = 0;
    let device = |rank| {
        own = rank;
        FlexDevice
    };
    let outcome = mpi::run(device, |communicator: Arc<dyn Communicator<Flex>>| {
        let (started, needed) = (communicator.num_ranks(), job.program.num_ranks());
        if started != needed {
            if communicator.rank() != 0 {
                return Err(super::Told.into());
            }
            bail!(
                "the plan is for {needed} ranks, but {started} were started\nhint: `mpirun -n \
                 {needed}`, or a plan for {started} GPUs"
            );
        }
        job.run_rank(communicator, FlexDevice)
    });
    match outcome {
        Ok(()) => Ok(()),
        Err(RankFailure { rank, cause }) if rank == own => match cause {
            Cause::Error(error) if error.is::<super::Told>() => Err(error),
            Cause::Error(error) => Err(error.context(format!("rank {rank} failed"))),
            cause => bail!("rank {rank} failed: {cause}"),
        },
        Err(_) => Err(super::Told.into()),
    }
}
