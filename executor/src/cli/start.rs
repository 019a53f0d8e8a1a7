//! Starts work on whatever ranks it is asked for.

use burn_flex::{Flex, FlexDevice};

use super::args::{Backend, CommunicatorKind};
use super::measuring::RanksArgs;
#[cfg(not(all(feature = "mpi", feature = "cuda", feature = "wgpu")))]
use super::run::without;
use super::work::{Work, run_threads};

/// Does the work on all ranks, or on the one that is this process.
pub(super) fn run(work: &impl Work, args: &RanksArgs) -> anyhow::Result<()> {
    match (args.backend, args.communicator) {
        (Backend::Cpu, CommunicatorKind::Local) => run_threads::<Flex>(work, args, &[FlexDevice]),
        #[cfg(feature = "mpi")]
        (Backend::Cpu, CommunicatorKind::Mpi) => super::mpi::run_work(work, args),
        #[cfg(not(feature = "mpi"))]
        (Backend::Cpu, CommunicatorKind::Mpi) => Err(without("MPI", "mpi")),
        #[cfg(feature = "wgpu")]
        (Backend::Wgpu, _) => super::wgpu::run_work(work, args),
        #[cfg(not(feature = "wgpu"))]
        (Backend::Wgpu, _) => Err(without("wgpu", "wgpu")),
        #[cfg(feature = "cuda")]
        _ => super::cuda::run_work(work, args),
        #[cfg(not(feature = "cuda"))]
        (_, CommunicatorKind::Nccl) => Err(without("NCCL", "cuda")),
        #[cfg(not(feature = "cuda"))]
        _ => Err(without("CUDA", "cuda")),
    }
}
