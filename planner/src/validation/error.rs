//! Why a file cannot be read.

/// Why a file is not one of measured runs.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// Not JSON.
    #[error("not JSON: {0}")]
    Json(String),
    /// JSON, but no list of runs.
    #[error("not a list of runs, each with an `id`, as in `[{{\"id\": .., \"n_layers\": ..}}]`")]
    NotRuns,
    /// A table whose name does not end with a GPU that is known.
    #[error("no preset is known for `{0}`, with which its name ends")]
    UnknownGpu(String),
    /// A table with other columns, or no table.
    #[error("it begins with `{0}`, not with the columns of a known table")]
    OtherColumns(String),
}
