//! Runs on a device that wgpu reaches: ranks as threads, which share it.

use anyhow::{bail, ensure};
use executor::array::Element;
use executor::wgpu::{Wgpu, check_element, device};

use super::args::{CommunicatorKind, PrecisionArg, RunArgs};
use super::files;
use super::job::run_threads;
use super::measuring::RanksArgs;
use super::settings::precision;
use super::work::{Work, run_threads as run_threads_of};

/// Runs all ranks.
pub(super) fn run(args: &RunArgs) -> anyhow::Result<()> {
    check_communicator(args.communicator)?;
    check(precision(args, &files::read(&args.plan)?))?;
    run_threads::<Wgpu>(args, |_| Ok(vec![device()?]))
}

/// Does some work on all ranks.
pub(super) fn run_work(work: &impl Work, args: &RanksArgs) -> anyhow::Result<()> {
    check_communicator(args.communicator)?;
    run_threads_of::<Wgpu>(work, args, &[device()?])
}

/// Refuses a precision that kernels are not compiled for, or that the device lacks.
pub(super) fn check(precision: PrecisionArg) -> anyhow::Result<()> {
    let name = match precision {
        PrecisionArg::Fp32 => return Ok(()),
        PrecisionArg::Fp16 => return Ok(check_element(&device()?, Element::F16)?),
        PrecisionArg::Fp64 => "fp64",
        PrecisionArg::Bf16 => "bf16",
    };
    bail!("the wgpu backend has no {name}\nhint: `--precision fp32` or `--precision fp16`")
}

fn check_communicator(communicator: CommunicatorKind) -> anyhow::Result<()> {
    ensure!(
        communicator == CommunicatorKind::Local,
        "ranks on the wgpu backend are threads of one process\nhint: leave `--communicator` out"
    );
    Ok(())
}
