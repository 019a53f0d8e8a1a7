//! Words, and why there are none.

use std::collections::BTreeSet;

/// A word as a command gets it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Word {
    /// The text; nothing stands for what is not known.
    pub(in super::super) text: String,
    /// Variables and commands whose values are not known.
    pub(in super::super) unknown: BTreeSet<String>,
}

impl Word {
    /// A word that is known.
    pub(in super::super) fn known(text: &str) -> Self {
        Self { text: text.to_owned(), unknown: BTreeSet::new() }
    }
}

impl Word {
    /// The same with `_` for `-` in the name of an option, which are the same to many parsers.
    pub(in super::super) fn underscored(&self) -> Self {
        let Some(name) = self.text.strip_prefix("--") else { return self.clone() };
        let (name, value) = match name.split_once('=') {
            Some((name, value)) => (name, format!("={value}")),
            None => (name, String::new()),
        };
        let text = format!("--{}{value}", name.replace('-', "_"));
        Self { text, unknown: self.unknown.clone() }
    }
}

/// Why a script cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShellError {
    /// A quote or bracket without its end.
    #[error("line {line}: {what} without its end")]
    Open {
        /// Where it begins, from 1.
        line: usize,
        /// What it is.
        what: &'static str,
    },
    /// A command that ends with a line, though the next one has more of its words.
    #[error(
        "line {line}: `{word}` begins a line, but the command before it ends with line {ended}, and so does without what \
         follows\nhint: {}", end.mended(*ended)
    )]
    Ended {
        /// Where the words go on, from 1.
        line: usize,
        /// The first of them.
        word: String,
        /// The line with which the command ends.
        ended: usize,
        /// With what.
        end: End,
    },
    /// A backslash that is not the last of its line, so that it does not join the next line.
    #[error(
        "line {line}: {what} follows the `\\`, so that the command ends there, without what the next lines have\n\
         hint: remove it, so that the `\\` is the last of line {line}"
    )]
    Backslash {
        /// Where it is, from 1.
        line: usize,
        /// What follows it.
        what: &'static str,
    },
    /// Functions that call each other without end, or what is nested deeper than anyone writes.
    #[error(
        "line {line}: functions call each other too often, or too much is nested, to be followed\nhint: give the list of \
         arguments that the script leads to"
    )]
    Endless {
        /// Where that is noticed, from 1.
        line: usize,
    },
    /// A branch or loop that starts a program.
    #[error(
        "line {line}: what `{keyword}` decides is not followed, and it starts a program\nhint: give the script with the \
         lines of the branch that runs alone, or the list of arguments that it leads to"
    )]
    Branch {
        /// Where it begins, from 1.
        line: usize,
        /// The word that begins it.
        keyword: String,
    },
}

/// With what a line ends a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its words, with no backslash after them.
    Open,
    /// It has none.
    Empty,
    /// A comment.
    Comment,
}

impl End {
    /// How to join the next line.
    fn mended(self, line: usize) -> String {
        match self {
            Self::Open => {
                format!("end line {line} with a blank and `\\`, and each that has more after it")
            }
            Self::Empty => format!("remove the empty line {line}"),
            Self::Comment => format!("move the comment of line {line} above the command"),
        }
    }
}
