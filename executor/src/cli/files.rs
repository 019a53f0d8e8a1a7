//! Reading plans and checkpoints.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, ensure};
use executor_runtime::checkpoint::{CheckpointError, State, latest};
use executor_runtime::program::read_plan;
use ir::plan::Plan;

/// Files larger than this are no plans.
const LARGEST_PLAN: u64 = 64 << 20;

/// Reads a plan, or says why not.
pub(super) fn read(path: &Path) -> anyhow::Result<Plan> {
    // A folder that may not be looked into is another error, which reading has.
    ensure!(
        path.try_exists().unwrap_or(true),
        "reading `{}`: No such file\nhint: `planner search MODEL --gpus N -o plan.json` writes a plan",
        path.display()
    );
    let text = read_text(path)?;
    read_plan(&text).with_context(|| format!("`{}`", path.display()))
}

/// Reads a text, or says why not.
pub(super) fn read_text(path: &Path) -> anyhow::Result<String> {
    let reading = || format!("reading `{}`", path.display());
    let file = std::fs::File::open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => anyhow!("reading `{}`: No such file", path.display()),
        _ => anyhow::Error::new(error).context(reading()),
    })?;
    let mut bytes = Vec::new();
    // A device or a pipe does not tell its length.
    file.take(LARGEST_PLAN + 1).read_to_end(&mut bytes).with_context(reading)?;
    ensure!(
        bytes.len() as u64 <= LARGEST_PLAN,
        "`{}` has more than {LARGEST_PLAN} bytes, the most that a plan may have",
        path.display()
    );
    ir::text::decoded(&bytes).map(str::to_owned).with_context(reading)
}

/// The newest whole checkpoint of a folder and where it is, if the folder has any; `warn` is told what is
/// passed over. Where the very first was interrupted, there is none.
///
/// # Errors
///
/// What is wrong with the newest that was whole once, where none is now: to begin anew beside it would
/// look as if training went on.
pub(super) fn newest_checkpoint(
    folder: &Path,
    mut warn: impl FnMut(&CheckpointError),
) -> anyhow::Result<Option<(PathBuf, State)>> {
    ensure!(
        !folder.exists() || folder.is_dir(),
        "`{}` is no folder of checkpoints",
        folder.display()
    );
    let mut found = latest(folder)?;
    let was_whole =
        |skipped: &CheckpointError| !matches!(skipped, CheckpointError::Interrupted { .. });
    if found.path.is_none()
        && let Some(position) = found.skipped.iter().position(was_whole)
    {
        let newest = found.skipped.swap_remove(position);
        return Err(newest)
            .with_context(|| format!("no checkpoint in `{}` is whole", folder.display()));
    }
    for skipped in &found.skipped {
        warn(skipped);
    }
    let Some(path) = found.path else { return Ok(None) };
    let state = State::open(&path)?;
    Ok(Some((path, state)))
}
