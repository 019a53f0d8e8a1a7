//! The command line: arguments, files, tables. Decisions about plans are made in the libraries.

mod answer;
mod args;
mod calibrate;
mod chakra;
mod chart;
mod compare;
mod completions;
mod constants;
mod describe;
mod explain;
mod export;
mod files;
mod given;
mod idle;
mod import;
mod impossible;
mod input;
mod inspect;
mod interrupt;
mod layout;
mod lint;
mod list;
mod mcp;
mod measurements;
mod models;
mod operators;
mod over;
mod picture;
mod progress;
mod questions;
mod ranks;
mod report;
mod run;
mod schedule;
mod search;
mod setting;
mod similar_file;
mod simulate;
mod sweep;
mod systems;
mod tables;
mod usage;
mod validate;
mod values;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::CommandFactory as _;
use command_line::shell;
use command_line::terminal::{is_broken_pipe, tell_error};
use command_line::usage::parse;

use answer::Answer;
use args::{Cli, Command};
use completions::with_names;

/// Runs the command. Exit codes: 0 if something was found, 1 if nothing fits or settings have faults, 2 on errors;
/// after `planner run`, the executor's exit code.
pub(crate) fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let cli: Cli = parse(&words, usage::tip).unwrap_or_else(|error| error.exit());
    match interrupt::handle().and_then(|()| run(cli)) {
        Ok(Answer::Found) => ExitCode::SUCCESS,
        Ok(Answer::NothingFits | Answer::Faults) => ExitCode::from(1),
        #[cfg(not(unix))]
        Ok(Answer::Ended(code)) => ExitCode::from(code),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            tell_error(&error);
            ExitCode::from(2)
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<Answer> {
    match cli.command {
        Command::Search(args) if args.per_operator => operators::search(&args),
        Command::Search(args) => search::search(&args),
        Command::Evaluate(args) => search::evaluate(&args),
        Command::Compare(args) => compare::compare(&args),
        Command::Sweep(args) => sweep::sweep(&args),
        Command::Explain(args) => explain::explain(&args),
        Command::Report(args) => report::report(&args),
        Command::Collective(args) => chart::collective(&args),
        Command::Schedule(args) => schedule::schedule(&args),
        Command::Simulate(args) => simulate::simulate(&args),
        Command::Export(args) => export::export(&args),
        Command::Import(args) => import::import(&args),
        Command::Lint(args) => lint::lint(&args),
        Command::Chart(args) => chart::chart(&args),
        Command::Run(args) => run::run(&args),
        Command::Validate(args) => validate::validate(&args),
        Command::Calibrate(args) => calibrate::calibrate(&args),
        Command::Inspect(args) => inspect::inspect(&args),
        Command::List(args) => list::list(&args),
        Command::Systems(args) => systems::list(&args),
        Command::Mcp => mcp::serve(),
        Command::Completions { shell } => {
            shell::completions(with_names(Cli::command(), shell), shell).map(|()| Answer::Found)
        }
    }
}
