//! Findings and fixes.

use serde::Serialize;

use super::rule::{Rule, Severity};

/// A fault or remark that a rule found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// Severity of the finding.
    pub severity: Severity,
    /// Description, with numbers.
    pub message: String,
    /// Options that the finding is about, by their names in the tool.
    pub options: Vec<SourceSpan>,
    /// Predicted cost, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// A fix that works, if one was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<Fix>,
}

impl Finding {
    /// A finding of the rule's highest severity, without a cost or a fix.
    pub(super) const fn new(rule: Rule, message: String, options: Vec<SourceSpan>) -> Self {
        Self { rule, severity: rule.most_severe(), message, options, cost: None, fix: None }
    }
}

/// An option, its file and its line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceSpan {
    /// Name of the option.
    pub option: String,
    /// File in which the option is, if that is not the file of the settings but one that they name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line, from 1, in which the option is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
}

/// Predicted cost of one setting relative to another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// Share of a step's time that the better setting saves.
    pub share_of_time: f64,
    /// 80 % interval of the share, for this pair of settings; `None` if the difference is too small to resolve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    /// Bytes of the fullest GPU that the better setting frees; negative if it needs more memory.
    pub freed_bytes: i64,
}

/// Changes of options that fix a finding, with their prediction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fix {
    /// Changes of the tool's options.
    pub changes: Vec<OptionChange>,
    /// The changes in one line.
    pub text: String,
    /// Predicted step time with the changes, and with all errors fixed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_time_seconds: Option<f64>,
    /// Predicted peak memory of the fullest GPU with the changes, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    /// Replacements in the text of the file.
    #[serde(skip)]
    pub replacements: Vec<Replacement>,
}

impl Fix {
    /// A fix without a prediction.
    pub(super) fn unevaluated(changes: Vec<OptionChange>, replacements: Vec<Replacement>) -> Self {
        Self {
            text: describe_changes(&changes),
            changes,
            step_time_seconds: None,
            peak_memory_bytes: None,
            replacements,
        }
    }
}

/// A change of an option, in the file of the settings or in one that they name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OptionChange {
    /// The change.
    #[serde(flatten)]
    pub edit: Edit,
    /// File in which the option is, if that is not the file of the settings but one that they name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

/// A change of an option.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub enum Edit {
    /// Sets an option, whether or not it is given.
    Set {
        /// Name of the option.
        option: String,
        /// Value; `None` for a switch.
        #[serde(skip_serializing_if = "Option::is_none")]
        value: Option<String>,
    },
    /// Removes an option.
    Remove {
        /// Name of the option.
        option: String,
    },
    /// Renames an option.
    Rename {
        /// Present name.
        option: String,
        /// New name.
        to: String,
    },
}

/// Replacement of a byte range of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// File of the text, if that is not the file of the settings but one that they name.
    pub file: Option<String>,
    /// Start, in bytes.
    pub from: usize,
    /// End, in bytes, exclusive.
    pub to: usize,
    /// New text.
    pub with: String,
}

impl From<Edit> for OptionChange {
    fn from(edit: Edit) -> Self {
        Self { edit, file: None }
    }
}

impl OptionChange {
    /// Sets an option to a value, or sets a switch.
    pub(super) fn set(option: &str, value: Option<String>) -> Self {
        Edit::Set { option: option.to_owned(), value }.into()
    }

    /// Sets an option to a value.
    #[expect(clippy::needless_pass_by_value, reason = "so that numbers are written plainly")]
    pub(super) fn value(option: &str, value: impl ToString) -> Self {
        Self::set(option, Some(value.to_string()))
    }

    /// Removes an option.
    pub(super) fn remove(option: &str) -> Self {
        Edit::Remove { option: option.to_owned() }.into()
    }

    /// Renames an option.
    pub(super) fn rename(option: &str, to: impl Into<String>) -> Self {
        Edit::Rename { option: option.to_owned(), to: to.into() }.into()
    }

    /// Name of the option.
    pub fn option(&self) -> &str {
        match &self.edit {
            Edit::Set { option, .. } | Edit::Remove { option } | Edit::Rename { option, .. } => {
                option
            }
        }
    }

    /// The change as text.
    pub fn describe(&self) -> String {
        let change = match &self.edit {
            Edit::Set { option, value: Some(value) } => format!("`{option} {value}`"),
            Edit::Set { option, value: None } => format!("`{option}`"),
            Edit::Remove { option } => format!("without `{option}`"),
            Edit::Rename { option, to } => format!("`{to}` in the place of `{option}`"),
        };
        match &self.file {
            Some(file) => format!("{change} in `{file}`"),
            None => change,
        }
    }
}

/// Changes as text in one line.
pub(super) fn describe_changes(changes: &[OptionChange]) -> String {
    changes.iter().map(OptionChange::describe).collect::<Vec<_>>().join(", ")
}
