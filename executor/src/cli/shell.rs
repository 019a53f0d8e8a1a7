//! `executor completions` and `executor man`: what a shell offers, and the pages of the manual.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use super::args::Cli;
use super::files::write_atomically;

/// The section of commands.
const SECTION: &str = "1";

/// Prints the script.
pub(super) fn completions(shell: Shell) -> anyhow::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "executor", &mut text);
    std::io::stdout().write_all(&text)?;
    Ok(())
}

/// Writes a page for the program, and one for each of its commands.
pub(super) fn man(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("making `{}`", folder.display()))?;
    let mut program = Cli::command();
    program.build();
    let commands =
        program.get_subcommands().filter(|it| !it.is_hide_set() && it.get_name() != "help");
    for command in std::iter::once(&program).chain(commands) {
        let name = command.get_display_name().unwrap_or(command.get_name());
        let mut page = Vec::new();
        Man::new(command.clone()).section(SECTION).render(&mut page)?;
        write_atomically(&folder.join(format!("{name}.{SECTION}")), &page)?;
    }
    Ok(())
}
