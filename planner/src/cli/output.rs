//! Where results go.

use std::io::Write;

use clap::builder::styling::AnsiColor;

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

/// Says on stderr what a user should know, in the colours of clap's own errors where a terminal shows them.
pub(crate) fn tell(text: &str) {
    let [error, warning, hint] =
        [AnsiColor::Red, AnsiColor::Yellow, AnsiColor::Green].map(AnsiColor::on_default);
    let styles = [("error:", error.bold()), ("warning:", warning.bold()), ("hint:", hint)];
    let mut stderr = anstream::stderr().lock();
    for line in text.lines() {
        let found =
            styles.iter().find_map(|(word, style)| Some((word, style, line.strip_prefix(word)?)));
        // A closed stderr leaves nobody to tell.
        let _ = match found {
            Some((word, style, rest)) => writeln!(stderr, "{style}{word}{style:#}{rest}"),
            None => writeln!(stderr, "{line}"),
        };
    }
}

/// Columns of the terminal that stdout is; none where it is none.
pub(crate) fn columns() -> Option<usize> {
    terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| width.0.into())
}

/// Writes a result to stdout as JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    print(&(serde_json::to_string_pretty(value)? + "\n"))
}
