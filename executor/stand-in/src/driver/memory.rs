//! Allocation and freeing of memory.

use super::call::{Outcome, exported, put};
use super::codes::Code;
use super::context::current;
use super::space::Origin;
use super::state::State;
use super::task::Task;
use crate::recording::{Effect, Range};

exported! {
    fn cuMemAlloc_v2(state, address: *mut u64, bytes: usize) {
        put(address, allocate(state, bytes, Origin::Device)?)
    }

    fn cuMemAllocAsync(state, address: *mut u64, bytes: usize, stream: usize) {
        put(address, allocate_on(state, bytes, stream)?)
    }

    fn cuMemFreeAsync(state, address: u64, stream: usize) {
        let stream = state.stream(stream)?.id;
        begins(state, address, "cuMemFreeAsync")?;
        state.record(Effect::Free { start: address, stream: Some(stream) });
        state.give(stream, Task::Free(address))
    }

    fn cuMemFree_v2(state, address: u64) {
        if address == 0 {
            return Ok(());
        }
        let origin = state.space.at(address).map(|allocation| allocation.origin);
        // `cuMemFree` waits until the device is idle. Memory that was allocated in stream order is not waited for.
        if origin == Some(Origin::Device) {
            let device = current()?;
            state.device_must_be_idle(device)?;
            state.see("cuMemFree", Effect::SeeDevice(device));
        }
        free(state, address, "cuMemFree")?;
        state.record(Effect::Free { start: address, stream: None });
        Ok(())
    }

    fn cuMemAllocHost_v2(state, address: *mut u64, bytes: usize) {
        put(address, allocate(state, bytes, Origin::Pinned)?)
    }

    fn cuMemFreeHost(state, address: u64) {
        state.check_snapshots();
        free(state, address, "cuMemFreeHost")?;
        state.record(Effect::Free { start: address, stream: None });
        Ok(())
    }
}

fn allocate(state: &mut State, bytes: usize, origin: Origin) -> Result<u64, Code> {
    let address = take(state, bytes, origin, current()?)?;
    state.record(Effect::Allocate { range: Range::new(address, bytes as u64), stream: None });
    Ok(address)
}

fn allocate_on(state: &mut State, bytes: usize, stream: usize) -> Result<u64, Code> {
    let stream = state.stream(stream)?;
    if bytes == 0 {
        let what = "memory of no bytes is allocated, which some drivers refuse".to_owned();
        *state.counts.doubts.entry(what).or_default() += 1;
    }
    let address = take(state, bytes, Origin::Stream, stream.device)?;
    let range = Range::new(address, bytes as u64);
    state.record(Effect::Allocate { range, stream: Some(stream.id) });
    Ok(address)
}

fn take(state: &mut State, bytes: usize, origin: Origin, device: u32) -> Result<u64, Code> {
    state.space.allocate(bytes as u64, origin, device, state.config.memory_bytes)
}

/// Fails unless an allocation starts at an address.
fn begins(state: &mut State, address: u64, function: &str) -> Outcome {
    if state.space.begins(address) {
        return Ok(());
    }
    state.misuse(format!("{function} of {address:#x}, where no allocation begins"));
    Err(Code::INVALID_VALUE)
}

fn free(state: &mut State, address: u64, function: &str) -> Outcome {
    begins(state, address, function)?;
    state.space.free(address)
}
