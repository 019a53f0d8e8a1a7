//! Starts work on the ranks that the arguments ask for.

use anyhow::{bail, ensure};
use burn_flex::{Flex, FlexDevice};
#[cfg(feature = "wgpu")]
use executor_kernels::wgpu;

use super::args::{Backend, CommunicatorKind};
use super::measuring::RanksArgs;
use super::work::{OnDevices, RankJob, run_threads};

/// Refuses backends and communicators that this build lacks, and combinations that do not exist.
pub(super) fn check(backend: Backend, communicator: CommunicatorKind) -> anyhow::Result<()> {
    let (what, feature, is_there) = match (backend, communicator) {
        (Backend::Cpu, CommunicatorKind::Local) => return Ok(()),
        (Backend::Cpu, CommunicatorKind::Mpi) => ("MPI", "mpi", cfg!(feature = "mpi")),
        (Backend::Wgpu, _) => ("wgpu", "wgpu", cfg!(feature = "wgpu")),
        (_, CommunicatorKind::Nccl) => ("NCCL", "cuda", cfg!(feature = "cuda")),
        _ => ("CUDA", "cuda", cfg!(feature = "cuda")),
    };
    ensure!(
        is_there,
        "this `executor` was built without {what}\nhint: build it with `cargo build --release -p executor \
         --features {feature}`, or leave `--backend` and `--communicator` out to run ranks as threads on \
         the CPU"
    );
    match (backend, communicator) {
        (Backend::Cpu, CommunicatorKind::Nccl) => {
            bail!("NCCL moves arrays between GPUs alone\nhint: add `--backend cuda`")
        }
        (Backend::Cuda, CommunicatorKind::Mpi) => bail!(
            "MPI connects ranks on CPUs\nhint: `--backend cuda --communicator nccl` starts from `mpirun` too"
        ),
        (Backend::Wgpu, CommunicatorKind::Mpi | CommunicatorKind::Nccl) => bail!(
            "ranks on the wgpu backend are threads of one process\nhint: leave `--communicator` out"
        ),
        _ => Ok(()),
    }
}

/// Runs the work on all ranks as threads, or on the one rank of this process.
pub(super) fn run(work: &impl RankJob, args: &RanksArgs) -> anyhow::Result<()> {
    check(args.backend, args.communicator)?;
    match args.backend {
        Backend::Cpu if args.communicator == CommunicatorKind::Local => {
            run_threads::<Flex>(work, args, &[FlexDevice])
        }
        #[cfg(feature = "mpi")]
        Backend::Cpu => super::mpi::run(work, args),
        #[cfg(feature = "wgpu")]
        Backend::Wgpu => run_threads::<wgpu::Wgpu>(work, args, &[wgpu::device()?]),
        #[cfg(feature = "cuda")]
        Backend::Cuda => super::cuda::run(work, args),
        #[cfg(not(all(feature = "mpi", feature = "cuda", feature = "wgpu")))]
        _ => unreachable!("a build without it was refused"),
    }
}

/// Runs a job on all devices of a backend.
pub(super) fn run_on_devices(job: &impl OnDevices, backend: Backend) -> anyhow::Result<()> {
    check(backend, CommunicatorKind::Local)?;
    match backend {
        Backend::Cpu => job.run::<Flex>(&[FlexDevice]),
        #[cfg(feature = "wgpu")]
        Backend::Wgpu => job.run::<wgpu::Wgpu>(&[wgpu::device()?]),
        #[cfg(feature = "cuda")]
        Backend::Cuda => super::cuda::run_on_devices(job)?,
        #[cfg(not(all(feature = "cuda", feature = "wgpu")))]
        _ => unreachable!("a build without it was refused"),
    }
    Ok(())
}
