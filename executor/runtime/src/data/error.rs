//! Errors of training data.

use std::io;
use std::path::PathBuf;

/// Errors of training data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The file is missing, or may not be read.
    #[error("cannot read `{}`", .path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// A directory, a pipe or a device.
    #[error("`{}` is not a regular file", .path.display())]
    NotAFile {
        /// Path that was to be read.
        path: PathBuf,
    },
    /// The content cannot be trained on.
    #[error("{0}")]
    Unusable(String),
}
