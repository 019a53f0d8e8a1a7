//! Words of commands, and errors of scripts.

use std::collections::BTreeSet;

use super::super::file::{basename, has_ending};

/// Limit of the bytes of a variable: Linux passes no more to a program (`ARG_MAX` with a stack of 8 MiB). Repeated
/// `A=$A$A` doubles the text each time.
pub(super) const MOST_BYTES_OF_ONE: usize = 2 << 20;

/// A word of a command after expansion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Word {
    /// Text; unknown parts are left out.
    pub(in super::super) text: String,
    /// Variables and command substitutions whose values are unknown.
    pub(in super::super) unknown: BTreeSet<String>,
}

impl Word {
    /// A word without unknown parts.
    pub(in super::super) fn known(text: &str) -> Self {
        Self { text: text.to_owned(), unknown: BTreeSet::new() }
    }

    /// Returns whether the word is a Python file whose name begins with `beginning`.
    pub(in super::super) fn is_python(&self, beginning: &str) -> bool {
        let name = basename(&self.text);
        has_ending(name, "py") && name.starts_with(beginning)
    }

    /// Name of an option, without a value after `=`.
    pub(in super::super) fn name(&self) -> &str {
        self.text.split('=').next().unwrap_or_default()
    }

    /// The word with `_` for `-` in the name of an option; many parsers accept both.
    pub(in super::super) fn underscored(&self) -> Self {
        self.spelled('-', "_")
    }

    /// The word with `-` for `_` in the name of an option.
    pub(in super::super) fn dashed(&self) -> Self {
        self.spelled('_', "-")
    }

    fn spelled(&self, from: char, to: &str) -> Self {
        let Some(name) = self.name().strip_prefix("--") else { return self.clone() };
        let value = &self.text["--".len() + name.len()..];
        let text = format!("--{}{value}", name.replace(from, to));
        Self { text, unknown: self.unknown.clone() }
    }
}

/// Modules that start other programs.
const LAUNCHERS: [&str; 3] =
    ["torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"];

/// Returns whether the word at a place is a Python program that the command starts: a file, or the module after `-m`.
pub(in super::super) fn is_program(words: &[Word], place: usize) -> bool {
    let is_module = place > 0 && ["-m", "--module"].contains(&words[place - 1].text.as_str());
    words[place].is_python("") || is_module && !LAUNCHERS.contains(&words[place].text.as_str())
}

/// Returns whether a text is the name of a variable or of an argument, such as `1`.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Error in a script.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShellError {
    /// An unclosed quote or bracket.
    #[error("line {line}: {what} without its end")]
    Open {
        /// Line where it begins, from 1.
        line: usize,
        /// Kind of quote or bracket.
        what: &'static str,
    },
    /// A command that ends at a line although the next line continues it.
    #[error(
        "line {line}: `{word}` begins a line, but the command before it ends with line {ended}, and so does without what \
         follows\nhint: {}", end.hint(*ended)
    )]
    Ended {
        /// Line where the words continue, from 1.
        line: usize,
        /// First of these words.
        word: String,
        /// Line on which the command ends.
        ended: usize,
        /// Reason why the command ends there.
        end: End,
    },
    /// A backslash that does not join the next line because it is not the last character of its line.
    #[error(
        "line {line}: {what} follows the `\\`, so that the command ends there, without what the next lines have\n\
         hint: remove it, so that the `\\` is the last of line {line}"
    )]
    Backslash {
        /// Line of the backslash, from 1.
        line: usize,
        /// Characters after the backslash.
        what: &'static str,
    },
    /// Functions that call each other endlessly, or nesting beyond the limit.
    #[error(
        "line {line}: functions call each other too often, or too much is nested, to be followed\nhint: give the list of \
         arguments that the script leads to"
    )]
    Endless {
        /// Line where the limit is reached, from 1.
        line: usize,
    },
    /// A branch or loop that starts a program.
    #[error(
        "line {line}: what `{keyword}` decides is not known, and it starts a program\nhint: {}the script with the lines of \
         the branch that runs alone, or the list of arguments that it leads to",
        set(variables)
    )]
    Branch {
        /// Line where it begins, from 1.
        line: usize,
        /// Keyword that begins it.
        keyword: String,
        /// Unknown variables on which it depends.
        variables: Vec<String>,
    },
    /// A branch whose ways lead to different plans.
    #[error(
        "line {line}: what `{keyword}` decides is not known, and its ways lead to different plans\nhint: {}the script with \
         the lines of the branch that runs alone",
        set(variables)
    )]
    Decides {
        /// Line where it begins, from 1.
        line: usize,
        /// Keyword that begins it, or the operator that joins commands.
        keyword: String,
        /// Unknown variables on which it depends.
        variables: Vec<String>,
    },
    /// Variables whose text is too large to be followed.
    #[error(
        "line {line}: a variable becomes larger than {} MiB, which no program can be given, or all of them are too large to \
         be followed\nhint: give the list of arguments that the script leads to", MOST_BYTES_OF_ONE >> 20
    )]
    Large {
        /// Line after which the limit is reached, from 1.
        line: usize,
    },
}

/// Hint on setting variables, which another hint follows.
fn set(variables: &[String]) -> String {
    variables.iter().flat_map(|name| ["`--set ", name, "=VALUE`, or "]).collect()
}

/// Reason why a command ends at a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The line has words, but no backslash at its end.
    Open,
    /// The line is empty.
    Empty,
    /// The line is a comment.
    Comment,
}

impl End {
    /// Hint that says how to join the next line.
    fn hint(self, line: usize) -> String {
        match self {
            Self::Open => {
                format!("end line {line} with a blank and `\\`, and each that has more after it")
            }
            Self::Empty => format!("remove the empty line {line}"),
            Self::Comment => format!("move the comment of line {line} above the command"),
        }
    }
}
