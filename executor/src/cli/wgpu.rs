//! Runs on a device that wgpu reaches: ranks as threads, which share it.

use anyhow::ensure;
use executor::wgpu::{Wgpu, device};

use super::args::{Backend, CommunicatorKind, RunArgs};
use super::files;
use super::job::run_threads;
use super::measuring::RanksArgs;
use super::settings::precision;
use super::work::{Work, run_threads as run_threads_of};

/// Runs all ranks.
pub(super) fn run(args: &RunArgs) -> anyhow::Result<()> {
    check_communicator(args.communicator)?;
    Backend::Wgpu.check(precision(args, &files::read(&args.plan)?))?;
    run_threads::<Wgpu>(args, |_| Ok(vec![device()?]))
}

/// Does some work on all ranks.
pub(super) fn run_work(work: &impl Work, args: &RanksArgs) -> anyhow::Result<()> {
    check_communicator(args.communicator)?;
    run_threads_of::<Wgpu>(work, args, &[device()?])
}

fn check_communicator(communicator: CommunicatorKind) -> anyhow::Result<()> {
    ensure!(
        communicator == CommunicatorKind::Local,
        "ranks on the wgpu backend are threads of one process\nhint: leave `--communicator` out"
    );
    Ok(())
}
