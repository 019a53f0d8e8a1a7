//! Files of an export, and names of files.

use std::fmt::Display;

use ir::text::printable_json;
use serde::Serialize;

/// A file to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// File name.
    pub name: String,
    /// Content.
    pub text: String,
    /// True for a script that can be run.
    pub is_executable: bool,
}

impl File {
    /// A file that is not executable.
    pub(super) fn text(name: &str, text: String) -> Self {
        Self { name: name.to_owned(), text, is_executable: false }
    }

    /// A file of JSON. A manifest may embed it as text, which must be valid in YAML.
    pub(super) fn json(name: &str, value: &impl Serialize) -> Self {
        let text = serde_json::to_string_pretty(value).unwrap_or_default();
        Self::text(name, printable_json(&text).into_owned() + "\n")
    }
}

/// A template of a file with each `«name»` replaced by the value of the name.
pub(super) fn filled(template: &str, values: &[(&str, &dyn Display)]) -> String {
    let part = |(place, part): (usize, &str)| {
        if place % 2 == 0 {
            return part.to_owned();
        }
        let (_, value) =
            values.iter().find(|(name, _)| *name == part).expect("a value of each name");
        value.to_string()
    };
    template.split(['«', '»']).enumerate().map(part).collect()
}

/// Last component of a path.
pub(crate) fn basename(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Returns whether a file name has an ending.
pub(super) fn has_ending(name: &str, ending: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, last)| last == ending)
}
