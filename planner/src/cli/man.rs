//! `planner man`: the pages of the manual.

use std::path::Path;

use clap::CommandFactory;
use clap_mangen::Man;

use super::args::Cli;
use super::destination::{make_folder, write_output};
use super::output::Answer;

/// The section of commands.
const SECTION: &str = "1";

/// Writes a page for the program, and one for each of its commands.
pub(crate) fn man(folder: &Path) -> anyhow::Result<Answer> {
    make_folder(folder)?;
    let mut program = Cli::command();
    program.build();
    let commands = program.get_subcommands().filter(|it| it.get_name() != "help");
    for command in std::iter::once(&program).chain(commands) {
        let name = command.get_display_name().unwrap_or(command.get_name());
        let mut page = Vec::new();
        Man::new(command.clone()).section(SECTION).render(&mut page)?;
        write_output(&folder.join(format!("{name}.{SECTION}")), &page)?;
    }
    Ok(Answer::Found)
}
