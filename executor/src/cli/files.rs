//! Reading plans and checkpoints.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, ensure};
use executor_runtime::checkpoint::{CheckpointError, State, latest};
use executor_runtime::program::read_plan;
use ir::plan::Plan;

/// Maximum size of a plan, in bytes.
const LARGEST_PLAN: u64 = 64 << 20;

/// Reads a plan.
pub(super) fn read(path: &Path) -> anyhow::Result<Plan> {
    // A folder without permission is another error, which reading reports.
    ensure!(
        path.try_exists().unwrap_or(true),
        "reading `{}`: No such file\nhint: `planner search MODEL --gpus N -o plan.json` writes a plan",
        path.display()
    );
    let text = read_text(path)?;
    read_plan(&text).with_context(|| format!("`{}`", path.display()))
}

/// Reads a text.
pub(super) fn read_text(path: &Path) -> anyhow::Result<String> {
    let reading = || format!("reading `{}`", path.display());
    let file = std::fs::File::open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => anyhow!("reading `{}`: No such file", path.display()),
        _ => anyhow::Error::new(error).context(reading()),
    })?;
    let mut bytes = Vec::new();
    // Devices and pipes do not report their length.
    file.take(LARGEST_PLAN + 1).read_to_end(&mut bytes).with_context(reading)?;
    ensure!(
        bytes.len() as u64 <= LARGEST_PLAN,
        "`{}` has more than {LARGEST_PLAN} bytes, the most that is read",
        path.display()
    );
    ir::text::decoded(&bytes).map(str::to_owned).with_context(reading)
}

/// The newest complete checkpoint of a folder with its path, if the folder has any; `warn` is called with the errors of
/// skipped ones. If the very first checkpoint was interrupted, there is none.
///
/// # Errors
///
/// If no checkpoint is complete now, but some were once: the error of the newest of these. A new start in the same
/// folder would look as if training went on.
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
