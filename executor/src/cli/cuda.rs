//! Runs on NVIDIA GPUs: ranks as threads, or as processes that a launcher started.

use std::panic;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::anyhow;
use burn_cuda::CudaDevice;
use executor_communicators::Communicator;
use executor_communicators::nccl::cuda::NcclEngine;
use executor_communicators::nccl::{self, Checks, Engine};
use executor_communicators::rendezvous::{Connection, Launch};
use executor_kernels::cuda::{Cuda, devices, settle};
use executor_kernels::failure::DeviceFailure;

use super::args::CommunicatorKind;
use super::measuring::RanksArgs;
use super::work::{OnDevices, RankJob, check_started, reported_once, run_threads};

/// Time that ranks wait for each other at the start: the ranks of a large job start minutes apart.
const RENDEZVOUS_TIMEOUT: Duration = Duration::from_mins(5);

/// Name prefix of burn's device threads.
const SERVER: &str = "DSD";

/// Records panics of the threads that serve GPUs, which panic where the driver fails. Later panics are silenced: they
/// only say that a thread is gone.
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

/// The outcome of work; if a GPU failed, the GPU's failure, even if the work did not notice it.
fn with_cause(outcome: anyhow::Result<()>) -> anyhow::Result<()> {
    let Some(noted) = DeviceFailure::noted() else { return outcome };
    Err(match outcome {
        Ok(()) => anyhow!("{noted}"),
        Err(error) => anyhow!("{noted}").context(first_words(&error)),
    })
}

/// The first part of an error, as in `rank 0 failed`.
fn first_words(error: &anyhow::Error) -> String {
    error.to_string().split(": ").next().unwrap_or_default().to_owned()
}

/// The GPUs, whose failures are recorded from then on.
fn find_devices() -> anyhow::Result<Vec<CudaDevice>> {
    let devices = devices()?;
    hear_servers();
    Ok(devices)
}

/// Runs work on all ranks as threads, or on the one rank of this process.
pub(super) fn run(work: &impl RankJob, args: &RanksArgs) -> anyhow::Result<()> {
    if args.communicator == CommunicatorKind::Nccl {
        return run_nccl(work, args);
    }
    let mut devices = find_devices()?;
    let num_ranks = args.num_ranks() as usize;
    devices.truncate(num_ranks);
    for (nth, device) in devices.iter().enumerate() {
        work.check_memory(device, (nth..num_ranks).step_by(devices.len()).len())?;
    }
    let outcome = run_threads::<Cuda>(work, args, &devices);
    settle(&devices);
    with_cause(outcome)
}

/// Runs a job on all GPUs from this process.
pub(super) fn run_on_devices(job: &impl OnDevices) -> anyhow::Result<()> {
    let devices = find_devices()?;
    job.run::<Cuda>(&devices);
    settle(&devices);
    with_cause(Ok(()))
}

/// Runs the work of this process's rank. Ranks meet before anything else, so that all learn at once if one of them
/// cannot begin.
fn run_nccl(work: &impl RankJob, args: &RanksArgs) -> anyhow::Result<()> {
    let launch = match Launch::from_variables(|name| std::env::var(name).ok()) {
        Ok(launch) => launch,
        // No other rank waits: missing GPUs are reported before missing launcher variables.
        Err(error) => return devices().map_err(Into::into).and(Err(error.into())),
    };
    let connection = Connection::join(&launch, RENDEZVOUS_TIMEOUT)?;
    // Control messages cost little compared with what they protect, but release builds omit them.
    let checks = if cfg!(debug_assertions) { Checks::Reductions } else { Checks::None };
    let mut used = Vec::new();
    let engine = |connection: &Connection| {
        let devices = find_devices()?;
        let device = &devices[launch.local_rank as usize % devices.len()];
        work.check_memory(device, 1)?;
        let nccl = NcclEngine::open(device.clone(), args.communication_timeout)?;
        used.push(device.clone());
        nccl::check_versions(connection, &nccl.version()?)?;
        nccl::check_devices(connection, &nccl.device_id()?)?;
        Ok((Arc::new(nccl) as Arc<dyn Engine<Cuda>>, device.clone()))
    };
    let program = |communicator: Arc<dyn Communicator<Cuda>>, device| {
        check_started(args, communicator.num_ranks())?;
        work.run(communicator, device)
    };
    let outcome = nccl::run(connection, engine, checks, program);
    settle(&used);
    match outcome {
        Err(failure) if failure.rank != launch.rank => Err(reported_once(launch.rank, failure)),
        outcome => with_cause(outcome.map_err(|failure| reported_once(launch.rank, failure))),
    }
}
