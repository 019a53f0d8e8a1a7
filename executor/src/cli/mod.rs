//! The command line: arguments, files, output.

mod args;
mod calibrate;
mod check;
mod choices;
mod cluster;
mod collectives;
#[cfg(feature = "cuda")]
mod cuda;
mod export;
mod files;
mod job;
mod limits;
mod measuring;
#[cfg(feature = "mpi")]
mod mpi;
mod run;
mod settings;
mod show;
mod start;
mod usage;
mod words;
mod work;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::CommandFactory as _;
use command_line::shell;
use command_line::terminal::{is_broken_pipe, tell};
use command_line::usage::parse;
use executor_kernels::streams::on_one_stream;
use ir::model::ModelError;

use args::{Cli, Command};
use work::ReportedElsewhere;

/// Runs the command: exit code 0 where it did its work, 1 where a check found something wrong, 2 on errors.
pub(crate) fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let cli: Cli = parse(&words, usage::tip).unwrap_or_else(|error| error.exit());
    let result = on_one_stream(|| match cli.command {
        Command::Run(args) => run::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Export(args) => export::export(&args).map(|()| ExitCode::SUCCESS),
        Command::Calibrate(args) => calibrate::calibrate(&args).map(|()| ExitCode::SUCCESS),
        Command::Collectives(args) => collectives::collectives(&args).map(|()| ExitCode::SUCCESS),
        Command::Check(args) => check::check(&args),
        Command::Completions { shell } => {
            shell::completions(Cli::command(), shell).map(|()| ExitCode::SUCCESS)
        }
        Command::CheckPart(args) => check::part(&args).map(|()| ExitCode::SUCCESS),
    });
    match result {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) if error.is::<ReportedElsewhere>() => ExitCode::from(2),
        Err(error) => {
            tell(&format!("error: {}", message(&error)));
            ExitCode::from(2)
        }
    }
}

/// An error and its causes on one line, and then their hints.
fn message(error: &anyhow::Error) -> String {
    let mut text = String::new();
    let mut hints = Vec::new();
    for cause in error.chain() {
        let said = cause.to_string();
        let mut parts = said.trim_end().split("\nhint: ");
        let problem = parts.next().unwrap_or_default();
        // Some errors include their cause in their message.
        if !text.contains(problem) {
            text += if text.is_empty() { "" } else { ": " };
            text += problem;
        }
        hints.extend(parts.map(str::to_owned));
        hints.extend(cause.downcast_ref::<ModelError>().and_then(ModelError::hint));
    }
    hints.dedup();
    let hints = hints.iter().map(|hint| format!("hint: {hint}"));
    [text].into_iter().chain(hints).collect::<Vec<_>>().join("\n")
}
