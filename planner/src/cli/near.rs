//! Files that may be meant: those beside one that is not there, and those of a folder that was taken for a file.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use ir::text::similarity;
use planner::file_kind::FileKind;
use planner::names::{self, nearest};

/// Files of more bytes are not looked into.
const LARGEST_LOOKED_INTO: u64 = 16 << 20;

/// So many files of a folder are looked into.
const MOST_LOOKED_INTO: usize = 64;

/// That there is no file at a path where one of these kinds is taken, with what is beside it.
pub(crate) fn no_file(path: &Path, wanted: &[FileKind]) -> anyhow::Error {
    let beside = near(path, wanted).map(|beside| format!("`{}` is there", beside.display()));
    // Of models their reader says more.
    let from = source(wanted).filter(|_| !wanted.contains(&FileKind::Model));
    let hints: Vec<String> = match of_model(path, wanted) {
        Some(hint) => vec![hint],
        _ => beside.into_iter().chain(from).collect(),
    };
    anyhow!("reading `{}`: No such file{}", path.display(), hint(&hints))
}

/// That a directory was taken for a file, with the file in it that may be meant.
pub(crate) fn is_folder(path: &Path, wanted: &[FileKind]) -> anyhow::Error {
    let hints: Vec<String> = match (of_model(path, wanted), within(path, wanted)) {
        (Some(hint), _) => vec![hint],
        (None, Some(file)) => vec![format!("`{}` is in it", file.display())],
        (None, None) => source(wanted).into_iter().collect(),
    };
    let kind = wanted.first().map_or("a file", |kind| kind.in_words());
    anyhow!("reading `{}`: is a directory, not {kind}{}", path.display(), hint(&hints))
}

fn source(wanted: &[FileKind]) -> Option<String> {
    wanted.first()?.source().map(str::to_owned)
}

fn hint(hints: &[String]) -> String {
    if hints.is_empty() { String::new() } else { format!("\nhint: {}", hints.join("; ")) }
}

/// What to do where a plan is taken and a model is named.
fn of_model(path: &Path, wanted: &[FileKind]) -> Option<String> {
    let is_model = path.join("config.json").exists()
        || path.to_str().is_some_and(|name| names::model(name).is_some());
    (wanted.contains(&FileKind::Plan) && is_model)
        .then(|| format!("`planner search {} --gpus N -o plan.json` writes a plan", path.display()))
}

/// The file beside one that is not there that is called most like it: of those that are of a kind that is taken, or of
/// all whose names are much like it where any kind is.
pub(crate) fn near(path: &Path, wanted: &[FileKind]) -> Option<PathBuf> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let given = path.file_name()?.to_str()?;
    let mut names = files(folder.unwrap_or(Path::new(".")));
    names.sort_by(|one, other| similarity(given, other).total_cmp(&similarity(given, one)));
    let is_of_kind = |name: &&String| is_one(&path.with_file_name(name), wanted);
    // What is called so but for its ending, else what is written nearly so.
    let stem = |name: &&String| Path::new(name).file_stem().is_some_and(|stem| stem == given);
    let whole = names.iter().filter(stem).find(is_of_kind);
    let alike = || {
        let alike = nearest(given, names.iter().map(String::as_str)).into_iter();
        alike.filter_map(|like| names.iter().find(|name| *name == like)).find(is_of_kind)
    };
    // Models are found by name as well: only what is written nearly so is meant.
    let any = || {
        let has_few = !wanted.is_empty() && !wanted.contains(&FileKind::Model);
        names.iter().take(MOST_LOOKED_INTO).find(is_of_kind).filter(|_| has_few)
    };
    let name = whole.or_else(alike).or_else(any)?;
    Some(path.with_file_name(name))
}

/// The first file of a folder that is of one of these kinds.
fn within(folder: &Path, wanted: &[FileKind]) -> Option<PathBuf> {
    let paths = files(folder).into_iter().take(MOST_LOOKED_INTO).map(|name| folder.join(name));
    paths.into_iter().find(|path| !wanted.is_empty() && is_one(path, wanted))
}

/// The names of the files in a folder, in their order.
fn files(folder: &Path) -> Vec<String> {
    let there = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        there.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Whether a file is of one of these kinds; where there are none, of any.
fn is_one(path: &Path, wanted: &[FileKind]) -> bool {
    if wanted.is_empty() {
        return true;
    }
    let is_small = |it: &std::fs::Metadata| it.is_file() && it.len() <= LARGEST_LOOKED_INTO;
    path.metadata().is_ok_and(|it| is_small(&it))
        && std::fs::read(path).is_ok_and(|bytes| wanted.contains(&FileKind::of(&bytes)))
}
