//! Copies.
//!
//! Copies to and from pageable memory of the host are synchronous, as in the driver: after the call the source may be
//! changed, and the result is complete. These copies count as waits of the host.
#![expect(unsafe_code, reason = "functions of C take pointers")]

use std::ffi::c_uint;
use std::sync::Arc;

use super::call::{Outcome, exported};
use super::codes::Code;
use super::rows::{End, Rows};
use super::state::State;
use super::task::Task;
use crate::recording::{Access, Effect, Range, StreamId, Usage};

/// `CUDA_MEMCPY2D`.
#[repr(C)]
pub(super) struct Copy2d {
    source_x: usize,
    source_y: usize,
    source_type: c_uint,
    source_host: u64,
    source_device: u64,
    source_array: usize,
    source_pitch: usize,
    destination_x: usize,
    destination_y: usize,
    destination_type: c_uint,
    destination_host: u64,
    destination_device: u64,
    destination_array: usize,
    destination_pitch: usize,
    width: usize,
    height: usize,
}

/// `CU_MEMORYTYPE_HOST`.
const HOST: c_uint = 1;

exported! {
    fn cuMemcpyHtoDAsync_v2(state, to: u64, from: u64, bytes: usize, stream: usize) {
        let stream = state.stream(stream)?.id;
        copy(state, "cuMemcpyHtoDAsync", stream, host(from), device(to), row(bytes))
    }

    fn cuMemcpyDtoHAsync_v2(state, to: u64, from: u64, bytes: usize, stream: usize) {
        let stream = state.stream(stream)?.id;
        copy(state, "cuMemcpyDtoHAsync", stream, device(from), host(to), row(bytes))
    }

    fn cuMemcpyHtoD_v2(state, to: u64, from: u64, bytes: usize) {
        let stream = state.stream(0)?.id;
        state.must_be_idle(stream)?;
        copy(state, "cuMemcpyHtoD", stream, host(from), device(to), row(bytes))?;
        state.see("cuMemcpyHtoD", Effect::SeeStream(stream));
        Ok(())
    }

    fn cuMemcpyDtoH_v2(state, to: u64, from: u64, bytes: usize) {
        let stream = state.stream(0)?.id;
        state.must_be_idle(stream)?;
        copy(state, "cuMemcpyDtoH", stream, device(from), host(to), row(bytes))?;
        state.see("cuMemcpyDtoH", Effect::SeeStream(stream));
        Ok(())
    }

    fn cuMemcpy2DAsync_v2(state, what: *const Copy2d, stream: usize) {
        if what.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: it is not null, so it points to a description.
        let (what, stream) = (&*what, state.stream(stream)?.id);
        let pitch = |pitch: usize| (if pitch == 0 { what.width } else { pitch }) as u64;
        let (from_pitch, to_pitch) = (pitch(what.source_pitch), pitch(what.destination_pitch));
        let from_host = what.source_type == HOST;
        let from = End {
            start: (if from_host { what.source_host } else { what.source_device })
                + what.source_y as u64 * from_pitch + what.source_x as u64,
            pitch: from_pitch,
            is_host: from_host,
        };
        let to_host = what.destination_type == HOST;
        let to = End {
            start: (if to_host { what.destination_host } else { what.destination_device })
                + what.destination_y as u64 * to_pitch + what.destination_x as u64,
            pitch: to_pitch,
            is_host: to_host,
        };
        let size = (what.width as u64, what.height as u64);
        copy(state, "cuMemcpy2DAsync", stream, from, to, size)
    }
}

fn host(start: u64) -> End {
    End { start, pitch: 0, is_host: true }
}

fn device(start: u64) -> End {
    End { start, pitch: 0, is_host: false }
}

/// A copy of one row.
fn row(bytes: usize) -> (u64, u64) {
    (bytes as u64, 1)
}

/// Copies rows of `width` bytes, and records the stream's accesses.
///
/// # Safety
///
/// Where an end of the copy is memory of the host, it is valid.
unsafe fn copy(
    state: &mut State,
    name: &str,
    stream: StreamId,
    from: End,
    to: End,
    (width, height): (u64, u64),
) -> Outcome {
    if width == 0 || height == 0 {
        return Ok(());
    }
    // Rows without gaps are one.
    let is_dense = height == 1 || (from.pitch == width && to.pitch == width);
    let (width, height) = if is_dense { (width * height, 1) } else { (width, height) };
    let whole = |end: &End| Range::new(end.start, end.pitch * (height - 1) + width);
    let is_pageable = |end: &End, state: &State| end.is_host && state.space.at(end.start).is_none();
    if is_pageable(&to, state) {
        // The copy has ended when the call returns.
        state.must_be_idle(stream)?;
    }
    for end in [&from, &to] {
        if !end.is_host && !state.space.holds(whole(end)) {
            // A GPU may also continue, and use whatever memory is there.
            state.misuse(format!("{name} beyond what is allocated"));
            record(state, name, stream, &from, &to, (width, height));
            return Err(Code::ILLEGAL_ADDRESS);
        }
    }
    state.check_snapshots();
    if to.is_host {
        state.snapshots.drop_within(whole(&to));
    }
    // Pageable memory may be changed after the call has returned.
    let is_kept = is_pageable(&from, state) && !state.queues.is_idle(stream);
    let source = is_kept.then(|| Rows { from, to, width, height, source: None }.kept());
    state.give(stream, Task::Copy(Rows { from, to, width, height, source }))?;
    let direction = match (from.is_host, to.is_host) {
        (true, true) => "host_to_host",
        (true, false) => "host_to_device",
        (false, true) => "device_to_host",
        (false, false) => "device_to_device",
    };
    *state.counts.bytes.entry(direction.to_owned()).or_default() += width * height;
    record(state, name, stream, &from, &to, (width, height));
    if from.is_host && state.space.holds(whole(&from)) {
        state.snapshots.take(whole(&from));
    }
    Ok(())
}

/// Records a copy.
fn record(state: &mut State, name: &str, stream: StreamId, from: &End, to: &End, size: (u64, u64)) {
    let (width, height) = size;
    let is_pageable = |end: &End| end.is_host && state.space.at(end.start).is_none();
    let (reads_pageable, writes_pageable) = (is_pageable(from), is_pageable(to));
    let rows = |end: &End, usage: Usage| {
        let (start, pitch) = (end.start, end.pitch);
        (0..height).map(move |row| Access { range: Range::new(start + row * pitch, width), usage })
    };
    let mut accesses = Vec::new();
    if !reads_pageable {
        accesses.extend(rows(from, Usage::Read));
    }
    if !writes_pageable {
        accesses.extend(rows(to, Usage::Write));
    }
    state.record_work(stream, &Arc::from(name), accesses);
    if reads_pageable || writes_pageable {
        let function = format!("{name}, pageable");
        *state.counts.host_waits.entry(function).or_default() += 1;
    }
    if writes_pageable {
        state.record(Effect::SeeStream(stream));
    }
}
