//! `executor run`.

#[cfg(not(all(feature = "mpi", feature = "cuda", feature = "wgpu")))]
use anyhow::anyhow;
use burn_flex::{Flex, FlexDevice};

use super::args::{Backend, CommunicatorKind, RunArgs};
use super::job::run_threads;

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<()> {
    match (args.backend, args.communicator) {
        (Backend::Cpu, CommunicatorKind::Local) => {
            run_threads::<Flex>(args, |_| Ok(vec![FlexDevice]))
        }
        #[cfg(feature = "mpi")]
        (Backend::Cpu, CommunicatorKind::Mpi) => super::mpi::run(args),
        #[cfg(not(feature = "mpi"))]
        (Backend::Cpu, CommunicatorKind::Mpi) => Err(without("MPI", "mpi")),
        #[cfg(feature = "wgpu")]
        (Backend::Wgpu, _) => super::wgpu::run(args),
        #[cfg(not(feature = "wgpu"))]
        (Backend::Wgpu, _) => Err(without("wgpu", "wgpu")),
        #[cfg(feature = "cuda")]
        _ => super::cuda::run(args),
        #[cfg(not(feature = "cuda"))]
        (_, CommunicatorKind::Nccl) => Err(without("NCCL", "cuda")),
        #[cfg(not(feature = "cuda"))]
        _ => Err(without("CUDA", "cuda")),
    }
}

#[cfg(not(all(feature = "mpi", feature = "cuda", feature = "wgpu")))]
pub(super) fn without(what: &str, feature: &str) -> anyhow::Error {
    anyhow!(
        "this `executor` was built without {what}\nhint: build it with `cargo build --release -p executor \
         --features {feature}`, or leave `--backend` and `--communicator` out to run ranks as threads on \
         the CPU"
    )
}
