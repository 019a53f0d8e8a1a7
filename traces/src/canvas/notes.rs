//! What stands below a title.

/// A title and the notes below it.
pub(super) fn parts(text: &str) -> (&str, &str) {
    text.split_once('\n').unwrap_or((text, ""))
}
