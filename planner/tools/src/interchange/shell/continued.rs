//! Commands that end with a line although the next line was meant to continue them.

use std::path::Path;

use super::super::file::basename;
use super::lex::{Token, WordPart};
use super::script::Command;
use super::word::{End, ShellError, Word};

/// Commands that start the Python program in their arguments.
pub(super) const STARTERS: [&str; 7] =
    ["torchrun", "python", "python3", "srun", "mpirun", "deepspeed", "accelerate"];

/// Returns whether a command's words continue the command before: options after a command that takes options, or a
/// program after a launcher.
pub(super) fn goes_on(before: &Command, words: &[Word]) -> bool {
    let [first, start] =
        [words, &before.words].map(|it| it.first().map_or("", |it| it.text.as_str()));
    if is_option(first) {
        return !is_option(start);
    }
    let name = start.rsplit('/').next().unwrap_or_default();
    is_program(first) && !has_program(before) && STARTERS.contains(&name)
}

/// Returns whether a line that begins with a list of unknown content continues the options of the line before.
pub(super) fn list_goes_on(before: &Command, ended: usize, statement: &[Token]) -> bool {
    let Some(Token::Word { pieces, line }) = statement.first() else { return false };
    let is_list =
        matches!(pieces.as_slice(), [WordPart::Variable { text, .. }] if text.ends_with("[@]"));
    let has_options = before.words.iter().any(|it| is_option(&it.text));
    is_list && *line == ended + 1 && has_program(before) && has_options
}

fn is_option(word: &str) -> bool {
    word.starts_with("--")
        || word.strip_prefix('-').is_some_and(|rest| rest.starts_with(char::is_alphabetic))
}

fn is_program(word: &str) -> bool {
    Path::new(word).extension().is_some_and(|ending| ending == "py")
}

fn has_program(command: &Command) -> bool {
    command.words.iter().any(|it| is_program(&it.text) || ["-m", "-c"].contains(&it.text.as_str()))
}

/// Error for a command that ends at a line although its words continue on the next.
pub(super) fn ended_early(text: &str, ended: usize, line: usize, word: String) -> ShellError {
    let last = text.lines().nth(ended.saturating_sub(1)).unwrap_or_default().trim();
    let end = match last.chars().next() {
        None => End::Empty,
        Some('#') => End::Comment,
        Some(_) => End::Open,
    };
    ShellError::Ended { line, word, ended, end }
}

/// Returns whether a command starts a program with options.
pub(super) fn starts(tokens: &[Token]) -> bool {
    let words: Vec<&str> = tokens.iter().filter_map(Token::plain).collect();
    let name = words.first().map_or("", |it| basename(it));
    STARTERS.contains(&name) && words.iter().any(|it| it.starts_with("--"))
}
