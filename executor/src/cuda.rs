//! NVIDIA GPUs, as burn's CUDA backend needs them.
//!
//! burn loads the driver and the compiler of kernels when it is first used, and panics where it
//! does not find them. So they are asked for before.

use std::path::Path;

use burn_cubecl::cubecl::cuda::install;
use burn_cuda::CudaDevice;
use cudarc::driver::sys::CUresult;
use cudarc::driver::{CudaContext, DriverError};

/// burn's CUDA backend. Its parameters are the element types where none is named, which is nowhere
/// here.
pub type Cuda = burn_cuda::Cuda<f32, i32>;

/// Why no GPU can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// There is no driver.
    #[error(
        "no NVIDIA driver (`libcuda.so`) is found\nhint: install it, or start the container with its \
         GPUs; leave `--backend` out to run on the CPU"
    )]
    NoDriver,
    /// The driver does not work.
    #[error("the NVIDIA driver does not start: {message}")]
    Driver {
        /// What it says.
        message: String,
    },
    /// There is a driver, but no GPU.
    #[error("the NVIDIA driver sees no GPU\nhint: `CUDA_VISIBLE_DEVICES` may hide them")]
    NoGpu,
    /// There is no compiler of kernels.
    #[error("no compiler of CUDA kernels (`libnvrtc.so`) is found\nhint: install the CUDA toolkit")]
    NoCompiler,
    /// There are no headers for it.
    #[error(
        "the headers of CUDA (`{}`) are not found\nhint: install the CUDA toolkit, and set \
         `CUDA_PATH` if it is not in `/usr/local/cuda`",
        HEADER
    )]
    NoHeaders,
    /// burn copies from GPU to GPU through NCCL.
    #[error(
        "ranks on {num_devices} GPUs as threads need NCCL under the name of `libnccl.so`, which is \
         not found\nhint: install its package for developers, or show the ranks one GPU by \
         `CUDA_VISIBLE_DEVICES=0`"
    )]
    NoCopies {
        /// How many GPUs.
        num_devices: usize,
    },
}

/// What all kernels of half precision include.
const HEADER: &str = "include/cuda_fp16.h";

/// The GPUs that this process sees, ready for burn.
///
/// # Errors
///
/// There is none, or what burn needs to use them is missing.
#[expect(unsafe_code, reason = "whether a library is there is found by loading it")]
pub fn devices() -> Result<Vec<CudaDevice>, DeviceError> {
    // SAFETY: the initialisers of the driver's library may run at any time.
    if !unsafe { cudarc::driver::sys::is_culib_present() } {
        return Err(DeviceError::NoDriver);
    }
    let count = CudaContext::device_count().map_err(|error| match error {
        DriverError(CUresult::CUDA_ERROR_NO_DEVICE) => DeviceError::NoGpu,
        error => DeviceError::Driver { message: error.to_string() },
    })?;
    if count < 1 {
        return Err(DeviceError::NoGpu);
    }
    // SAFETY: as above, of the compiler's library.
    if !unsafe { cudarc::nvrtc::sys::is_culib_present() } {
        return Err(DeviceError::NoCompiler);
    }
    let has_headers = |path: &Path| path.join(HEADER).exists();
    if !install::cuda_path().is_some_and(|path| has_headers(&path)) {
        return Err(DeviceError::NoHeaders);
    }
    Ok((0..count).map(|index| CudaDevice::new(index as usize)).collect())
}

/// Fails if ranks that are threads cannot copy between these GPUs.
///
/// # Errors
///
/// [`DeviceError::NoCopies`].
#[expect(unsafe_code, reason = "whether a library is there is found by loading it")]
pub fn check_copies(devices: &[CudaDevice]) -> Result<(), DeviceError> {
    // SAFETY: the initialisers of NCCL may run at any time.
    if devices.len() > 1 && !unsafe { cudarc::nccl::sys::is_culib_present() } {
        return Err(DeviceError::NoCopies { num_devices: devices.len() });
    }
    Ok(())
}
