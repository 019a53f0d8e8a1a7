//! NVIDIA GPUs for burn's CUDA backend.
//!
//! burn loads the driver and the kernel compiler at first use, and panics if it does not find them. So this module
//! first checks that they are present.

pub mod clock;
pub mod compute_stream;
pub mod products;

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use burn_cubecl::cubecl::Runtime as _;
use burn_cubecl::cubecl::cuda::{CudaRuntime, install};
use burn_cuda::CudaDevice;
use cudarc::driver::sys::{CUdevice_attribute, CUresult};
use cudarc::driver::{CudaContext, DriverError};
use ir::units::Bytes;

use crate::failure::DeviceError;
use crate::lock::lock;
use crate::streams::make_one_stream;

/// burn's CUDA backend. Its parameters are the default element types, which are used nowhere here.
pub type Cuda = burn_cuda::Cuda<f32, i32>;

/// Start of the error message where a call to the driver fails.
const DRIVER: &str = "the NVIDIA driver does not start";

const NO_GPU: &str = "the NVIDIA driver sees no GPU\nhint: `CUDA_VISIBLE_DEVICES` may hide them";

/// Headers that kernels include: for half precision and for matrix products. The second comes with the package of the
/// compiler, not of the runtime.
const HEADERS: [&str; 3] = ["include/cuda_fp16.h", "include/mma.h", "include/crt/mma.h"];

/// The GPUs that this process sees, ready for burn.
///
/// # Errors
///
/// There is no GPU, or a library or header that burn needs is missing.
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

/// Fails if the driver is older than the kernel compiler: such a driver cannot load the compiler's code.
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
    /// Major version, as 12 of 12.9.
    pub major: i32,
    /// Minor version, as 9 of 12.9.
    pub minor: i32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Installed versions of CUDA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The newest version that the driver supports.
    pub driver: Version,
    /// The version of the kernel compiler.
    pub compiler: Version,
    /// The folder of the compiler's headers.
    pub headers: PathBuf,
}

/// The installed versions of CUDA.
///
/// # Errors
///
/// Driver or compiler report no version.
#[expect(unsafe_code, reason = "driver and compiler are written in C")]
pub fn versions() -> Result<Versions, DeviceError> {
    let (mut driver, mut major, mut minor): (c_int, c_int, c_int) = (0, 0, 0);
    let checked = |result: Result<(), DriverError>| result.map_err(DeviceError::of(DRIVER));
    // SAFETY: the pointer is to a number.
    checked(unsafe { cudarc::driver::sys::cuDriverGetVersion(&raw mut driver) }.result())?;
    // SAFETY: the pointers are to numbers.
    let queried = unsafe { cudarc::nvrtc::sys::nvrtcVersion(&raw mut major, &raw mut minor) };
    queried.result().map_err(|error| DeviceError::of(DRIVER)(format!("{error:?}")))?;
    // The driver reports 12.9 as 12090.
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
    /// Number of its multiprocessors.
    pub num_multiprocessors: u32,
    /// All of its memory.
    pub total: Bytes,
    /// Memory that no process uses.
    pub free: Bytes,
}

/// The driver's description of a GPU.
///
/// # Errors
///
/// The driver reports none.
pub fn describe(device: &CudaDevice) -> Result<GpuDescription, DeviceError> {
    let driver_error = DeviceError::of::<DriverError>(DRIVER);
    let context = context_of(device).map_err(&driver_error)?;
    let (major, minor) = context.compute_capability().map_err(&driver_error)?;
    let count = context.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    Ok(GpuDescription {
        name: context.name().map_err(&driver_error)?,
        capability: [major, minor],
        num_multiprocessors: count.map_err(&driver_error)?.unsigned_abs(),
        total: Bytes::new(context.total_mem().map_err(&driver_error)? as u64),
        free: free_memory(device)?,
    })
}

/// Memory of a GPU that no process uses.
///
/// # Errors
///
/// The driver does not report it.
pub fn free_memory(device: &CudaDevice) -> Result<Bytes, DeviceError> {
    let free = || {
        context_of(device)?.bind_to_thread()?;
        let (free, _) = cudarc::driver::result::mem_get_info()?;
        Ok::<_, DriverError>(Bytes::new(free as u64))
    };
    free().map_err(DeviceError::of(DRIVER))
}

/// The primary context of a GPU.
///
/// It is kept until the process ends: the driver destroys a primary context when its last user releases it, and then
/// refuses calls from every thread whose current context it was.
///
/// # Errors
///
/// The driver's message.
pub fn context_of(device: &CudaDevice) -> Result<Arc<CudaContext>, DriverError> {
    static CONTEXTS: Mutex<BTreeMap<usize, Arc<CudaContext>>> = Mutex::new(BTreeMap::new());
    let mut contexts = lock(&CONTEXTS);
    if let Some(context) = contexts.get(&device.index) {
        return Ok(Arc::clone(context));
    }
    let context = CudaContext::new(device.index)?;
    contexts.insert(device.index, Arc::clone(&context));
    Ok(context)
}

/// Waits until all enqueued work has reached the GPUs, or failed. Kernels are compiled on threads that burn never
/// joins; a process that ends during a compilation crashes instead of reporting why it ends.
pub fn settle(devices: &[CudaDevice]) {
    for device in devices {
        // A thread that has failed has nothing left to do.
        let _ = CudaRuntime::client(device).exclusive(|| ());
    }
}
