//! What commands answer, and what they print.

use std::io::Write;

use clap::builder::styling::AnsiColor;
use ir::text::{printable_json, printable_lines};

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

/// Writes lines for people to stdout, fit to print.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    print_bytes(printable_lines(text).as_bytes())
}

/// Says what went wrong. What others wrote may have line breaks in it: a further line that looks like an error or a
/// warning of its own belongs to the line before.
pub(crate) fn tell_error(error: &anyhow::Error) {
    let text = format!("error: {error:#}");
    let is_forged = |line: &str| line.starts_with("error:") || line.starts_with("warning:");
    let mut lines = String::new();
    for (index, line) in text.trim_end().split('\n').enumerate() {
        if index > 0 {
            lines.push_str(if is_forged(line) { "\\n" } else { "\n" });
        }
        lines.push_str(line);
    }
    tell(&lines);
}

/// Writes a result to stdout that need not be text.
pub(crate) fn print_bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()?;
    Ok(())
}

/// Says lines on stderr that a user should know, fit to print, in the colours of clap's own errors where a terminal shows them.
pub(crate) fn tell(text: &str) {
    let [error, warning, hint] =
        [AnsiColor::Red, AnsiColor::Yellow, AnsiColor::Green].map(AnsiColor::on_default);
    let styles = [("error:", error.bold()), ("warning:", warning.bold()), ("hint:", hint)];
    let mut stderr = anstream::stderr().lock();
    for line in printable_lines(text.trim_end()).lines() {
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
    print_json_text(&(serde_json::to_string_pretty(value)? + "\n"))
}

/// Writes a JSON document to stdout, with escapes for what does not show in its texts.
pub(crate) fn print_json_text(document: &str) -> anyhow::Result<()> {
    print_bytes(printable_json(document).as_bytes())
}
