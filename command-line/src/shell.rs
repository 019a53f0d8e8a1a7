//! Shell completions.

use clap::Command;
use clap_complete::Shell;

use super::terminal::print_bytes;

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
