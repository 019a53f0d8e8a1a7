//! The `executor` command.

mod cli;

use std::process::ExitCode;

/// Large tensors come and go with every operator. The system's allocator would hand their pages back and
/// fetch fresh ones each time, which then dominates.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::main()
}
