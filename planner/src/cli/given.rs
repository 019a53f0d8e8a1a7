//! Options that are given on the command line.

use clap::CommandFactory as _;
use clap::parser::ValueSource;

use super::args::Cli;

/// Names of the options that the command line states explicitly; defaults are left out.
pub(crate) fn options() -> Vec<String> {
    let command = Cli::command();
    let Ok(matches) = command.clone().try_get_matches_from(std::env::args_os()) else {
        return Vec::new();
    };
    let Some((name, matches)) = matches.subcommand() else { return Vec::new() };
    let of = command.find_subcommand(name);
    let all = of.into_iter().flat_map(clap::Command::get_arguments);
    let is_given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    all.filter(|argument| is_given(argument.get_id().as_str()))
        .filter_map(|argument| Some(format!("--{}", argument.get_long()?)))
        .collect()
}

/// Refuses options for the look of a picture if none is drawn.
pub(crate) fn refuse_look(look: &[&str], is_drawn: bool) -> anyhow::Result<()> {
    let idle = options().into_iter().find(|option| look.contains(&option.as_str()));
    match idle.filter(|_| !is_drawn) {
        Some(option) => anyhow::bail!(
            "`{option}` is for pictures, and none is drawn\nhint: `-o FILE.svg` draws one"
        ),
        None => Ok(()),
    }
}
