//! Hints on files that the user may have meant: those next to a missing file, and those in a folder that was given as a
//! file.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use ir::text::similarity;
use planner::file_kind::FileKind;
use planner::names::{self, nearest};

/// Largest size in bytes of a file that is inspected for a hint.
const LARGEST_LOOKED_INTO: u64 = 16 << 20;

/// Largest number of files in a folder that are inspected for a hint.
const MOST_LOOKED_INTO: usize = 64;

/// Error about a missing file of one of the kinds `wanted`, with a hint on a file next to it.
pub(crate) fn no_file(path: &Path, wanted: &[FileKind]) -> anyhow::Error {
    let sibling =
        similar_file(path, wanted).map(|sibling| format!("`{}` is there", sibling.display()));
    // The reader of models adds its own hints.
    let from = source(wanted).filter(|_| !wanted.contains(&FileKind::Model));
    let hints: Vec<String> = match of_model(path, wanted) {
        Some(hint) => vec![hint],
        _ => sibling.into_iter().chain(from).collect(),
    };
    anyhow!("reading `{}`: No such file{}", path.display(), hint(&hints))
}

/// Error about a folder that was given as a file, with a hint on a file in it.
pub(crate) fn is_folder(path: &Path, wanted: &[FileKind]) -> anyhow::Error {
    let hints: Vec<String> = match (of_model(path, wanted), within(path, wanted)) {
        (Some(hint), _) => vec![hint],
        (None, Some(file)) => vec![format!("`{}` is in it", file.display())],
        (None, None) => source(wanted).into_iter().collect(),
    };
    let kind = wanted.first().map_or("a file", |kind| kind.describe());
    anyhow!("reading `{}`: is a directory, not {kind}{}", path.display(), hint(&hints))
}

fn source(wanted: &[FileKind]) -> Option<String> {
    wanted.first()?.source().map(str::to_owned)
}

fn hint(hints: &[String]) -> String {
    if hints.is_empty() { String::new() } else { format!("\nhint: {}", hints.join("; ")) }
}

/// Hint for a model that was given instead of a plan.
fn of_model(path: &Path, wanted: &[FileKind]) -> Option<String> {
    let is_model = path.join("config.json").exists()
        || path.to_str().is_some_and(|name| names::model(name).is_some());
    (wanted.contains(&FileKind::Plan) && is_model)
        .then(|| format!("`planner search {} --gpus N -o plan.json` writes a plan", path.display()))
}

/// Returns the file next to a missing one with the most similar name, among files of the kinds `wanted`. Without kinds,
/// only files with similar names are considered.
pub(crate) fn similar_file(path: &Path, wanted: &[FileKind]) -> Option<PathBuf> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let given = path.file_name()?.to_str()?;
    let mut names = files(folder.unwrap_or(Path::new(".")));
    names.sort_by(|one, other| similarity(given, other).total_cmp(&similarity(given, one)));
    let is_of_kind = |name: &&String| is_one(&path.with_file_name(name), wanted);
    // Names that differ only in their ending are tried first, then similar names.
    let stem = |name: &&String| Path::new(name).file_stem().is_some_and(|stem| stem == given);
    let whole = names.iter().filter(stem).find(is_of_kind);
    let alike = || {
        let alike = nearest(given, names.iter().map(String::as_str)).into_iter();
        alike.filter_map(|like| names.iter().find(|name| *name == like)).find(is_of_kind)
    };
    // Models can also be given by name, so only a file with a similar name is a useful hint.
    let any = || {
        let has_few = !wanted.is_empty() && !wanted.contains(&FileKind::Model);
        names.iter().take(MOST_LOOKED_INTO).find(is_of_kind).filter(|_| has_few)
    };
    let name = whole.or_else(alike).or_else(any)?;
    Some(path.with_file_name(name))
}

/// First file, by name, in a folder that is of one of the kinds `wanted`.
fn within(folder: &Path, wanted: &[FileKind]) -> Option<PathBuf> {
    let paths = files(folder).into_iter().take(MOST_LOOKED_INTO).map(|name| folder.join(name));
    paths.into_iter().find(|path| !wanted.is_empty() && is_one(path, wanted))
}

/// Sorted names of the entries of a folder.
fn files(folder: &Path) -> Vec<String> {
    let there = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        there.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Returns whether a file is of one of the kinds `wanted`; true where `wanted` is empty.
fn is_one(path: &Path, wanted: &[FileKind]) -> bool {
    if wanted.is_empty() {
        return true;
    }
    let is_small = |it: &std::fs::Metadata| it.is_file() && it.len() <= LARGEST_LOOKED_INTO;
    path.metadata().is_ok_and(|it| is_small(&it))
        && std::fs::read(path).is_ok_and(|bytes| wanted.contains(&FileKind::of(&bytes)))
}
