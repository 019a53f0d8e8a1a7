//! GPUs of any make, and software ones, as burn's wgpu backend reaches them.
//!
//! burn looks for a device when it is first used, and panics where there is none. So it is asked for before.

use std::sync::Once;

use burn::tensor::DType;
use burn::tensor::backend::Backend;
use burn_wgpu::graphics::{AutoGraphicsApi, GraphicsApi};
use burn_wgpu::{CubeBackend, WgpuDevice, WgpuRuntime};
use cubecl::Runtime;
use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};

use crate::array::Element;

/// burn's wgpu backend. Its parameters are the element types where none is named, which is nowhere here.
pub type Wgpu = CubeBackend<WgpuRuntime, f32, i32, u32>;

/// Why no device can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// There is no device.
    #[error(
        "no device is found that speaks {api}\nhint: install the driver of its maker, or the software one of Mesa \
         (`apt-get install mesa-vulkan-drivers libvulkan1`); leave `--backend wgpu` out to run on the CPU"
    )]
    NoDevice {
        /// The interface through which devices are looked for.
        api: String,
    },
    /// The device has no such numbers.
    #[error(
        "the device of the wgpu backend has no numbers of type {element:?}\nhint: `--precision fp32`"
    )]
    NoElement {
        /// Their type.
        element: Element,
    },
}

/// The device that this process works on, ready for burn: the fastest there is, unless the variable
/// `CUBECL_WGPU_DEFAULT_DEVICE` names another.
///
/// # Errors
///
/// [`DeviceError::NoDevice`].
pub fn device() -> Result<WgpuDevice, DeviceError> {
    share_one_stream();
    let api = AutoGraphicsApi::backend();
    if WgpuRuntime::enumerate_all_devices(&api).is_empty() {
        return Err(DeviceError::NoDevice { api: format!("{api:?}") });
    }
    Ok(WgpuDevice::DefaultDevice)
}

/// Puts what all threads launch into one queue, in their order.
///
/// By default each thread has a queue of its own. An array that one thread made and another one read last goes back to
/// the memory of the first, which may write there before the second's kernels have run: ranks as threads would now and
/// then calculate with what is no longer there.
fn share_one_stream() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
        config.streaming.max_streams = 1;
        CubeClRuntimeConfig::set(config);
    });
}

/// Fails if a device does not calculate with such numbers.
///
/// # Errors
///
/// [`DeviceError::NoElement`].
pub fn check_element(device: &WgpuDevice, element: Element) -> Result<(), DeviceError> {
    if Wgpu::supports_dtype(device, DType::from(element)) {
        Ok(())
    } else {
        Err(DeviceError::NoElement { element })
    }
}
