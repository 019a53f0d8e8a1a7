//! The directory of checkpoints: `step-00000120` and so on.
//!
//! Only a complete checkpoint has such a name. While it is written or removed, it is called `step-00000120.partial`.
//! While a later checkpoint of the same step replaces it, it is called `step-00000120.replaced`.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::CheckpointError;
use super::state::State;
use super::tensors::sync_directory;

const PARTIAL: &str = "partial";
const REPLACED: &str = "replaced";

/// The newest complete checkpoint, and the errors of newer ones.
#[derive(Debug, Default)]
pub struct Latest {
    /// The newest complete checkpoint.
    pub path: Option<PathBuf>,
    /// Errors of newer checkpoints, which were skipped; the newest comes first.
    pub skipped: Vec<CheckpointError>,
}

/// The newest complete checkpoint in a directory; none if the directory does not exist.
///
/// # Errors
///
/// [`CheckpointError`] if the directory cannot be read, or the newest checkpoint was written by a later version of the
/// program: if it were skipped, the training since the checkpoint before would be lost silently.
pub fn latest(directory: &Path) -> Result<Latest, CheckpointError> {
    let mut latest = Latest::default();
    for (step, state) in list(directory)?.into_iter().rev() {
        let path = state.path(directory, step);
        if state == Stage::Partial {
            latest.skipped.push(CheckpointError::Interrupted { path });
            continue;
        }
        match State::open(&path) {
            Ok(_) => {
                latest.path = Some(path);
                break;
            }
            Err(error @ CheckpointError::NewerVersion { .. }) => return Err(error),
            Err(error) => latest.skipped.push(error),
        }
    }
    Ok(latest)
}

/// State of completion of a checkpoint. Of the checkpoints of one step, the one that is later in this order is the
/// better one to resume from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Partial,
    Replaced,
    Complete,
}

impl Stage {
    pub(super) fn path(self, directory: &Path, step: u64) -> PathBuf {
        let name = format!("step-{step:08}");
        directory.join(match self {
            Self::Partial => format!("{name}.{PARTIAL}"),
            Self::Replaced => format!("{name}.{REPLACED}"),
            Self::Complete => name,
        })
    }
}

/// Removes partial checkpoints that crashes left, and restores a replaced checkpoint whose replacement is missing.
pub(super) fn clean(directory: &Path) -> Result<(), CheckpointError> {
    for (step, stage) in list(directory)? {
        let (path, complete) = (stage.path(directory, step), Stage::Complete.path(directory, step));
        match stage {
            Stage::Partial => remove(&path)?,
            Stage::Replaced if complete.exists() => remove(&path)?,
            Stage::Replaced => rename(&path, &complete)?,
            Stage::Complete => {}
        }
    }
    Ok(())
}

/// Renames the partial checkpoint of `step` to its final name, then removes the checkpoint that it replaces.
pub(super) fn complete(directory: &Path, step: u64) -> Result<PathBuf, CheckpointError> {
    let [partial, replaced, complete] =
        [Stage::Partial, Stage::Replaced, Stage::Complete].map(|stage| stage.path(directory, step));
    let replaces = complete.exists();
    if replaces {
        rename(&complete, &replaced)?;
    }
    rename(&partial, &complete)?;
    sync_directory(directory)?;
    if replaces {
        remove(&replaced)?;
    }
    Ok(complete)
}

/// Removes all but the newest `num_kept` checkpoints up to that of `step`. Later checkpoints are of another run, and
/// stay.
pub(super) fn prune(directory: &Path, step: u64, num_kept: usize) -> Result<(), CheckpointError> {
    let old = list(directory)?
        .into_iter()
        .rev()
        .filter(|(found, stage)| *found <= step && *stage == Stage::Complete)
        .skip(num_kept);
    for (step, stage) in old {
        // Renamed first: under its final name a checkpoint is always whole, even if this is interrupted.
        let partial = Stage::Partial.path(directory, step);
        rename(&stage.path(directory, step), &partial)?;
        remove(&partial)?;
    }
    Ok(())
}

/// The checkpoints in a directory, by step; of the same step, better ones come later.
fn list(directory: &Path) -> Result<Vec<(u64, Stage)>, CheckpointError> {
    if !directory.exists() {
        return Ok(Vec::new());
    }
    let read = CheckpointError::io("read", directory);
    let entries = fs::read_dir(directory).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let names = entries.map_err(read)?.into_iter().map(|entry| entry.file_name());
    let mut found: Vec<_> = names.filter_map(|name| parse(name.to_str()?)).collect();
    found.sort_unstable();
    Ok(found)
}

/// The step and the stage in a name.
fn parse(name: &str) -> Option<(u64, Stage)> {
    let (number, stage) = match name.strip_prefix("step-")?.split_once('.') {
        None => (name.strip_prefix("step-")?, Stage::Complete),
        Some((number, PARTIAL)) => (number, Stage::Partial),
        Some((number, REPLACED)) => (number, Stage::Replaced),
        Some(_) => return None,
    };
    let step = number.parse().ok()?;
    // `step-7` or `step-+0000007` are not names of checkpoints.
    (stage.path(Path::new(""), step) == Path::new(name)).then_some((step, stage))
}

pub(super) fn remove(path: &Path) -> Result<(), CheckpointError> {
    fs::remove_dir_all(path).map_err(CheckpointError::io("remove", path))
}

fn rename(from: &Path, to: &Path) -> Result<(), CheckpointError> {
    fs::rename(from, to).map_err(CheckpointError::io("rename", from))
}
