//! Modules, kernels and launches.
#![expect(unsafe_code, reason = "functions of C take pointers")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::slice;
use std::sync::Arc;

use super::call::{Outcome, exported, put};
use super::codes::Code;
use super::loaded::Function;
use super::state::State;
use super::task::Task;
use crate::compute::{DecodedKernel, Grid};
use crate::launch::{DeviceLimits, LaunchConfig, LaunchRefusal};
use crate::metadata::Lengths;
use crate::ptx::KernelAttributes;
use crate::recording::{Access, Range, Usage};

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const MAX_SHARED_BYTES: c_int = 8;

exported! {
    fn cuModuleLoadData(state, module: *mut usize, image: *const c_char) {
        if image.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let text = CStr::from_ptr(image).to_string_lossy().into_owned();
        let text = state.config.plant(text);
        let handle = state.new_handle();
        state.kernels.modules.insert(handle, text);
        put(module, handle)
    }

    fn cuModuleGetFunction(state, function: *mut usize, module: usize, name: *const c_char) {
        let text = state.kernels.modules.get(&module).ok_or(Code::INVALID_HANDLE)?;
        let name = CStr::from_ptr(name).to_string_lossy();
        let kernel = KernelAttributes::parse(text, &name).ok_or(Code::NOT_FOUND)?;
        let program = state.config.computes.then(|| DecodedKernel::decode(text, &name, &kernel, state.config.tf32).map(Arc::new));
        let handle = state.new_handle();
        let entry = Function { name: Arc::from(name), kernel, program, allowed_bytes: None };
        state.kernels.functions.insert(handle, entry);
        put(function, handle)
    }

    fn cuFuncSetAttribute(state, function: usize, attribute: c_int, value: c_int) {
        let limits = DeviceLimits::of(state.config.architecture);
        let function = state.kernels.functions.get_mut(&function).ok_or(Code::INVALID_HANDLE)?;
        if attribute == MAX_SHARED_BYTES {
            let bytes = u64::try_from(value).map_err(|_| Code::INVALID_VALUE)?;
            if bytes + function.kernel.shared_bytes > limits.most_shared_bytes {
                let what = format!("{} asks for {bytes} bytes of shared memory", function.name);
                *state.counts.refused.entry(what).or_default() += 1;
                return Err(Code::INVALID_VALUE);
            }
            function.allowed_bytes = Some(bytes);
        }
        Ok(())
    }

    fn cuLaunchKernel(state, function: usize, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
        block_x: c_uint, block_y: c_uint, block_z: c_uint, shared_bytes: c_uint, stream: usize,
        arguments: *const *const c_void, _extra: *const c_void) {
        let launch = LaunchConfig {
            grid: [grid_x, grid_y, grid_z],
            block: [block_x, block_y, block_z],
            shared_bytes: u64::from(shared_bytes),
            allowed_bytes: None,
        };
        start(state, function, launch, stream, arguments)
    }
}

/// Checks a launch and records it.
///
/// # Safety
///
/// `arguments` has one pointer for each parameter, valid for its size.
unsafe fn start(
    state: &mut State,
    function: usize,
    launch: LaunchConfig,
    stream: usize,
    arguments: *const *const c_void,
) -> Outcome {
    let stream = state.stream(stream)?.id;
    let function = state.kernels.functions.get(&function).ok_or(Code::INVALID_HANDLE)?;
    let (name, params) = (Arc::clone(&function.name), &function.kernel.params);
    let program = function.program.clone();
    let launch = LaunchConfig { allowed_bytes: function.allowed_bytes, ..launch };
    let limits = DeviceLimits::of(state.config.architecture);
    if let Err(refusal) = limits.check(&function.kernel, &launch) {
        *state.counts.refused.entry(format!("{name}: {refusal}")).or_default() += 1;
        let is_skipped =
            state.config.skips_empty_grids && matches!(refusal, LaunchRefusal::Empty(..));
        return if is_skipped { Ok(()) } else { Err(Code::INVALID_VALUE) };
    }
    if arguments.is_null() && !params.is_empty() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller gives one argument for each parameter.
    let given = |index: usize| unsafe { arguments.add(index).read() };
    // SAFETY: each is as large as its parameter.
    let bytes =
        |index: usize, len| unsafe { slice::from_raw_parts(given(index).cast::<u8>(), len) };
    let addresses: Vec<(usize, u64)> = (0..params.len())
        .filter(|index| params[*index].is_address())
        .map(|index| (index, u64::from_le_bytes(bytes(index, 8).try_into().expect("eight bytes"))))
        .collect();
    let info = params.last().filter(|param| !param.is_address());
    let lengths =
        info.and_then(|info| Lengths::read(bytes(params.len() - 1, info.bytes), addresses.len()));
    let mut accesses = Vec::new();
    let mut is_known = true;
    for (position, (index, start)) in addresses.into_iter().enumerate() {
        let param = params[index];
        let Some(usage) = Usage::new(param.reads, param.writes) else { continue };
        let len = lengths.as_ref().and_then(|lengths| match lengths.buffers.get(position) {
            Some(_) if param.width == 0 => None,
            Some(count) => Some(count * param.width),
            None => lengths.shapes_bytes,
        });
        is_known &= len.is_some();
        let end = state.space.at(start).map_or(start, |allocation| allocation.range.end);
        let len = len.unwrap_or(end.saturating_sub(start));
        // An empty buffer has no address, and is not used.
        if len > 0 {
            accesses.push(Access { range: Range::new(start, len), usage });
        }
    }
    if !is_known {
        *state.counts.unknown_lengths.entry(name.to_string()).or_default() += 1;
    }
    *state.counts.launches.entry(name.to_string()).or_default() += 1;
    let Some(program) = program else {
        for access in accesses.iter().filter(|access| access.usage.writes()) {
            state.space.blank(access.range);
        }
        state.record_work(stream, &name, accesses);
        return Ok(());
    };
    state.record_work(stream, &name, accesses.clone());
    let LaunchConfig { grid: blocks, block: threads, shared_bytes, .. } = launch;
    let grid = Grid { blocks, threads, shared_bytes };
    let params = match &program {
        Ok(program) => collect(program, bytes),
        Err(_) => Vec::new(),
    };
    state.give(stream, Task::Launch { name, program, grid, params, accesses })
}

/// All parameters of a program, each at its offset.
fn collect<'a>(program: &DecodedKernel, given: impl Fn(usize, usize) -> &'a [u8]) -> Vec<u8> {
    let end = program.params().last().map_or(0, |(start, len)| start + len);
    let mut all = vec![0; end];
    for (index, (start, len)) in program.params().iter().enumerate() {
        all[*start..start + len].copy_from_slice(given(index, *len));
    }
    all
}
