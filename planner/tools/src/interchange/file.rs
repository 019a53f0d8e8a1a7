//! Files that are written or named.

/// A file to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its name.
    pub name: String,
    /// What it says.
    pub text: String,
    /// Whether it is a program.
    pub is_executable: bool,
}

impl File {
    /// A file that is no program.
    pub(super) fn text(name: &str, text: String) -> Self {
        Self { name: name.to_owned(), text, is_executable: false }
    }
}

/// The last part of a path.
pub(super) fn basename(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
