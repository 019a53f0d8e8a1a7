//! The `executor` command.

#![expect(unsafe_code, reason = "mimalloc's options are C")]

mod cli;

use std::ffi::{c_int, c_long};
use std::process::ExitCode;

/// Large tensors come and go with every operator. The system's allocator would hand their pages back and
/// fetch fresh ones each time, which then dominates.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay` of `mimalloc.h`, which the bindings do not name.
const PURGE_DELAY: c_int = 15;

/// How long free memory is kept before it goes back to the system. By default it goes after 10 ms, which is
/// less than a step: each step would then take its gradients' pages anew, and wait while they are cleared.
const PURGE_DELAY_MILLISECONDS: c_long = 10_000;

fn main() -> ExitCode {
    // SAFETY: any thread may set an option at any time; `MIMALLOC_PURGE_DELAY`, where set, prevails.
    unsafe { libmimalloc_sys::mi_option_set_default(PURGE_DELAY, PURGE_DELAY_MILLISECONDS) };
    cli::main()
}
