//! Constructors of option changes.

use crate::lint::finding::OptionChange;

/// Change that sets an option to a value.
#[expect(clippy::needless_pass_by_value, reason = "so that numbers are written plainly")]
pub(super) fn value(name: &str, value: impl ToString) -> OptionChange {
    OptionChange::set(name, Some(value.to_string()))
}
