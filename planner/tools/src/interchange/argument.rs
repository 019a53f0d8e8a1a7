//! Command-line arguments of a program, each with its reason.

use std::fmt::Write as _;

/// An argument with its values and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Name, with dashes if it is an option.
    pub name: String,
    /// Values; empty for a switch.
    pub values: Vec<String>,
    /// The reason, in a few words.
    pub why: String,
}

impl Argument {
    /// An argument without a value.
    pub(super) fn switch(name: &str, why: impl Into<String>) -> Self {
        Self { name: name.to_owned(), values: Vec::new(), why: why.into() }
    }

    /// An argument with one value.
    #[expect(clippy::needless_pass_by_value, reason = "so that numbers are written plainly")]
    pub(super) fn value(name: &str, value: impl ToString, why: impl Into<String>) -> Self {
        Self { name: name.to_owned(), values: vec![value.to_string()], why: why.into() }
    }

    /// An argument with several values.
    pub(super) fn values<T: ToString>(
        name: &str,
        values: impl IntoIterator<Item = T>,
        why: impl Into<String>,
    ) -> Self {
        let values = values.into_iter().map(|it| it.to_string()).collect();
        Self { name: name.to_owned(), values, why: why.into() }
    }

    /// The argument as shell words.
    pub fn words(&self) -> String {
        self.words_by(&quoted)
    }

    fn words_by(&self, word: &dyn Fn(&str) -> String) -> String {
        let words = std::iter::once(&self.name).chain(&self.values).map(|it| word(it));
        words.collect::<Vec<_>>().join(" ")
    }
}

/// Arguments of one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Topic.
    pub title: String,
    /// The arguments.
    pub arguments: Vec<Argument>,
}

impl Section {
    pub(super) fn new(title: impl Into<String>, arguments: Vec<Argument>) -> Self {
        Self { title: title.into(), arguments }
    }
}

/// Column where comments with reasons start, unless the argument is longer.
const REASONS: usize = 56;

/// Sections as a shell array, one argument a line, each with its reason as a comment; words are written as `word` does.
pub(super) fn as_array(name: &str, sections: &[Section], word: &dyn Fn(&str) -> String) -> String {
    let mut text = format!("{name}=(\n");
    for section in sections.iter().filter(|section| !section.arguments.is_empty()) {
        let _ = writeln!(text, "    # {}", section.title);
        for argument in &section.arguments {
            let _ = writeln!(text, "    {:REASONS$} # {}", argument.words_by(word), argument.why);
        }
    }
    text + ")\n"
}

/// A word, quoted for a shell where necessary.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+%@".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
