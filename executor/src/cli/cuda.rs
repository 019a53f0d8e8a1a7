//! Runs on NVIDIA GPUs: ranks as threads, or as processes that a launcher started.

use std::panic;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, bail, ensure};
use burn_cuda::CudaDevice;
use executor::communicator::Communicator;
use executor::communicator::nccl::cuda::NcclEngine;
use executor::communicator::nccl::{self, Checks, Engine};
use executor::communicator::rendezvous::{Connection, Launch};
use executor::cuda::{Cuda, devices, free_memory, settle};
use executor::failure::DeviceFailure;

use super::args::{Backend, CommunicatorKind, RunArgs};
use super::files;
use super::job::{run_process, run_threads, told_once};
use super::measuring::RanksArgs;
use super::words::expected_tensors;
use super::work::{OnDevices, Work, check_started, run_threads as run_threads_of};

/// How long ranks wait for each other: those of a large job start minutes apart.
const MEETING_TIME: Duration = Duration::from_mins(5);

/// Runs all ranks, or the one that is this process.
pub(super) fn run(args: &RunArgs) -> anyhow::Result<()> {
    check(args.backend, args.communicator)?;
    if let Some(precision) = args.training.precision {
        args.backend.check(precision)?;
    }
    if args.communicator == CommunicatorKind::Nccl {
        let fits = |device: &CudaDevice| check_memory(args, device, 1);
        return run_nccl(args.communication_timeout, fits, |communicator, device| {
            run_process(args, communicator, device)
        });
    }
    let mut devices = find_devices()?;
    let mut used = Vec::new();
    let outcome = run_threads::<Cuda>(args, |num_ranks| {
        devices.truncate(num_ranks as usize);
        for (nth, device) in devices.iter().enumerate() {
            check_memory(args, device, (nth as u32..num_ranks).step_by(devices.len()).len())?;
        }
        used.clone_from(&devices);
        Ok(devices)
    });
    settle(&used);
    with_cause(outcome)
}

/// Fails if ranks on a GPU need more for their tensors alone than it has free, where they run as the plan says.
fn check_memory(args: &RunArgs, device: &CudaDevice, num_ranks: usize) -> anyhow::Result<()> {
    if args.training.precision.is_some() {
        return Ok(());
    }
    let each = expected_tensors(&files::read(&args.plan)?.prediction.memory);
    let (needed, free) = (each * num_ranks as u64, free_memory(device)?);
    ensure!(
        needed <= free,
        "GPU {} has {free} free, but the tensors of its {} need {needed} at least\nhint: plan for more GPUs, or with \
         recompute or a higher ZeRO stage",
        device.index,
        if num_ranks == 1 { "rank".to_owned() } else { format!("{num_ranks} ranks") },
    );
    Ok(())
}

/// How burn calls such threads.
const SERVER: &str = "DSD";

/// Hears what the threads that serve GPUs say when they panic, as they do where the driver fails, and keeps what follows
/// from it silent: whoever asks them is told nothing but that they are not there.
fn hear_servers() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if thread::current().name().is_some_and(|name| name.starts_with(SERVER)) {
            DeviceFailure::new(info.payload_as_str().unwrap_or("no message")).note();
        } else if DeviceFailure::noted().is_none() {
            usual(info);
        }
    }));
}

/// What work came to; a failure by what the GPU said, if it was that which failed, also of work that did not notice.
fn with_cause(outcome: anyhow::Result<()>) -> anyhow::Result<()> {
    let Some(noted) = DeviceFailure::noted() else { return outcome };
    Err(match outcome {
        Ok(()) => anyhow!("{noted}"),
        Err(error) => anyhow!("{noted}").context(first_words(&error)),
    })
}

/// Who failed, as in `rank 0 failed`.
fn first_words(error: &anyhow::Error) -> String {
    error.to_string().split(": ").next().unwrap_or_default().to_owned()
}

/// Fails if the arguments ask for what there is not on any machine.
fn check(backend: Backend, communicator: CommunicatorKind) -> anyhow::Result<()> {
    if backend == Backend::Cpu {
        bail!("NCCL moves arrays between GPUs alone\nhint: add `--backend cuda`");
    }
    if communicator == CommunicatorKind::Mpi {
        bail!(
            "MPI connects ranks on CPUs\nhint: `--backend cuda --communicator nccl` starts from `mpirun` too"
        );
    }
    Ok(())
}

/// The GPUs, whose failures are heard from then on.
fn find_devices() -> anyhow::Result<Vec<CudaDevice>> {
    let devices = devices()?;
    hear_servers();
    Ok(devices)
}

/// Does some work on all ranks, or on the one that is this process.
pub(super) fn run_work(work: &impl Work, args: &RanksArgs) -> anyhow::Result<()> {
    check(args.backend, args.communicator)?;
    if args.communicator == CommunicatorKind::Nccl {
        let fits = |_: &CudaDevice| Ok(());
        return run_nccl(args.communication_timeout, fits, |communicator, device| {
            check_started(args, communicator.num_ranks())?;
            work.run(communicator, device)
        });
    }
    let mut devices = find_devices()?;
    devices.truncate(args.num_ranks() as usize);
    let outcome = run_threads_of::<Cuda>(work, args, &devices);
    settle(&devices);
    with_cause(outcome)
}

/// Does something with all GPUs from this process.
pub(super) fn run_on_devices(job: &impl OnDevices) -> anyhow::Result<()> {
    let devices = find_devices()?;
    job.run::<Cuda>(&devices);
    settle(&devices);
    with_cause(Ok(()))
}

/// Runs a program on the rank that this process is, on a GPU that it `fits`. Ranks meet before anything else, so that all
/// hear at once if one of them cannot begin.
fn run_nccl(
    limit: Duration,
    fits: impl FnOnce(&CudaDevice) -> anyhow::Result<()>,
    program: impl FnOnce(Arc<dyn Communicator<Cuda>>, CudaDevice) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let launch = match Launch::from_variables(|name| std::env::var(name).ok()) {
        Ok(launch) => launch,
        // Nobody waits: what GPUs lack is told before what launchers say.
        Err(error) => return devices().map_err(Into::into).and(Err(error.into())),
    };
    let connection = Connection::join(&launch, MEETING_TIME)?;
    // Control messages cost little beside what they protect, but not in a build that is made to be fast.
    let checks = if cfg!(debug_assertions) { Checks::Reductions } else { Checks::None };
    let mut used = Vec::new();
    let engine = |connection: &Connection| {
        let devices = find_devices()?;
        let device = &devices[launch.local_rank as usize % devices.len()];
        fits(device)?;
        let nccl = NcclEngine::open(device.clone(), limit)?;
        used.push(device.clone());
        nccl::check_versions(connection, nccl.version()?)?;
        nccl::check_devices(connection, &nccl.device_id()?)?;
        Ok((Arc::new(nccl) as Arc<dyn Engine<Cuda>>, device.clone()))
    };
    let outcome = nccl::run(connection, engine, checks, program);
    settle(&used);
    match outcome {
        Err(failure) if failure.rank != launch.rank => Err(told_once(launch.rank, failure)),
        outcome => with_cause(outcome.map_err(|failure| told_once(launch.rank, failure))),
    }
}
