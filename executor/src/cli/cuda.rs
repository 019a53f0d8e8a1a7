//! Runs on NVIDIA GPUs: ranks as threads, or as processes that a launcher started.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use burn_cuda::CudaDevice;
use executor::communicator::Communicator;
use executor::communicator::nccl::cuda::NcclEngine;
use executor::communicator::nccl::{self, Checks, Engine};
use executor::communicator::rendezvous::{Launch, Line};
use executor::cuda::{Cuda, devices, settle};

use super::args::{Backend, CommunicatorKind, PrecisionArg, RunArgs};
use super::job::{run_process, run_threads, told_once};
use super::measuring::RanksArgs;
use super::work::{Work, check_started, run_threads as run_threads_of};

/// How long ranks wait for each other: those of a large job start minutes apart.
const MEETING_TIME: Duration = Duration::from_mins(5);

/// What to do without 64 bits.
const NO_FP64: &str =
    "the CUDA backend has no fp64\nhint: `--precision fp32`, or compare layouts in fp64 on the CPU";

/// Runs all ranks, or the one that is this process.
pub(super) fn run(args: &RunArgs) -> anyhow::Result<()> {
    let mut devices = check(args.backend, args.communicator)?;
    if args.training.precision == Some(PrecisionArg::Fp64) {
        bail!(NO_FP64);
    }
    if args.communicator == CommunicatorKind::Nccl {
        return run_rank(args, &devices);
    }
    let mut used = Vec::new();
    let outcome = run_threads::<Cuda>(args, |num_ranks| {
        devices.truncate(num_ranks as usize);
        used.clone_from(&devices);
        Ok(devices)
    });
    settle(&used);
    outcome
}

/// The GPUs, if what the arguments ask for is there.
fn check(backend: Backend, communicator: CommunicatorKind) -> anyhow::Result<Vec<CudaDevice>> {
    if backend == Backend::Cpu {
        bail!("NCCL moves arrays between GPUs alone\nhint: add `--backend cuda`");
    }
    if communicator == CommunicatorKind::Mpi {
        bail!(
            "MPI connects ranks on CPUs\nhint: `--backend cuda --communicator nccl` starts from `mpirun` too"
        );
    }
    Ok(devices()?)
}

/// Does some work on all ranks, or on the one that is this process.
pub(super) fn run_work(work: &impl Work, args: &RanksArgs) -> anyhow::Result<()> {
    let mut devices = check(args.backend, args.communicator)?;
    if args.communicator == CommunicatorKind::Nccl {
        return run_nccl(&devices, args.communication_timeout, |communicator, device| {
            check_started(args, communicator.num_ranks())?;
            work.run(communicator, device)
        });
    }
    devices.truncate(args.num_ranks() as usize);
    let outcome = run_threads_of::<Cuda>(work, args, &devices);
    settle(&devices);
    outcome
}

/// The rank of a plan that this process is by what its launcher says.
fn run_rank(args: &RunArgs, devices: &[CudaDevice]) -> anyhow::Result<()> {
    let limit = args.communication_timeout;
    run_nccl(devices, limit, |communicator, device| run_process(args, communicator, device))
}

/// Runs a program on the rank that this process is.
fn run_nccl(
    devices: &[CudaDevice],
    limit: Duration,
    program: impl FnOnce(Arc<dyn Communicator<Cuda>>, CudaDevice) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let launch = Launch::from_variables(|name| std::env::var(name).ok())?;
    let device = devices[launch.local_rank as usize % devices.len()].clone();
    let nccl = NcclEngine::open(device.clone(), limit)?;
    let line = Line::join(&launch, MEETING_TIME)?;
    // Letters cost little beside what they protect, but not in a build that is made to be fast.
    let checks = if cfg!(debug_assertions) { Checks::Reductions } else { Checks::None };
    let engine = |line: &Line| {
        nccl::check_versions(line, nccl.version()?)?;
        nccl::check_devices(line, &nccl.device_id()?)?;
        Ok(Arc::new(nccl) as Arc<dyn Engine<Cuda>>)
    };
    let own = device.clone();
    let program = |communicator: Arc<dyn Communicator<Cuda>>| program(communicator, own);
    let outcome = nccl::run(line, engine, device.clone(), checks, program);
    settle(&[device]);
    outcome.map_err(|failure| told_once(launch.rank, failure))
}
