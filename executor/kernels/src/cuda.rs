//! NVIDIA GPUs, as burn's CUDA backend needs them.
//!
//! burn loads the driver and the compiler of kernels when it is first used, and panics where it
//! does not find them. So they are asked for before.

pub mod clock;
pub mod compute_stream;
pub mod products;

use std::ffi::c_int;
use std::fmt;
use std::path::{Path, PathBuf};

use burn_cubecl::cubecl::Runtime as _;
use burn_cubecl::cubecl::cuda::{CudaRuntime, install};
use burn_cuda::CudaDevice;
use cudarc::driver::sys::{CUdevice_attribute, CUresult};
use cudarc::driver::{CudaContext, DriverError};
use ir::units::Bytes;

use crate::failure::DeviceError;
use crate::streams::make_one_stream;

/// burn's CUDA backend. Its parameters are the element types where none is named, which is nowhere
/// here.
pub type Cuda = burn_cuda::Cuda<f32, i32>;

/// What fails where the driver does.
const DRIVER: &str = "the NVIDIA driver does not start";

const NO_GPU: &str = "the NVIDIA driver sees no GPU\nhint: `CUDA_VISIBLE_DEVICES` may hide them";

/// What kernels include: those of half precision, and those of matrix products. The second comes with the compiler's
/// package, not with the runtime's.
const HEADERS: [&str; 3] = ["include/cuda_fp16.h", "include/mma.h", "include/crt/mma.h"];

/// The GPUs that this process sees, ready for burn.
///
/// # Errors
///
/// There is none, or what burn needs to use them is missing.
#[expect(unsafe_code, reason = "whether a library is there is found by loading it")]
pub fn devices() -> Result<Vec<CudaDevice>, DeviceError> {
    // SAFETY: the initialisers of the driver's library may run at any time.
    if !unsafe { cudarc::driver::sys::is_culib_present() } {
        return Err(DeviceError(
            "no NVIDIA driver (`libcuda.so`) is found\nhint: install it, or start the container with its GPUs; leave \
             `--backend` out to run on the CPU"
                .to_owned(),
        ));
    }
    let count = CudaContext::device_count().map_err(|error| match error {
        DriverError(CUresult::CUDA_ERROR_NO_DEVICE) => DeviceError(NO_GPU.to_owned()),
        error => DeviceError::of(DRIVER)(error),
    })?;
    if count < 1 {
        return Err(DeviceError(NO_GPU.to_owned()));
    }
    // SAFETY: as above, of the compiler's library.
    if !unsafe { cudarc::nvrtc::sys::is_culib_present() } {
        return Err(DeviceError(
            "no compiler of CUDA kernels (`libnvrtc.so`) is found\nhint: install the CUDA toolkit"
                .to_owned(),
        ));
    }
    let path = install::cuda_path().unwrap_or_default();
    let is_missing = |header: &&&str| !Path::new(&path).join(header).exists();
    if let Some(missing) = HEADERS.iter().find(is_missing) {
        return Err(DeviceError(format!(
            "the headers of CUDA lack `{missing}`\nhint: install the CUDA toolkit, and set `CUDA_PATH` if it is not in \
             `/usr/local/cuda`"
        )));
    }
    check_versions()?;
    make_one_stream();
    Ok((0..count).map(|index| CudaDevice::new(index as usize)).collect())
}

/// Fails if the driver cannot load what the compiler makes.
fn check_versions() -> Result<(), DeviceError> {
    let Versions { driver, compiler, .. } = versions()?;
    if driver >= compiler {
        return Ok(());
    }
    Err(DeviceError(format!(
        "the NVIDIA driver is of CUDA {driver}, older than the compiler of kernels, of CUDA {compiler}\nhint: update the \
         driver, or install the CUDA toolkit of {driver} or before"
    )))
}

/// A version of CUDA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// As 12 of 12.9.
    pub major: i32,
    /// As 9 of 12.9.
    pub minor: i32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// What is installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versions {
    /// What the driver knows.
    pub driver: Version,
    /// What the compiler of kernels is of.
    pub compiler: Version,
    /// Where its headers are.
    pub headers: PathBuf,
}

/// What is installed of CUDA.
///
/// # Errors
///
/// Driver or compiler do not say.
#[expect(unsafe_code, reason = "driver and compiler are written in C")]
pub fn versions() -> Result<Versions, DeviceError> {
    let (mut driver, mut major, mut minor): (c_int, c_int, c_int) = (0, 0, 0);
    let told = |result: Result<(), DriverError>| result.map_err(DeviceError::of(DRIVER));
    // SAFETY: the pointer is to a number.
    told(unsafe { cudarc::driver::sys::cuDriverGetVersion(&raw mut driver) }.result())?;
    // SAFETY: the pointers are to numbers.
    let asked = unsafe { cudarc::nvrtc::sys::nvrtcVersion(&raw mut major, &raw mut minor) };
    asked.result().map_err(|error| DeviceError::of(DRIVER)(format!("{error:?}")))?;
    // The driver counts as in 12090, of 12.9.
    let driver = Version { major: driver / 1000, minor: driver % 1000 / 10 };
    let headers = install::cuda_path().unwrap_or_default().join("include");
    Ok(Versions { driver, compiler: Version { major, minor }, headers })
}

/// A GPU as its driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuDescription {
    /// The vendor's name.
    pub name: String,
    /// The compute capability, major and minor.
    pub capability: [i32; 2],
    /// Its multiprocessors.
    pub num_multiprocessors: u32,
    /// Its memory.
    pub total: Bytes,
    /// What of that nobody uses.
    pub free: Bytes,
}

/// What the driver says of a GPU.
///
/// # Errors
///
/// It does not say.
pub fn describe(device: &CudaDevice) -> Result<GpuDescription, DeviceError> {
    let told = DeviceError::of::<DriverError>(DRIVER);
    let context = CudaContext::new(device.index).map_err(&told)?;
    let (major, minor) = context.compute_capability().map_err(&told)?;
    let count = context.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    Ok(GpuDescription {
        name: context.name().map_err(&told)?,
        capability: [major, minor],
        num_multiprocessors: count.map_err(&told)?.unsigned_abs(),
        total: Bytes::new(context.total_mem().map_err(&told)? as u64),
        free: free_memory(device)?,
    })
}

/// What a GPU has that nobody uses.
///
/// # Errors
///
/// The driver does not say.
pub fn free_memory(device: &CudaDevice) -> Result<Bytes, DeviceError> {
    let free = CudaContext::new(device.index)
        .and_then(|context| context.bind_to_thread())
        .and_then(|()| cudarc::driver::result::mem_get_info());
    match free {
        Ok((free, _)) => Ok(Bytes::new(free as u64)),
        Err(error) => Err(DeviceError::of(DRIVER)(error)),
    }
}

/// Waits until all that was asked of GPUs has reached them, or failed: kernels are compiled on threads that burn never
/// joins, and a process that ends beneath the compiler crashes in place of saying why it ends.
pub fn settle(devices: &[CudaDevice]) {
    for device in devices {
        // A thread that has failed has nothing left to do.
        let _ = CudaRuntime::client(device).exclusive(|| ());
    }
}
