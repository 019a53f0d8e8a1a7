//! Reading and writing files.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail, ensure};
use cost_models::{clusters, frameworks};
use ir::cluster::Cluster;
use ir::framework::{Framework, IDEAL};
use ir::model::Model;
use planner::plan::{self, CheckedPlan};

/// Files larger than this are not configurations.
const LARGEST_FILE: u64 = 64 << 20;

/// Reads a file of text, or says why not.
pub(crate) fn read_text(path: &Path) -> anyhow::Result<String> {
    read_text_up_to(path, LARGEST_FILE)
}

/// Reads a file of text of at most so many bytes, or says why not.
pub(crate) fn read_text_up_to(path: &Path, most: u64) -> anyhow::Result<String> {
    let bytes = read_bytes_up_to(path, most)?;
    String::from_utf8(bytes).with_context(|| format!("reading `{}`", path.display()))
}

/// Reads a file of at most so many bytes, or says why not.
pub(crate) fn read_bytes_up_to(path: &Path, most: u64) -> anyhow::Result<Vec<u8>> {
    let reading = || format!("reading `{}`", path.display());
    let file = std::fs::File::open(path).with_context(reading)?;
    let mut bytes = Vec::new();
    // A device or a pipe does not tell its length.
    file.take(most + 1).read_to_end(&mut bytes).with_context(reading)?;
    if bytes.len() as u64 > most {
        bail!("`{}` has more than the {most} bytes that are read", path.display());
    }
    Ok(bytes)
}

/// A model file, with its text and where it lies.
pub(crate) struct ModelFile {
    pub(crate) model: Model,
    pub(crate) text: String,
}

/// Reads a model: a file, or a folder with a `config.json`.
pub(crate) fn read_model(path: &Path) -> anyhow::Result<ModelFile> {
    let path = if path.is_dir() { path.join("config.json") } else { path.to_owned() };
    let text = read_text(&path)?;
    let model = Model::from_json(&text, &name_of(&path)).map_err(|error| {
        let hint = error.hint().map_or(String::new(), |hint| format!("\nhint: {hint}"));
        anyhow!("`{}`: {:#}{hint}", path.display(), anyhow::Error::new(error))
    })?;
    Ok(ModelFile { model, text })
}

/// A model's name where its file does not say: the file's, or its folder's for `config.json`.
fn name_of(path: &Path) -> String {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let named = match absolute.file_stem() {
        Some(stem) if stem == "config" => absolute.parent().and_then(Path::file_name),
        stem => stem,
    };
    named.map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// A preset by name, or a cluster file.
pub(crate) fn read_cluster(name: &str) -> anyhow::Result<Cluster> {
    if let Some(cluster) = clusters::preset(&name.to_ascii_lowercase()) {
        return Ok(cluster);
    }
    let path = PathBuf::from(name);
    if !path.exists() {
        let known: Vec<&str> = clusters::names().collect();
        bail!(
            "cluster `{name}` is neither a preset nor a file\nhint: presets are {}",
            known.join(", ")
        );
    }
    let text = read_text(&path)?;
    let in_file = || format!("`{}`", path.display());
    let cluster = Cluster::from_json(&text).with_context(in_file)?;
    clusters::check_rates(&cluster).with_context(in_file)?;
    Ok(cluster)
}

/// A framework by name, or a framework file.
pub(crate) fn read_framework(name: &str) -> anyhow::Result<Framework> {
    if let Some(framework) = frameworks::preset(&name.to_ascii_lowercase()) {
        return Ok(framework);
    }
    let path = PathBuf::from(name);
    if !path.exists() {
        let known: Vec<&str> = frameworks::names().chain([IDEAL]).collect();
        bail!(
            "framework `{name}` is neither one that ships nor a file\nhint: those that ship are {}",
            known.join(", ")
        );
    }
    let text = read_text(&path)?;
    Framework::from_json(&text).with_context(|| format!("`{}`", path.display()))
}

/// Reads a plan and checks it.
pub(crate) fn read_plan(path: &Path) -> anyhow::Result<CheckedPlan> {
    parse_plan(path, &read_text(path)?)
}

/// Checks a plan that was read from `path`.
pub(crate) fn parse_plan(path: &Path, text: &str) -> anyhow::Result<CheckedPlan> {
    plan::read(text).with_context(|| format!("`{}`", path.display()))
}

/// What is written must not take the place of what is read: a file, or a folder with a `config.json`.
pub(crate) fn refuse_to_overwrite(input: &Path, output: &Path) -> anyhow::Result<()> {
    let input = if input.is_dir() { input.join("config.json") } else { input.to_owned() };
    let same = matches!(
        (output.canonicalize(), input.canonicalize()), (Ok(output), Ok(input)) if output == input
    );
    anyhow::ensure!(!same, "`--output` is `{}`, which is read", input.display());
    Ok(())
}

/// Makes the folder that files are written to, if it is not there.
pub(crate) fn make_folder(folder: &Path) -> anyhow::Result<()> {
    let making = || format!("making the folder `{}`", folder.display());
    ensure!(
        !folder.is_file(),
        "`--output` is the file `{}`\nhint: name a folder",
        folder.display()
    );
    std::fs::create_dir_all(folder).with_context(making)
}

/// Writes a file whole or not at all: beside its place first, then renamed. A device or a pipe takes the
/// bytes as they come, as a file in its place would end it.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let writing = || format!("writing `{}`", path.display());
    match std::fs::metadata(path) {
        Ok(there) if there.is_dir() => {
            bail!(
                "writing `{0}`: it is a folder\nhint: name a file, such as `plan.json`, in it",
                path.display()
            )
        }
        Ok(there) if !there.is_file() => return std::fs::write(path, bytes).with_context(writing),
        _ => {}
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if !folder.is_dir() {
        bail!("writing `{}`: there is no folder `{}`", path.display(), folder.display());
    }
    let mut beside = tempfile::Builder::new();
    beside.prefix(".planner-");
    // As any other program would create it; the default is to let nobody else read it.
    #[cfg(unix)]
    beside.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let _whole = super::interrupt::writing();
    let mut file = beside.tempfile_in(folder).with_context(writing)?;
    file.write_all(bytes).with_context(writing)?;
    file.as_file().sync_all().with_context(writing)?;
    file.persist(path).map_err(|error| error.error).with_context(writing)?;
    Ok(())
}
