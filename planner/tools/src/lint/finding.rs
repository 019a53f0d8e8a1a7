//! What was found.

use serde::Serialize;

use super::rule::{Rule, Severity};

/// Something that a rule found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Which rule.
    pub rule: Rule,
    /// How bad it is.
    pub severity: Severity,
    /// What it is, with its numbers.
    pub message: String,
    /// The options that it is about, in the tool's words.
    pub options: Vec<SourceSpan>,
    /// What it costs, where that is predicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// What would work, where something was found that does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<Fix>,
}

/// An option, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceSpan {
    /// Its name.
    pub option: String,
    /// The line, from 1, where it is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
}

/// What one setting is predicted to take beyond another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// The share of a step's time that the better one saves.
    pub share_of_time: f64,
    /// Its interval of 80 %, of the pair; absent where the difference is too small for one to be asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    /// Bytes of the fullest GPU that it frees; below zero where it takes more.
    pub freed_bytes: i64,
}

/// Changes of options, evaluated before they are offered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fix {
    /// The changes, in the tool's words.
    pub changes: Vec<OptionChange>,
    /// The same in one line.
    pub text: String,
    /// The predicted time of a step with them, all other findings that are errors fixed too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_time_seconds: Option<f64>,
    /// The predicted memory of the fullest GPU with them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    /// Where in the file what is written instead.
    #[serde(skip)]
    pub replacements: Vec<Replacement>,
}

/// A change of an option.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub enum OptionChange {
    /// It is given, in the place of what it was if it was.
    Set {
        /// Its name.
        option: String,
        /// Its value; none of a switch.
        #[serde(skip_serializing_if = "Option::is_none")]
        value: Option<String>,
    },
    /// It is left out.
    Remove {
        /// Its name.
        option: String,
    },
    /// It is called otherwise.
    Rename {
        /// What it is called.
        option: String,
        /// What it should be.
        to: String,
    },
}

/// A part of a text, and what stands there instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// Bytes from the beginning.
    pub from: usize,
    /// To this one, which stays.
    pub to: usize,
    /// What is written.
    pub with: String,
}

impl OptionChange {
    /// A value, or a switch.
    pub(super) fn set(option: &str, value: Option<String>) -> Self {
        Self::Set { option: option.to_owned(), value }
    }

    /// None at all.
    pub(super) fn remove(option: &str) -> Self {
        Self::Remove { option: option.to_owned() }
    }

    /// The option that it is of.
    pub fn option(&self) -> &str {
        match self {
            Self::Set { option, .. } | Self::Remove { option } | Self::Rename { option, .. } => {
                option
            }
        }
    }

    /// In words.
    pub fn in_words(&self) -> String {
        match self {
            Self::Set { option, value: Some(value) } => format!("`{option} {value}`"),
            Self::Set { option, value: None } => format!("`{option}`"),
            Self::Remove { option } => format!("without `{option}`"),
            Self::Rename { option, to } => format!("`{to}` in the place of `{option}`"),
        }
    }
}

/// Changes in one line.
pub(super) fn in_words(changes: &[OptionChange]) -> String {
    changes.iter().map(OptionChange::in_words).collect::<Vec<_>>().join(", ")
}
