//! Sources of the built-in measured steps.

pub use traces::reference::REFERENCE;

/// Name of the source of a file of the reference; `None` for other files.
pub fn source_name(file: &str) -> Option<&'static str> {
    REFERENCE.iter().find(|(known, ..)| *known == file).map(|(_, source, _)| *source)
}
