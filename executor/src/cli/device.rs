//! Runs on NVIDIA GPUs: ranks as threads, or as processes that a launcher started.

use executor::communicator::rendezvous::Launch;

use super::Told;
use super::args::{Backend, CommunicatorKind, RunArgs};

/// Who the ranks are and where they compute.
pub(super) fn in_words(args: &RunArgs) -> &'static str {
    match (args.communicator, args.backend) {
        (CommunicatorKind::Local, Backend::Cpu) => "threads, CPU",
        (CommunicatorKind::Local, Backend::Cuda) => "threads, CUDA",
        (_, Backend::Cpu) => "processes, CPU",
        (_, Backend::Cuda) => "processes, CUDA",
    }
}

/// What this process says is wrong with what all processes are given: one of them does.
pub(super) fn tell(args: &RunArgs, error: anyhow::Error) -> anyhow::Error {
    let is_other = || Launch::from_variables(variable).is_ok_and(|launch| launch.rank > 0);
    if args.communicator == CommunicatorKind::Nccl && is_other() { Told.into() } else { error }
}

fn variable(name: &'static str) -> Option<String> {
    std::env::var(name).ok()
}

#[cfg(not(feature = "cuda"))]
mod without {
    use anyhow::bail;

    use super::super::run::Job;
    use super::{CommunicatorKind, RunArgs};

    pub(crate) fn check(args: &RunArgs) -> anyhow::Result<()> {
        let what = if args.communicator == CommunicatorKind::Nccl { "NCCL" } else { "CUDA" };
        bail!(
            "this `executor` was built without {what}\nhint: build it with `cargo build --release \
             -p executor --features cuda`, or leave `--backend` and `--communicator` out to run on \
             the CPU"
        )
    }

    pub(crate) fn run(job: &Job<'_>) -> anyhow::Result<()> {
        check(job.args)
    }
}

#[cfg(not(feature = "cuda"))]
pub(super) use without::{check, run};

#[cfg(feature = "cuda")]
mod with {
    use std::sync::Arc;
    use std::time::Duration;

    use anyhow::bail;
    use burn_cuda::CudaDevice;
    use executor::array::Element;
    use executor::communicator::nccl::cuda::NcclEngine;
    use executor::communicator::nccl::{self, Checks, Engine};
    use executor::communicator::rendezvous::{Launch, Line};
    use executor::communicator::{Communicator, local};
    use executor::cuda::{Cuda, check_copies, devices};

    use super::super::run::Job;
    use super::{Backend, CommunicatorKind, RunArgs, Told, tell, variable};

    /// How long ranks wait for each other: those of a large job start minutes apart.
    const MEETING_TIME: Duration = Duration::from_mins(5);

    /// Fails if what the arguments ask for is not there, before any work is done.
    pub(crate) fn check(args: &RunArgs) -> anyhow::Result<()> {
        if args.backend == Backend::Cpu {
            bail!("NCCL moves arrays between GPUs alone\nhint: add `--backend cuda`");
        }
        if args.communicator == CommunicatorKind::Mpi {
            bail!(
                "MPI connects ranks on CPUs\nhint: `--communicator nccl` starts from `mpirun` too"
            );
        }
        devices()?;
        Ok(())
    }

    pub(crate) fn run(job: &Job<'_>) -> anyhow::Result<()> {
        if job.program.settings.compute == Element::F64 {
            let error = anyhow::anyhow!(
                "the CUDA backend has no fp64\nhint: `--precision fp32`, or compare layouts in \
                 fp64 on the CPU"
            );
            return Err(tell(job.args, error));
        }
        let devices = devices()?;
        if job.args.communicator == CommunicatorKind::Nccl {
            run_process(job, &devices)
        } else {
            run_threads(job, &devices)
        }
    }

    /// All ranks, as threads; rank `r` is on GPU `r`, and they begin anew where there are fewer.
    fn run_threads(job: &Job<'_>, devices: &[CudaDevice]) -> anyhow::Result<()> {
        let num_ranks = job.program.num_ranks();
        let devices = &devices[..devices.len().min(num_ranks as usize)];
        check_copies(devices)?;
        let run = |communicator: Arc<dyn Communicator<Cuda>>| {
            let device = &devices[communicator.rank() as usize % devices.len()];
            job.run_rank(communicator, device.clone())
        };
        match local::run(num_ranks, devices, run) {
            Ok(_) => Ok(()),
            Err(failure) => bail!("{failure}"),
        }
    }

    /// One rank of a job.
    fn run_process(job: &Job<'_>, devices: &[CudaDevice]) -> anyhow::Result<()> {
        let launch = Launch::from_variables(variable)?;
        let (started, needed) = (launch.num_ranks, job.program.num_ranks());
        if started != needed {
            let error = anyhow::anyhow!(
                "the plan is for {needed} ranks, but {started} were started\nhint: start {needed}, \
                 or make a plan for {started} GPUs"
            );
            return Err(tell(job.args, error));
        }
        let device = devices[launch.local_rank as usize % devices.len()].clone();
        let nccl = NcclEngine::open(device.clone())?;
        let line = Line::join(&launch, MEETING_TIME)?;
        // Letters cost little beside what they protect, but not in a build that is made to be fast.
        let checks = if cfg!(debug_assertions) { Checks::Reductions } else { Checks::None };
        let engine = |line: &Line| {
            nccl::check_devices(line, &nccl.device_id()?)?;
            Ok(Arc::new(nccl) as Arc<dyn Engine<Cuda>>)
        };
        let program = |communicator| job.run_rank(communicator, device.clone());
        match nccl::run(line, engine, device.clone(), checks, program) {
            Ok(()) => Ok(()),
            // Of several that fail, the one that failed first says so.
            Err(failure) if failure.rank == launch.rank => bail!("{failure}"),
            Err(_) => Err(Told.into()),
        }
    }
}

#[cfg(feature = "cuda")]
pub(super) use with::{check, run};
