//! GPUs of any vendor, and software ones, for burn's wgpu backend.
//!
//! burn opens a device at first use, and panics if there is none. So this module first checks that there is one.

use burn::tensor::DType;
use burn::tensor::backend::Backend;
use burn_wgpu::graphics::{AutoGraphicsApi, GraphicsApi};
use burn_wgpu::{CubeBackend, RuntimeOptions, WgpuRuntime, init_setup};
use cubecl::Runtime;

use crate::array::Element;
use crate::failure::DeviceError;
use crate::streams::make_one_stream;

pub use burn_wgpu::WgpuDevice;

/// burn's wgpu backend. Its parameters are the default element types, which are used nowhere here.
pub type Wgpu = CubeBackend<WgpuRuntime, f32, i32, u32>;

/// The device of this process, ready for burn: the fastest one, unless the variable `CUBECL_WGPU_DEFAULT_DEVICE` names
/// another.
///
/// # Errors
///
/// [`DeviceError`] where there is none.
pub fn device() -> Result<WgpuDevice, DeviceError> {
    make_one_stream();
    let api = AutoGraphicsApi::backend();
    if WgpuRuntime::enumerate_all_devices(&api).is_empty() {
        return Err(DeviceError(format!(
            "no device is found that speaks {api:?}\nhint: install the driver of its maker, or the software one of \
             Mesa (`apt-get install mesa-vulkan-drivers libvulkan1`); leave `--backend wgpu` out to run on the CPU"
        )));
    }
    Ok(WgpuDevice::DefaultDevice)
}

/// The device of [`device`], and its driver's description: name, type, interface, driver.
///
/// # Errors
///
/// [`DeviceError`] where there is none.
pub fn describe() -> Result<(WgpuDevice, String), DeviceError> {
    let device = device()?;
    let setup = init_setup::<AutoGraphicsApi>(&device, RuntimeOptions::default());
    let about = setup.adapter.get_info();
    let driver = [about.driver, about.driver_info].join(" ");
    let description =
        format!("{}, {:?}, by {:?}, {driver}", about.name, about.device_type, about.backend);
    Ok((device, description.trim_end_matches([' ', ',']).to_owned()))
}

/// Fails if a device does not support an element type.
///
/// # Errors
///
/// [`DeviceError`] where it does not.
pub fn check_element(device: &WgpuDevice, element: Element) -> Result<(), DeviceError> {
    if Wgpu::supports_dtype(device, DType::from(element)) {
        Ok(())
    } else {
        Err(DeviceError(format!(
            "the device of the wgpu backend has no numbers of type {element:?}\nhint: `--precision fp32`"
        )))
    }
}
