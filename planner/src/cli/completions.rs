//! `planner completions`: completion scripts, including the names of presets.

use clap::Command;
use clap::builder::PossibleValuesParser;
use clap_complete::Shell;
use cost_models::{clusters, frameworks};
use ir::framework::IDEAL;
use ir::schedule::ScheduleKind;
use models::ALL;

/// Adds the names that ship as values for completions. The parser itself accepts any text there, since files are
/// accepted too. A shell offers either names or files, except bash, which offers files if no name matches.
pub(crate) fn with_names(command: Command, shell: Shell) -> Command {
    command.mut_subcommands(|subcommand| {
        let which = subcommand.get_name().to_owned();
        subcommand.mut_args(|argument| {
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
}
