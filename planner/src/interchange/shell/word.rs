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
    /// A branch or loop that sets something.
    #[error(
        "line {line}: what `{keyword}` decides is not followed, and it sets something\nhint: give the script with the \
         lines of the branch that runs alone, or the list of arguments that it leads to"
    )]
    Branch {
        /// Where it begins, from 1.
        line: usize,
        /// The word that begins it.
        keyword: String,
    },
}
