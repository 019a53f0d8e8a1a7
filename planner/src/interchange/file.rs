//! Files that are to be written.

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
