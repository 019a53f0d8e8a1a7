//! Shell completions and manual pages.

use std::path::Path;

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

use super::destination::{make_folder, write_output};
use super::terminal::print_bytes;

/// Section of the manual for commands.
const SECTION: &str = "1";

/// Prints the completion script of a command for a shell.
///
/// # Errors
///
/// If stdout cannot be written to.
pub fn completions(mut command: Command, shell: Shell) -> anyhow::Result<()> {
    let name = command.get_name().to_owned();
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut text);
    print_bytes(&text)
}

/// Writes a manual page for a program, and one for each of its commands.
///
/// # Errors
///
/// If the folder cannot be created, or a page cannot be written.
pub fn man(mut program: Command, folder: &Path) -> anyhow::Result<()> {
    make_folder(folder)?;
    program.build();
    let commands =
        program.get_subcommands().filter(|it| !it.is_hide_set() && it.get_name() != "help");
    for command in std::iter::once(&program).chain(commands) {
        let name = command.get_display_name().unwrap_or(command.get_name());
        let mut page = Vec::new();
        Man::new(command.clone()).section(SECTION).render(&mut page)?;
        write_output(&folder.join(format!("{name}.{SECTION}")), &page)?;
    }
    Ok(())
}
