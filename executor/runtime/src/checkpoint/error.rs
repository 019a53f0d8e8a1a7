//! Errors of reading and writing checkpoints and files of weights.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use safetensors::Dtype;

use super::parameter::ParameterId;
use super::shard::PieceKind;

/// Errors of reading and writing checkpoints and files of weights.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The system refuses: the file is missing, access is not permitted, the disk is full.
    #[error("cannot {action} `{}`{}", .path.display(), hint(.source))]
    Io {
        /// The action, as in `read`.
        action: &'static str,
        /// File or directory.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// A directory without weights.
    #[error(
        "`{}` has no weights\nhint: it needs `model.safetensors`, or `model.safetensors.index.json` \
         and the files that it names",
        .path.display()
    )]
    NoWeights {
        /// The directory.
        path: PathBuf,
    },
    /// A file whose content is not of its format.
    #[error("`{}` cannot be understood: {problem}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Description of the problem.
        problem: String,
    },
    /// A file that is too short or too long.
    #[error(
        "`{}` has {found} bytes, but should have {expected}\nhint: copy or download it again, or use \
         an earlier checkpoint",
        .path.display()
    )]
    Size {
        /// The file.
        path: PathBuf,
        /// Bytes that it should have.
        expected: u64,
        /// Bytes that it has.
        found: u64,
    },
    /// A file of the right size whose content was changed.
    #[error(
        "`{}` was changed since it was written: its SHA-256 is {found}, not {expected}\nhint: use an \
         earlier checkpoint",
        .path.display()
    )]
    Changed {
        /// The file.
        path: PathBuf,
        /// Hash of the file when it was written.
        expected: String,
        /// Hash of the file now.
        found: String,
    },
    /// A checkpoint whose writing or removal was interrupted, by its name.
    #[error(
        "checkpoint `{}` is incomplete: writing or removing it was interrupted\nhint: use an earlier \
         one; this one can be removed",
        .path.display()
    )]
    Interrupted {
        /// Directory of the checkpoint.
        path: PathBuf,
    },
    /// A checkpoint that a later version of the program wrote.
    #[error(
        "`{}` has format version {found}, but this program reads {supported} at most\nhint: use the \
         program that wrote it, or a later one",
        .path.display()
    )]
    NewerVersion {
        /// Path of its manifest.
        path: PathBuf,
        /// Format version of the checkpoint.
        found: u64,
        /// The latest version that can be read.
        supported: u64,
    },
    /// Elements that no rank wrote.
    #[error(
        "checkpoint `{}` lacks {kind} of parameter `{parameter}`: elements {} to {} of the {len} \
         asked for",
        .path.display(), .range.start, .range.end - 1
    )]
    Gap {
        /// The checkpoint.
        path: PathBuf,
        /// The parameter.
        parameter: ParameterId,
        /// The kind of piece.
        kind: PieceKind,
        /// The first missing elements, by their places in row-major order of the requested elements.
        range: Range<usize>,
        /// Number of requested elements.
        len: usize,
    },
    /// The file or checkpoint does not fit the model or the request.
    #[error("{0}")]
    Unsuitable(String),
}

impl CheckpointError {
    /// The error of `action` on `path`.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }

    /// The error of a parameter that files of this architecture have no name for.
    pub(super) fn unnamed(parameter: &ParameterId) -> Self {
        Self::Unsuitable(format!(
            "parameter `{parameter}` has no name in this architecture's files"
        ))
    }

    /// The error of a parameter that a checkpoint does not have.
    pub(super) fn unknown(path: &Path, parameter: &ParameterId) -> Self {
        Self::Unsuitable(format!("checkpoint `{}` has no parameter `{parameter}`", path.display()))
    }

    /// The error of a tensor whose element type cannot be read.
    pub(super) fn element_type(file: &Path, tensor: &str, found: Dtype, expected: &str) -> Self {
        let file = file.display();
        Self::Unsuitable(format!(
            "`{file}`: tensor `{tensor}` has elements {found}, but {expected} can be read"
        ))
    }

    pub(super) fn malformed(path: &Path, problem: &dyn fmt::Display) -> Self {
        Self::Malformed { path: path.to_owned(), problem: problem.to_string() }
    }
}

fn hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "\nhint: make room on the disk, or keep fewer checkpoints; what was there before is whole"
        }
        _ => "",
    }
}
