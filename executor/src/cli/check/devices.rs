//! Discovery of devices.

use executor::calibration;
use executor::check::CheckFinding;
#[cfg(feature = "cuda")]
use executor::check::first_line;
use ir::units::Bytes;

use crate::cli::choices::{Backend, CommunicatorKind};
use crate::cli::start;

/// Reports the devices of a backend, and the software that is needed to use them.
///
/// # Errors
///
/// There is no device, or something that is needed is missing.
pub(super) fn devices(backend: Backend, tell: &mut dyn FnMut(CheckFinding)) -> anyhow::Result<()> {
    start::check(backend, CommunicatorKind::Local)?;
    match backend {
        #[cfg(feature = "wgpu")]
        Backend::Wgpu => return wgpu(tell),
        #[cfg(feature = "cuda")]
        Backend::Cuda => return cuda(tell),
        _ => cpu(tell),
    }
    Ok(())
}

fn cpu(tell: &mut dyn FnMut(CheckFinding)) {
    let machine = calibration::machine();
    let memory = machine.memory.map_or_else(String::new, |memory| format!(", {memory}"));
    let cores = if machine.cores == 1 { "1 core" } else { &format!("{} cores", machine.cores) };
    let finding =
        CheckFinding::pass("processor", format!("{}, {cores}{memory}", machine.processor));
    let finding = finding.with("num_cores", f64::from(machine.cores));
    let bytes = machine.memory.map(Bytes::as_f64);
    tell(bytes.into_iter().fold(finding, |it, bytes| it.with("memory_bytes", bytes)));
}

#[cfg(feature = "wgpu")]
fn wgpu(tell: &mut dyn FnMut(CheckFinding)) -> anyhow::Result<()> {
    use executor_kernels::array::Element;
    use executor_kernels::wgpu::{check_element, describe};

    let (device, adapter) = describe()?;
    tell(CheckFinding::pass("adapter", adapter));
    let has_fp16 = check_element(&device, Element::F16).is_ok();
    tell(CheckFinding::pass("precisions", if has_fp16 { "fp32, fp16" } else { "fp32" }));
    Ok(())
}

#[cfg(feature = "cuda")]
fn cuda(tell: &mut dyn FnMut(CheckFinding)) -> anyhow::Result<()> {
    use executor_communicators::nccl::cuda::NcclEngine;
    use executor_kernels::cuda::{describe, devices, versions};
    use std::time::Duration;

    let found = devices()?;
    let versions = versions()?;
    tell(CheckFinding::pass("driver", format!("CUDA {}", versions.driver)));
    let compiler =
        format!("NVRTC {}, headers in `{}`", versions.compiler, versions.headers.display());
    tell(CheckFinding::pass("compiler", compiler));
    for device in &found {
        let gpu = describe(device)?;
        let [major, minor] = gpu.capability;
        let said = format!(
            "{}, compute capability {major}.{minor}, {} multiprocessors, {} of {} free",
            gpu.name, gpu.num_multiprocessors, gpu.free, gpu.total
        );
        let name = format!("GPU {}", device.index);
        let is_free = gpu.free.as_f64() >= LEAST_FREE * gpu.total.as_f64();
        let hint = "something else uses it: `nvidia-smi` says what";
        let finding = CheckFinding::judged(name, said, is_free, hint);
        tell(
            finding
                .with("compute_capability", f64::from(major) + f64::from(minor) / 10.0)
                .with("num_multiprocessors", f64::from(gpu.num_multiprocessors))
                .with("memory_bytes", gpu.total.as_f64())
                .with("free_memory_bytes", gpu.free.as_f64()),
        );
    }
    let limit = Duration::from_secs(10);
    let version = NcclEngine::open(found[0].clone(), limit).map(|nccl| nccl.version());
    tell(match version {
        Ok(Ok(version)) => CheckFinding::pass("NCCL", version),
        Err(error) if found.len() == 1 => CheckFinding::skip(
            "NCCL",
            format!("one GPU needs none: {}", first_line(&error.to_string())),
        ),
        Err(error) => failed(&error.to_string()),
        Ok(Err(error)) => failed(&error.to_string()),
    });
    Ok(())
}

/// Minimum share of a GPU's memory that is free if nothing else uses the GPU.
#[cfg(feature = "cuda")]
const LEAST_FREE: f64 = 0.8;

#[cfg(feature = "cuda")]
fn failed(said: &str) -> CheckFinding {
    let hint = "install `libnccl.so.2`; `--communicator local` goes through the host instead";
    CheckFinding::fail("NCCL", first_line(said), hint)
}

/// Free memory of the first GPU; none where it is not known.
pub(super) fn free_memory() -> Option<Bytes> {
    #[cfg(feature = "cuda")]
    return executor_kernels::cuda::free_memory(executor_kernels::cuda::devices().ok()?.first()?)
        .ok();
    #[cfg(not(feature = "cuda"))]
    None
}
