//! The `executor` command.

#![expect(unsafe_code, reason = "mimalloc's options are C")]

mod cli;

use std::ffi::{c_int, c_long};
use std::process::ExitCode;

/// Every operator allocates and frees large tensors. The system's allocator would return their pages to the system and
/// fetch new ones each time, which would then dominate the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay` of `mimalloc.h`, which the bindings do not name.
const PURGE_DELAY: c_int = 15;

/// Delay before free memory is returned to the system. The default is 10 ms, which is less than a step: each step would
/// then fetch pages for gradients from the system, and wait while they are cleared.
const PURGE_DELAY_MILLISECONDS: c_long = 10_000;

fn main() -> ExitCode {
    // SAFETY: any thread may set an option at any time; `MIMALLOC_PURGE_DELAY`, where set, prevails.
    unsafe { libmimalloc_sys::mi_option_set_default(PURGE_DELAY, PURGE_DELAY_MILLISECONDS) };
    cli::main()
}
