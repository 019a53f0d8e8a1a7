//! Reading plans and writing files.

use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail, ensure};
use executor::checkpoint::{CheckpointError, State, latest};
use executor::program::read_plan;
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
    ir::text::decoded(bytes).with_context(reading)
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
    mut warn: impl FnMut(&CheckpointError) -> anyhow::Result<()>,
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
        warn(skipped)?;
    }
    let Some(path) = found.path else { return Ok(None) };
    let state = State::open(&path)?;
    Ok(Some((path, state)))
}

/// Finds out before a run whether `path` could be written after it: that it is no folder, that there is a
/// folder for it which takes files, and that it is none of `inputs`.
pub(super) fn check_output(path: &Path, inputs: &[&Path]) -> anyhow::Result<()> {
    let writing = || format!("writing `{}`", path.display());
    let same = |input: &&&Path| {
        matches!(
            (path.canonicalize(), input.canonicalize()), (Ok(output), Ok(input)) if output == input
        )
    };
    if let Some(input) = inputs.iter().find(same) {
        bail!("writing `{}`: it is `{}`, which is read", path.display(), input.display());
    }
    match std::fs::metadata(path) {
        Ok(there) if there.is_dir() => {
            bail!(
                "writing `{0}`: it is a folder\nhint: name a file in it, such as `{0}/step.json`",
                path.display()
            )
        }
        Ok(there) if !there.is_file() => return Ok(()),
        _ => {}
    }
    let folder = folder_of(path);
    ensure!(
        folder.is_dir(),
        "writing `{}`: there is no folder `{}`",
        path.display(),
        folder.display()
    );
    beside(&folder).with_context(writing)?;
    Ok(())
}

/// Finds out before a run whether checkpoints can be kept in a folder, which is made if it is not there.
pub(super) fn check_folder(folder: &Path) -> anyhow::Result<()> {
    let keeping = || format!("keeping checkpoints in `{}`", folder.display());
    std::fs::create_dir_all(folder).with_context(keeping)?;
    beside(folder).with_context(keeping)?;
    Ok(())
}

/// Writes a file whole or not at all: beside its place first, then renamed. A device or a pipe takes the
/// bytes as they come, as a file in its place would end it.
pub(super) fn write_atomically(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let writing = || format!("writing `{}`", path.display());
    if std::fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir()) {
        return std::fs::write(path, bytes).with_context(writing);
    }
    let mut file = beside(&folder_of(path)).with_context(writing)?;
    file.write_all(bytes).with_context(writing)?;
    file.as_file().sync_all().with_context(writing)?;
    file.persist(path).map_err(|error| error.error).with_context(writing)?;
    Ok(())
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// A new file in a folder, gone unless it is given another name.
fn beside(folder: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    let mut beside = tempfile::Builder::new();
    beside.prefix(".executor-");
    // As any other program would create it; the default is to let nobody else read it.
    #[cfg(unix)]
    beside.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    beside.tempfile_in(folder)
}
