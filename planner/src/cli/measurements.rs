//! Input of `planner validate`: a folder of measurements, and a file of limits.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail, ensure};
use ir::text::json;
use planner::file_kind::FileKind;
use traces::reference::REFERENCE;

use super::files::{read_bytes, read_text};

/// Texts of the files of measurements, by name, or the error of reading them.
pub(super) struct Tables {
    pub(super) kernels: Vec<(String, anyhow::Result<String>)>,
    pub(super) runs: Vec<(String, anyhow::Result<String>)>,
}

impl Tables {
    pub(super) fn of(folder: Option<&Path>) -> anyhow::Result<Self> {
        let Some(folder) = folder else {
            let runs = REFERENCE.map(|(file, _, text)| (file.to_owned(), Ok(text.to_owned())));
            return Ok(Self { kernels: Vec::new(), runs: runs.into() });
        };
        let read = |inner: &str| -> anyhow::Result<Vec<_>> {
            let files = files(folder, inner)?.into_iter();
            Ok(files.map(|(name, path)| (name, read_text(&path))).collect())
        };
        Ok(Self { kernels: read("kernels")?, runs: read("runs")? })
    }
}

/// Largest accepted mean errors, by file and quantity; the entry `choices` limits the cost of decisions.
pub(super) type Limits = BTreeMap<String, BTreeMap<String, f64>>;

/// Reads a file of limits.
pub(super) fn read_limits(path: &Path) -> anyhow::Result<Limits> {
    let text = read_text(path)?;
    json::read(&text).map_err(|error| {
        anyhow!(
            "`{}` has no limits: {}\nhint: such as `{{\"runs_a.json\": {{\"step_time_seconds\": 0.05}}}}`",
            path.display(),
            error.to_string().lines().next().unwrap_or_default()
        )
    })
}

/// Files in the folder `inner` of `outer`, sorted by name; empty if there is no such folder.
fn files(outer: &Path, inner: &str) -> anyhow::Result<Vec<(String, std::path::PathBuf)>> {
    check_outer(outer)?;
    let folder = outer.join(inner);
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let reading = || format!("reading `{}`", folder.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(reading)? {
        let path = entry.with_context(reading)?.path();
        if let Some(name) = path.file_name().filter(|_| path.is_file()) {
            found.push((name.to_string_lossy().into_owned(), path));
        }
    }
    found.sort();
    Ok(found)
}

/// Checks that a folder contains measurements, in a folder `runs` or `kernels`.
fn check_outer(outer: &Path) -> anyhow::Result<()> {
    let shown = outer.display();
    if outer.is_file() {
        let kind = match FileKind::of(&read_bytes(outer)?) {
            FileKind::Unknown => "a file".to_owned(),
            kind => kind.describe().to_owned(),
        };
        bail!(
            "`{shown}` is {kind}, not a folder of measurements\nhint: `planner validate DIR` reads lists of measured steps \
             in `DIR/runs` and tables of kernels in `DIR/kernels`"
        );
    }
    ensure!(
        outer.is_dir(),
        "there is no folder `{shown}`\nhint: name one that has `runs` with measured steps, or `kernels`"
    );
    let has = |inner: &str| outer.join(inner).is_dir();
    if has("runs") || has("kernels") {
        return Ok(());
    }
    let above = outer.canonicalize().ok().and_then(|it| Some(it.parent()?.to_owned()));
    let is_inner =
        outer.canonicalize().is_ok_and(|it| it.ends_with("runs") || it.ends_with("kernels"));
    let hint = match above.filter(|_| is_inner) {
        Some(above) => format!("`planner validate {}` reads it", above.display()),
        None => format!(
            "put lists of measured steps into `{shown}/runs`, tables of kernels into `{shown}/kernels`"
        ),
    };
    bail!(
        "`{shown}` has no measurements: it has neither a folder `runs` nor `kernels`\nhint: {hint}"
    )
}
