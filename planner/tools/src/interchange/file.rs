//! Files of an export, and names of files.

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
}

/// Last component of a path.
pub(super) fn basename(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
