//! Runs on NVIDIA GPUs: ranks as threads, or as processes that a launcher started.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use burn_cuda::CudaDevice;
use executor::communicator::Communicator;
use executor::communicator::nccl::cuda::NcclEngine;
use executor::communicator::nccl::{self, Checks, Engine};
use executor::communicator::rendezvous::{Launch, Line};
use executor::cuda::{Cuda, check_copies, devices};

use super::args::{Backend, CommunicatorKind, PrecisionArg, RunArgs};
use super::job::{run_process, run_threads, told_once};

/// How long ranks wait for each other: those of a large job start minutes apart.
const MEETING_TIME: Duration = Duration::from_mins(5);

/// Runs all ranks, or the one that is this process.
pub(super) fn run(args: &RunArgs) -> anyhow::Result<()> {
    let mut devices = check(args)?;
    if args.communicator == CommunicatorKind::Nccl {
        return run_rank(args, &devices);
    }
    run_threads::<Cuda>(args, |num_ranks| {
        devices.truncate(num_ranks as usize);
        check_copies(&devices)?;
        Ok(devices)
    })
}

/// The GPUs, if what the arguments ask for is there.
fn check(args: &RunArgs) -> anyhow::Result<Vec<CudaDevice>> {
    if args.backend == Backend::Cpu {
        bail!("NCCL moves arrays between GPUs alone\nhint: add `--backend cuda`");
    }
    if args.communicator == CommunicatorKind::Mpi {
        bail!(
            "MPI connects ranks on CPUs\nhint: `--backend cuda --communicator nccl` starts from `mpirun` too"
        );
    }
    if args.training.precision == Some(PrecisionArg::Fp64) {
        bail!(
            "the CUDA backend has no fp64\nhint: `--precision fp32`, or compare layouts in fp64 on the \
             CPU"
        );
    }
    Ok(devices()?)
}

/// The rank that this process is by what its launcher says.
fn run_rank(args: &RunArgs, devices: &[CudaDevice]) -> anyhow::Result<()> {
    let launch = Launch::from_variables(|name| std::env::var(name).ok())?;
    let device = devices[launch.local_rank as usize % devices.len()].clone();
    let nccl = NcclEngine::open(device.clone())?;
    let line = Line::join(&launch, MEETING_TIME)?;
    // Letters cost little beside what they protect, but not in a build that is made to be fast.
    let checks = if cfg!(debug_assertions) { Checks::Reductions } else { Checks::None };
    let engine = |line: &Line| {
        nccl::check_devices(line, &nccl.device_id()?)?;
        Ok(Arc::new(nccl) as Arc<dyn Engine<Cuda>>)
    };
    let program =
        |communicator: Arc<dyn Communicator<Cuda>>| run_process(args, communicator, device.clone());
    nccl::run(line, engine, device.clone(), checks, program)
        .map_err(|failure| told_once(launch.rank, failure))
}
