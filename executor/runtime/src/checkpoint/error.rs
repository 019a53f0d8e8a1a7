//! Why a checkpoint or a file of weights cannot be read or written.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::identity::ModelIdentity;
use super::parameter::ParameterId;
use super::shard::PieceKind;

/// Why a checkpoint or a file of weights cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The system refuses: missing, not permitted, disk full.
    #[error("cannot {action} `{}`{}", .path.display(), hint(.source))]
    Io {
        /// What was to be done, as in `read`.
        action: &'static str,
        /// With which file or directory.
        path: PathBuf,
        /// What the system says.
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
    /// A file that is not what its name says.
    #[error("`{}` cannot be understood: {problem}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A file that ends too early, or too late.
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
    /// A file that is of the right size, but was changed.
    #[error(
        "`{}` was changed since it was written: its SHA-256 is {found}, not {expected}\nhint: use an \
         earlier checkpoint",
        .path.display()
    )]
    Changed {
        /// The file.
        path: PathBuf,
        /// Its hash when it was written.
        expected: String,
        /// Its hash now.
        found: String,
    },
    /// A checkpoint whose writing, or whose removal, was interrupted: its name says so.
    #[error(
        "checkpoint `{}` is incomplete: writing or removing it was interrupted\nhint: use an earlier \
         one; this one can be removed",
        .path.display()
    )]
    Interrupted {
        /// Its directory.
        path: PathBuf,
    },
    /// A checkpoint without what is written last.
    #[error(
        "checkpoint `{}` is incomplete: it has no `manifest.json`, which is written last\nhint: use \
         an earlier one; this one can be removed",
        .path.display()
    )]
    Incomplete {
        /// Its directory.
        path: PathBuf,
    },
    /// A checkpoint that a later program wrote.
    #[error(
        "`{}` has format version {found}, but this program reads {supported} at most\nhint: use the \
         program that wrote it, or a later one",
        .path.display()
    )]
    NewerVersion {
        /// Its manifest.
        path: PathBuf,
        /// Its version.
        found: u64,
        /// The latest that is read.
        supported: u64,
    },
    /// A checkpoint of another model.
    #[error(
        "checkpoint `{}` is of {found}, not of {model}: {difference}\nhint: run the model that it is \
         of, or name another directory",
        .path.display()
    )]
    AnotherModel {
        /// The checkpoint.
        path: PathBuf,
        /// The model that is run.
        model: Box<ModelIdentity>,
        /// The model of the checkpoint.
        found: Box<ModelIdentity>,
        /// The first parameter that differs, if any.
        difference: String,
    },
    /// A tensor that no file has.
    #[error(
        "`{}` has no tensor `{tensor}` for parameter `{parameter}`\nhint: it has {num_tensors} \
         tensors, the first `{first}`",
        .path.display()
    )]
    MissingTensor {
        /// Where it was looked for.
        path: PathBuf,
        /// Its name.
        tensor: String,
        /// What it is for.
        parameter: Box<ParameterId>,
        /// How many tensors there are.
        num_tensors: usize,
        /// The first of them by name.
        first: String,
    },
    /// Tensors that the model has no use for.
    #[error(
        "`{}` has {count} tensors that the model has no parameter for, the first `{first}`\nhint: give the model \
         and the weights of one folder",
        .path.display()
    )]
    ExtraTensors {
        /// Where they are.
        path: PathBuf,
        /// How many.
        count: usize,
        /// The first by name.
        first: String,
    },
    /// A tensor of other sizes than the model's.
    #[error(
        "`{}`: tensor `{tensor}` has shape {found:?}, but parameter `{parameter}` of the model needs \
         {expected:?}",
        .path.display()
    )]
    Shape {
        /// The file.
        path: PathBuf,
        /// Its name.
        tensor: String,
        /// What it is for.
        parameter: Box<ParameterId>,
        /// The shape that it should have.
        expected: Vec<usize>,
        /// The shape that it has.
        found: Vec<usize>,
    },
    /// Elements of a type that is not read here.
    #[error("`{}`: tensor `{tensor}` has elements {found}, but {expected} can be read", .path.display())]
    ElementType {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// What its elements are.
        found: String,
        /// What they could be.
        expected: &'static str,
    },
    /// A parameter that the names in use have no word for.
    #[error("parameter `{parameter}` has no name in this architecture's files")]
    Unnamed {
        /// Which one.
        parameter: ParameterId,
    },
    /// A parameter that a checkpoint does not have.
    #[error("checkpoint `{}` has no parameter `{parameter}`", .path.display())]
    UnknownParameter {
        /// The checkpoint.
        path: PathBuf,
        /// Which one.
        parameter: ParameterId,
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
        /// Of which parameter.
        parameter: ParameterId,
        /// What of it.
        kind: PieceKind,
        /// The first elements missing, in row-major order of what was asked for.
        range: Range<usize>,
        /// How many were asked for.
        len: usize,
    },
    /// A rank that has not written its file when the checkpoint is to be completed.
    #[error("rank {rank} of {world_size} has not written to checkpoint `{}`", .path.display())]
    MissingRank {
        /// The directory.
        path: PathBuf,
        /// Which rank.
        rank: u32,
        /// How many there are.
        world_size: u32,
    },
    /// A parameter that was not given when a file of weights is to be completed.
    #[error("parameter `{parameter}` was not written to `{}`", .path.display())]
    NotWritten {
        /// The file.
        path: PathBuf,
        /// Which one.
        parameter: ParameterId,
    },
}

impl CheckpointError {
    /// The error of `action` on `path`.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
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
