//! Where results go.

use std::io::Write;

/// What a command that did its work has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// There is a plan.
    Found,
    /// No layout fits.
    NothingFits,
    /// Settings have faults.
    Faults,
    /// The executor ended, with this exit code.
    #[cfg(not(unix))]
    Ended(u8),
}

/// Writes a result to stdout.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()?;
    Ok(())
}

/// Writes a result to stdout as JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    print(&(serde_json::to_string_pretty(value)? + "\n"))
}
