//! Arguments of a program, each with the reason for it.

use std::fmt::Write as _;

/// An argument with its values, and why it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// With its dashes.
    pub name: String,
    /// None of a switch.
    pub values: Vec<String>,
    /// The reason, in a few words.
    pub why: String,
}

impl Argument {
    /// A switch.
    pub(super) fn switch(name: &str, why: impl Into<String>) -> Self {
        Self { name: name.to_owned(), values: Vec::new(), why: why.into() }
    }

    /// An argument with a value.
    #[expect(clippy::needless_pass_by_value, reason = "so that numbers are written plainly")]
    pub(super) fn value(name: &str, value: impl ToString, why: impl Into<String>) -> Self {
        Self { name: name.to_owned(), values: vec![value.to_string()], why: why.into() }
    }

    /// An argument with several.
    pub(super) fn values<T: ToString>(
        name: &str,
        values: impl IntoIterator<Item = T>,
        why: impl Into<String>,
    ) -> Self {
        let values = values.into_iter().map(|it| it.to_string()).collect();
        Self { name: name.to_owned(), values, why: why.into() }
    }

    /// As words of a shell.
    pub fn words(&self) -> String {
        let words = std::iter::once(&self.name).chain(&self.values).map(|word| quoted(word));
        words.collect::<Vec<_>>().join(" ")
    }
}

/// Arguments about one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// What they are about.
    pub title: String,
    /// The arguments.
    pub arguments: Vec<Argument>,
}

impl Section {
    pub(super) fn new(title: impl Into<String>, arguments: Vec<Argument>) -> Self {
        Self { title: title.into(), arguments }
    }
}

/// The column where reasons start, unless what they are of is longer.
const REASONS: usize = 56;

/// Sections as elements of an array of a shell, one argument a line, each with its reason beside it.
pub(super) fn as_array(name: &str, sections: &[Section]) -> String {
    let mut text = format!("{name}=(\n");
    for section in sections.iter().filter(|section| !section.arguments.is_empty()) {
        let _ = writeln!(text, "    # {}", section.title);
        for argument in &section.arguments {
            let _ = writeln!(text, "    {:REASONS$} # {}", argument.words(), argument.why);
        }
    }
    text + ")\n"
}

/// A word as a shell takes it for itself.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+%@".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
