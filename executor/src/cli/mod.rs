//! The command line: arguments, files, what is printed.

mod args;
mod device;
mod export;
#[cfg(feature = "mpi")]
mod mpi;
mod run;
mod show;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

/// Runs the command: exit code 0 where it did its work, 2 on errors.
pub(crate) fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Export(args) => export::export(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) if error.is::<Told>() => ExitCode::from(2),
        Err(error) => {
            // A closed stderr leaves nobody to tell.
            let text = format!("{error:#}");
            let _ = writeln!(std::io::stderr(), "error: {}", text.trim_end());
            ExitCode::from(2)
        }
    }
}

/// A failure that another rank tells.
#[derive(Debug, thiserror::Error)]
#[error("another rank failed")]
pub(crate) struct Told;

/// Whether the reader of stdout has gone, as `head` does.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
}
