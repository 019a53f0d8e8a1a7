//! `planner completions`: what a shell offers, names included.

use clap::builder::PossibleValuesParser;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use cost_models::{clusters, frameworks};
use ir::framework::IDEAL;
use ir::schedule::ScheduleKind;
use models::ALL;

use super::args::Cli;
use super::output::{Answer, print_bytes};

/// Prints the script.
pub(crate) fn completions(shell: Shell) -> anyhow::Result<Answer> {
    let mut text = Vec::new();
    let mut command = with_names(Cli::command(), shell);
    clap_complete::generate(shell, &mut command, "planner", &mut text);
    print_bytes(&text)?;
    Ok(Answer::Found)
}

/// The commands, with the names that ship where they are taken. The parser itself takes any text there, since files are
/// taken too; a shell offers either these or files, but bash, which offers files where no name fits.
fn with_names(command: Command, shell: Shell) -> Command {
    let subcommands: Vec<String> =
        command.get_subcommands().map(|it| it.get_name().to_owned()).collect();
    subcommands.into_iter().fold(command, |command, name| {
        command.mut_subcommand(&name, |subcommand| {
            let which = name.clone();
            subcommand.mut_args(move |argument| {
                let names: Vec<&str> = match (which.as_str(), argument.get_id().as_str()) {
                    (_, "cluster") => clusters::names().collect(),
                    (_, "framework") => frameworks::names().chain([IDEAL]).collect(),
                    (_, "model") if shell == Shell::Bash => ALL.iter().map(|it| it.name).collect(),
                    ("schedule", "name") => ScheduleKind::ALL.map(ScheduleKind::name).to_vec(),
                    _ => return argument,
                };
                argument.value_parser(PossibleValuesParser::new(names))
            })
        })
    })
}
