//! Output of commands: results on stdout, messages on stderr, escaped for printing.

use std::fmt::Write as _;
use std::io::Write as _;

use anstream::{AutoStream, ColorChoice};
use anyhow::Context;
use clap::builder::styling::AnsiColor;
use ir::text::{printable_json, printable_lines};

/// Prints lines of text to stdout, escaped for printing. On a terminal, lines that are too wide are wrapped.
///
/// # Errors
///
/// If stdout cannot be written to; the same holds for the other functions here.
pub fn print(text: &str) -> anyhow::Result<()> {
    let text = printable_lines(text);
    match columns() {
        Some(columns) => print_bytes(wrapped(&text, columns).as_bytes()),
        None => print_bytes(text.as_bytes()),
    }
}

/// Prefixes of lines that contain commands. These are not wrapped, so that they can be copied.
const COMMANDS: [&str; 3] = ["again: ", "planner ", "executor "];

/// The text with lines wider than `columns` wrapped between words. Continuation lines are indented to the text of the
/// line, for example to the column after `memory: `.
fn wrapped(text: &str, columns: usize) -> String {
    let mut all = String::new();
    for line in text.split_inclusive('\n') {
        let is_command = COMMANDS.iter().any(|start| line.trim_start().starts_with(start));
        if is_command || line.trim_end().chars().count() <= columns {
            all.push_str(line);
            continue;
        }
        let indent = indent(line).min(columns / 2);
        let (mut rest, mut width) = (line.trim_end(), columns);
        while let Some((end, _)) = rest.char_indices().nth(width) {
            // No break before the first word; a word longer than the line is not broken.
            let begun = rest.len() - rest.trim_start().len();
            let last =
                if rest[end..].starts_with(' ') { Some(end) } else { rest[..end].rfind(' ') };
            let last = last.filter(|at| *at > begun);
            let first = || rest[begun..].find(' ').map(|at| begun + at);
            let Some(at) = last.or_else(first) else { break };
            all.push_str(rest[..at].trim_end());
            all.push('\n');
            all.push_str(&" ".repeat(indent));
            (rest, width) = (rest[at..].trim_start(), columns - indent);
        }
        all.push_str(rest);
        all.push_str(&line[line.trim_end().len()..]);
    }
    all
}

/// Column of a line's text: after leading blanks, and after a label of one or two words and a colon.
fn indent(line: &str) -> usize {
    const LONGEST_LABEL: usize = 12;
    let blanks = line.len() - line.trim_start().len();
    let label = line[blanks..].find(": ").filter(|at| *at < LONGEST_LABEL);
    let after = label.map_or(blanks, |at| {
        let start = blanks + at + 1;
        start + line[start..].len() - line[start..].trim_start().len()
    });
    line[..after].chars().count()
}

/// Reports an error on stderr. Text from other programs may contain line breaks; a further line that itself looks like
/// an error or a warning is joined to the line before.
pub fn tell_error(error: &anyhow::Error) {
    let text = format!("error: {error:#}");
    let lines = text.trim_end().replace("\nerror:", "\\nerror:");
    tell(&lines.replace("\nwarning:", "\\nwarning:"));
}

/// Writes a result to stdout, as bytes.
///
/// # Errors
///
/// As for [`print()`].
pub fn print_bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).context("writing to standard output")
}

/// Reports lines on stderr, escaped for printing, in the colours of clap's errors if the terminal supports them.
pub fn tell(text: &str) {
    let [error, warning, hint] =
        [AnsiColor::Red, AnsiColor::Yellow, AnsiColor::Green].map(AnsiColor::on_default);
    let styles = [("error:", error.bold()), ("warning:", warning.bold()), ("hint:", hint)];
    let is_plain = AutoStream::choice(&std::io::stderr()) == ColorChoice::Never;
    let mut whole = String::new();
    for line in printable_lines(text.trim_end()).lines() {
        let found =
            styles.iter().find_map(|(word, style)| Some((word, style, line.strip_prefix(word)?)));
        // Writing to a string cannot fail.
        let _ = match found.filter(|_| !is_plain) {
            Some((word, style, rest)) => writeln!(whole, "{style}{word}{style:#}{rest}"),
            None => writeln!(whole, "{line}"),
        };
    }
    // Without colours to strip, the text is written in one call, so that lines of several processes do not mix. Errors
    // of a closed stderr are ignored.
    let _ = anstream::stderr().lock().write_all(whole.as_bytes());
}

/// Returns whether the reader of stdout has closed it, as `head` does.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Number of columns of stdout's terminal; `None` if it is not a terminal.
pub fn columns() -> Option<usize> {
    terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| width.0.into())
}

/// Prints a result to stdout as JSON.
///
/// # Errors
///
/// As for [`print()`].
pub fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    print_json_text(&(serde_json::to_string_pretty(value)? + "\n"))
}

/// Prints a JSON document to stdout; invisible characters in its strings are escaped.
///
/// # Errors
///
/// As for [`print()`].
pub fn print_json_text(document: &str) -> anyhow::Result<()> {
    print_bytes(printable_json(document).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words() {
        let text = "memory: 68.53 GiB of 79.65 GiB on rank 1\nexpect: 5.64 s\n        45.85 GiB to 76.07 GiB\nagain: planner search a --gpus 8 -q\n";
        assert_eq!(
            wrapped(text, 24),
            "memory: 68.53 GiB of\n        79.65 GiB on\n        rank 1\nexpect: 5.64 s\n        45.85 GiB to\n        \
             76.07 GiB\nagain: planner search a --gpus 8 -q\n"
        );
        assert_eq!(wrapped(text, 60), text);
        assert_eq!(wrapped("", 10), "");
        assert_eq!(wrapped("µµµµ µµµ µµ", 5), "µµµµ\nµµµ\nµµ");
        assert_eq!(wrapped("unbreakable_words_stay whole", 5), "unbreakable_words_stay\nwhole");
    }

    /// Wrapping loses no text, and lines of words that fit are no wider than the limit.
    #[test]
    fn nothing_is_lost() {
        let text = "  all: token dispatcher deep-ep, exchanges of experts beside another micro-batch, CUDA graphs of \
                    layers\n2 is predicted 1.6 % faster than 1, less than can be told apart (3 %)\n";
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for columns in 30..140 {
            let wrapped = wrapped(text, columns);
            assert_eq!(words(&wrapped), words(text));
            assert!(wrapped.lines().all(|line| line.len() <= columns), "{columns}:\n{wrapped}");
        }
    }
}
