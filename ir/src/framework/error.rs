//! Errors in descriptions of frameworks.

use crate::text::json::JsonError;

/// Reason why a description of a framework cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameworkError {
    /// The text is not JSON, or not a framework.
    #[error("framework file, {0}")]
    Json(JsonError),
    /// An empty name.
    #[error(
        "`name` is empty, but results say whose kernels they are predicted with: give it one, such as `ours`"
    )]
    Nameless,
    /// A number out of range.
    #[error("`{field}` is {value}, but must be {works}")]
    Unusable {
        /// Path of the field.
        field: &'static str,
        /// Value of the field.
        value: String,
        /// Valid values, with an example.
        works: &'static str,
    },
    /// An empty list.
    #[error("`{field}` is empty, but must have {works}")]
    Empty {
        /// Path of the field.
        field: &'static str,
        /// Required entries.
        works: &'static str,
    },
    /// An entry that is listed twice.
    #[error("`{field}` has {what} twice")]
    Twice {
        /// Path of the field.
        field: &'static str,
        /// The entry.
        what: String,
    },
    /// Two values that contradict each other.
    #[error("{one}, but {other}\nhint: {works}")]
    Contradiction {
        /// The first value.
        one: String,
        /// The second value.
        other: String,
        /// Values that would work.
        works: &'static str,
    },
}
