//! Devices and contexts.
#![expect(unsafe_code, reason = "these are functions of C")]

use std::ffi::{c_char, c_int, c_uint};
use std::sync::Once;

use super::call::{exported, put};
use super::codes::{Code, cuda_name};
use super::context::{CURRENT, current, release, retain};
use super::state::State;
use crate::launch::DeviceLimits;
use crate::recording::Effect;

/// The first device's context handle; those of other devices follow.
pub(super) const FIRST_CONTEXT: usize = 0x4_0000;

unsafe extern "C" {
    fn atexit(function: extern "C" fn()) -> c_int;
}

extern "C" fn at_exit() {
    super::call::state().write_report();
}

exported! {
    fn cuInit(state, _flags: c_uint) {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            atexit(at_exit);
        });
        if state.config.devices.is_empty() { Err(Code::NO_DEVICE) } else { Ok(()) }
    }

    fn cuDriverGetVersion(state, version: *mut c_int) {
        put(version, state.config.driver_version)
    }

    fn cuDeviceGetCount(state, count: *mut c_int) {
        put(count, state.config.devices.len() as c_int)
    }

    fn cuDeviceGet(state, device: *mut c_int, index: c_int) {
        known(state, index)?;
        put(device, index)
    }

    fn cuDeviceGetName(state, name: *mut c_char, len: c_int, device: c_int) {
        known(state, device)?;
        let text = format!("stand-in sm_{}", state.config.architecture);
        let Some(room) = usize::try_from(len).ok().and_then(|len| len.checked_sub(1)) else {
            return Err(Code::INVALID_VALUE);
        };
        let bytes = &text.as_bytes()[..text.len().min(room)];
        for (index, byte) in bytes.iter().chain(&[0]).enumerate() {
            put(name.wrapping_add(index), byte.cast_signed() as c_char)?;
        }
        Ok(())
    }

    fn cuDeviceGetUuid(state, uuid: *mut [u8; 16], device: c_int) {
        put(uuid, uuid_of(state, device)?)
    }

    fn cuDeviceGetUuid_v2(state, uuid: *mut [u8; 16], device: c_int) {
        put(uuid, uuid_of(state, device)?)
    }

    fn cuDeviceTotalMem_v2(state, bytes: *mut usize, device: c_int) {
        known(state, device)?;
        put(bytes, state.config.memory_bytes as usize)
    }

    fn cuDeviceGetAttribute(state, value: *mut c_int, attribute: c_int, device: c_int) {
        known(state, device)?;
        put(value, attribute_of(state, attribute))
    }

    fn cuDevicePrimaryCtxRetain(state, context: *mut usize, device: c_int) {
        known(state, device)?;
        retain(device as u32);
        put(context, FIRST_CONTEXT + device as usize)
    }

    fn cuDevicePrimaryCtxRelease_v2(state, device: c_int) {
        known(state, device)?;
        release(device as u32)
    }

    fn cuCtxSetCurrent(state, context: usize) {
        CURRENT.set(device_of(state, context)?);
        Ok(())
    }

    fn cuCtxGetCurrent(state, context: *mut usize) {
        put(context, CURRENT.get().map_or(0, |device| FIRST_CONTEXT + device as usize))
    }

    fn cuCtxSynchronize(state) {
        let device = current()?;
        state.device_must_be_idle(device)?;
        state.see("cuCtxSynchronize", Effect::SeeDevice(device));
        Ok(())
    }

    fn cuMemGetInfo_v2(state, free: *mut usize, total: *mut usize) {
        let all = state.config.memory_bytes;
        put(free, (all - state.space.used(current()?)) as usize)?;
        put(total, all as usize)
    }
}

/// The name of an error code; works after any error.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(code: c_int, name: *mut *const c_char) -> c_int {
    // SAFETY: the caller gives a valid pointer, or null.
    unsafe { put(name, cuda_name(code).as_ptr()) }.map_or_else(|code| code.0, |()| 0)
}

/// The text of an error code, equal to its name.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(code: c_int, text: *mut *const c_char) -> c_int {
    // SAFETY: the caller gives a valid pointer, or null.
    unsafe { cuGetErrorName(code, text) }
}

/// The number that a device has on the machine.
fn known(state: &State, device: c_int) -> Result<u32, Code> {
    let index = usize::try_from(device).ok().and_then(|device| state.config.devices.get(device));
    index.copied().ok_or(Code::INVALID_DEVICE)
}

fn uuid_of(state: &State, device: c_int) -> Result<[u8; 16], Code> {
    let mut uuid = [0; 16];
    uuid[0] = known(state, device)? as u8 + 1;
    Ok(uuid)
}

fn device_of(state: &State, context: usize) -> Result<Option<u32>, Code> {
    if context == 0 {
        return Ok(None);
    }
    let device = context.checked_sub(FIRST_CONTEXT).ok_or(Code::INVALID_CONTEXT)?;
    known(state, device as c_int)?;
    Ok(Some(device as u32))
}

/// Attributes by the numbers of `CUdevice_attribute`; others are zero, which is "no" for most.
fn attribute_of(state: &State, attribute: c_int) -> c_int {
    let limits = DeviceLimits::of(state.config.architecture);
    let architecture = state.config.architecture as c_int;
    let dims = limits.block.iter().chain(&limits.grid);
    match attribute {
        1 => limits.threads as c_int,
        2..=7 => dims.copied().nth(attribute as usize - 2).unwrap_or(0) as c_int,
        8 => limits.shared_bytes as c_int,
        10 => 32,
        16 => state.config.num_multiprocessors(),
        39 => 2048,
        41 => 1,
        75 => architecture / 10,
        76 => architecture % 10,
        97 => limits.most_shared_bytes as c_int,
        // Memory pools are supported.
        115 => 1,
        _ => 0,
    }
}
