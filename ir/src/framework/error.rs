//! Why a description of a framework cannot be used.

use crate::text::json;

/// Why a description of a framework cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameworkError {
    /// The text is not JSON, or not a framework.
    #[error("framework file, line {line}, column {column}: {message}")]
    Json {
        /// Line of the error, from one.
        line: usize,
        /// Column of the error, from one.
        column: usize,
        /// What serde found.
        message: String,
    },
    /// Nothing to call it by.
    #[error(
        "`name` is empty, but results say whose kernels they are predicted with: give it one, such as `ours`"
    )]
    Nameless,
    /// A number out of range.
    #[error("`{field}` is {value}, but must be {works}")]
    Unusable {
        /// The field's path.
        field: &'static str,
        /// What it holds.
        value: String,
        /// What it could hold instead, with an example.
        works: &'static str,
    },
    /// A list that is empty.
    #[error("`{field}` is empty, but must have {works}")]
    Empty {
        /// The field's path.
        field: &'static str,
        /// What it has at least.
        works: &'static str,
    },
    /// Something that is listed twice.
    #[error("`{field}` has {what} twice")]
    Twice {
        /// The field's path.
        field: &'static str,
        /// What.
        what: String,
    },
    /// Two values that no framework has together.
    #[error("{one}, but {other}\nhint: {works}")]
    Contradiction {
        /// The one.
        one: String,
        /// The other.
        other: String,
        /// What would work.
        works: &'static str,
    },
}

impl FrameworkError {
    pub(super) fn json(text: &str, error: &serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        Self::Json { line, column, message: json::problem(text, error) }
    }

    pub(super) fn unusable(field: &'static str, value: f64, works: &'static str) -> Self {
        Self::Unusable { field, value: value.to_string(), works }
    }
}
