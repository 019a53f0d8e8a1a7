//! Why data cannot be trained on.

use std::io;
use std::path::PathBuf;

/// Why data cannot be trained on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The file is missing, or may not be read.
    #[error("cannot read `{}`", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A directory, a pipe or a device.
    #[error("`{}` is not a regular file", .path.display())]
    NotAFile {
        /// What was to be read.
        path: PathBuf,
    },
    /// What is in it cannot be trained on.
    #[error("{0}")]
    Unusable(String),
}
