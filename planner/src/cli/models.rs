//! Models: by name, from files and folders, and from the cache of the Hugging Face hub.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail, ensure};
use ir::model::{Model, ModelError, ModelWarning};
use ir::text::json;
use models::{ALL, Shipped};
use planner::file_kind::FileKind;
use planner::names::{self, Sought, or_nearest};

use super::files::{LARGEST_FILE, is_stdin, is_there, read_as, read_bytes};
use super::tables::count;

/// A model, with the text that describes it.
pub(crate) struct ModelFile {
    pub(crate) model: Model,
    pub(crate) text: String,
}

/// Reads a model: from a file, a folder with a `config.json` or a repository in the Hugging Face hub's cache; or by the
/// name of a model that ships.
pub(crate) fn read_model(given: &Path) -> anyhow::Result<ModelFile> {
    read_model_as(given, None)
}

/// Reads a model; with `family`, its configuration is read as one of that family.
pub(crate) fn read_model_as(given: &Path, family: Option<&str>) -> anyhow::Result<ModelFile> {
    if given.is_dir() {
        return read_file(&in_folder(given)?, family);
    }
    let text = given.to_str().unwrap_or_default();
    if is_there(given) {
        return read_file(given, family);
    }
    match Sought::of(text) {
        Sought::Name(name) => match names::model(name) {
            Some(shipped) => of_shipped(shipped, family),
            None => bail!(
                "there is no model `{name}`: no file or folder has this name, and no model that ships\nhint: {}",
                or_nearest(name, shipped_names(), LISTED)
            ),
        },
        Sought::Repository { owner, name } => {
            if let Some(config) = fetched(owner, name) {
                return read_config(&config, name, family);
            }
            // If the owner is an existing folder, a file in it is meant. Otherwise the names in the README work from
            // any folder.
            let is_folder = Path::new(owner).is_dir();
            match names::model(name).filter(|_| !is_folder) {
                Some(shipped) => of_shipped(shipped, family),
                None => Err(not_fetched(owner, name, is_folder)),
            }
        }
        Sought::Path => match of_models_folder(text) {
            Some(shipped) => of_shipped(shipped, family),
            None => read_file(given, family).map_err(|error| not_there(given, &error)),
        },
    }
}

/// Hint on how to list the models that ship.
const LISTED: &str =
    "`planner list models` has all that ship; others need the path of their `config.json`";

fn shipped_names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|shipped| shipped.name)
}

fn of_shipped(shipped: &Shipped, family: Option<&str>) -> anyhow::Result<ModelFile> {
    ensure!(
        family.is_none(),
        "`--as` is for configurations of families that are not known, but `{}` ships\nhint: leave out `--as`",
        shipped.name
    );
    let model = Model::from_json(shipped.text, shipped.name)?;
    Ok(ModelFile { model, text: shipped.text.to_owned() })
}

/// Returns the model that ships under this path of the repository (`models/..`), from any working directory.
fn of_models_folder(text: &str) -> Option<&'static Shipped> {
    let within = text.trim_start_matches("./").strip_prefix("models/")?;
    ALL.iter()
        .find(|shipped| shipped.path == within || shipped.name == within.trim_end_matches('/'))
}

/// Reads the file of a model. Its default name is that of the file, or of the folder for a `config.json`.
fn read_file(path: &Path, family: Option<&str>) -> anyhow::Result<ModelFile> {
    read_config(path, &name_of(path), family)
}

/// Reads the file of a model; `name` is used if the file states none.
fn read_config(path: &Path, name: &str, family: Option<&str>) -> anyhow::Result<ModelFile> {
    read_as(path, LARGEST_FILE, &[FileKind::Model], |text| {
        let text = json::without_infinities(text);
        let not_read = |error: ModelError| {
            let by_size =
                Model::family_by_size(&text, &error).map(|(family, [planned, counted])| {
                    let [planned, counted] = [planned, counted].map(|it| count(it as f64));
                    format!(
                        "`--as {family}` plans it roughly, with {planned} parameters for {counted}"
                    )
                });
            let is_unknown =
                family.is_none() && matches!(error, ModelError::UnknownArchitecture { .. });
            let other = by_size.or_else(|| is_unknown.then(|| nearest(&text)).flatten());
            let by_name = Model::family_by_name(&text, &error)
                .map(|by_name| format!("`{by_name}` is the nearest"));
            let hints = error.hint().or(by_name).into_iter().chain(other);
            let hints: Vec<String> = hints.collect();
            let source = anyhow::Error::new(error.clone());
            let lines = [vec![format!("{source:#}")], hints].concat().join("\nhint: ");
            anyhow::Error::new(NotRead { lines, error })
        };
        let Some(family) = family else {
            let model = Model::from_json(&text, name).map_err(not_read)?;
            return Ok(ModelFile { model, text: text.into_owned() });
        };
        let (text, unread) = Model::as_family(&text, family).map_err(not_read)?;
        let mut model = Model::from_json(&text, name).map_err(not_read)?;
        model.warnings.insert(0, ModelWarning::ReadAs { family: family.to_owned(), unread });
        Ok(ModelFile { model, text })
    })
}

/// Error in a model's description, with the lines to print.
#[derive(Debug, thiserror::Error)]
#[error("{lines}")]
pub(crate) struct NotRead {
    lines: String,
    pub(crate) error: ModelError,
}

/// The family that reads most of a configuration of unknown family, with the fields that it leaves unread.
fn nearest(text: &str) -> Option<String> {
    let (family, unread) = Model::nearest_family(text)?;
    let rest = match unread.as_slice() {
        [] => "all of it".to_owned(),
        unread => format!("all of it but `{}`", unread.join("`, `")),
    };
    Some(format!("`--as {family}` reads {rest}"))
}

/// Default name of a model: the file's stem, or the folder's name for a `config.json`.
pub(crate) fn name_of(path: &Path) -> String {
    if is_stdin(path) {
        return UNNAMED.to_owned();
    }
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let named = match absolute.file_stem() {
        Some(stem) if stem == "config" => absolute.parent().and_then(Path::file_name),
        stem => stem,
    };
    named.map_or_else(|| UNNAMED.to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Name of a model read from standard input.
const UNNAMED: &str = "model";

/// Path of the `config.json` in a folder, which may be a repository of the hub's cache.
pub(crate) fn in_folder(folder: &Path) -> anyhow::Result<PathBuf> {
    let config = folder.join("config.json");
    if config.exists() {
        return Ok(config);
    }
    if let Some(config) = of_snapshot(folder) {
        return Ok(config);
    }
    let entries = std::fs::read_dir(folder).map_err(|error| {
        anyhow::Error::new(error).context(format!("reading `{}`", folder.display()))
    })?;
    let mut there: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    there.sort();
    let hint = instead(folder, &there);
    bail!("the folder `{}` has no `config.json`\nhint: {hint}", folder.display())
}

/// Hint for a folder without a `config.json`.
fn instead(folder: &Path, there: &[PathBuf]) -> String {
    let below = there.iter().find(|path| path.join("config.json").is_file());
    if let Some(below) = below {
        return format!("`{}` has one", below.display());
    }
    let is_called =
        |name: &str| there.iter().any(|path| path.file_name() == Some(OsStr::new(name)));
    if is_called("adapter_config.json") {
        return "these are adapters; name the model that they were trained beside".to_owned();
    }
    let is_json = |path: &&PathBuf| path.extension().is_some_and(|ending| ending == "json");
    let is_model = |path: &&PathBuf| {
        read_bytes(path).is_ok_and(|bytes| FileKind::of(&bytes) == FileKind::Model)
    };
    if let Some(model) = there.iter().filter(is_json).find(is_model) {
        return format!("`{}` describes a model", model.display());
    }
    let endings = ["safetensors", "bin", "pt", "pth", "distcp", "gguf"];
    let is_weights = |path: &PathBuf| {
        path.extension().and_then(OsStr::to_str).is_some_and(|ending| endings.contains(&ending))
    };
    let fetched =
        format!("`hf download OWNER/NAME config.json --local-dir {}` fetches it", folder.display());
    if there.iter().any(is_weights) || is_called("latest_checkpointed_iteration.txt") {
        format!("a checkpoint's weights do not describe the model; {fetched}")
    } else if there.is_empty() {
        format!("it is empty; {fetched}")
    } else {
        format!("{fetched}; {LISTED}")
    }
}

/// Path of the `config.json` of a repository in the Hugging Face hub's cache.
fn fetched(owner: &str, name: &str) -> Option<PathBuf> {
    of_snapshot(&hub_cache()?.join(format!("models--{owner}--{name}")))
}

/// Path of the `config.json` in a cached repository: in its main branch, else in the last snapshot by name.
fn of_snapshot(repository: &Path) -> Option<PathBuf> {
    let snapshots = repository.join("snapshots");
    let config = |version: &str| Some(snapshots.join(version).join("config.json"));
    let main = std::fs::read_to_string(repository.join("refs").join("main")).ok();
    let main = main.and_then(|version| config(version.trim())).filter(|path| path.is_file());
    main.or_else(|| {
        let versions = std::fs::read_dir(&snapshots).ok()?.flatten();
        let configs = versions.map(|version| version.path().join("config.json"));
        configs.filter(|path| path.is_file()).max()
    })
}

/// Folder of the hub's cache, from the environment variables of the hub's tools.
fn hub_cache() -> Option<PathBuf> {
    let variable =
        |name: &str| std::env::var_os(name).filter(|it| !it.is_empty()).map(PathBuf::from);
    let cache =
        || variable("XDG_CACHE_HOME").or_else(|| Some(std::env::home_dir()?.join(".cache")));
    let home = || variable("HF_HOME").or_else(|| Some(cache()?.join("huggingface")));
    variable("HF_HUB_CACHE")
        .or_else(|| variable("HUGGINGFACE_HUB_CACHE"))
        .or_else(|| Some(home()?.join("hub")))
}

/// Error about a repository that is neither in the cache nor among the models that ship.
fn not_fetched(owner: &str, name: &str, is_folder: bool) -> anyhow::Error {
    let nearest = or_nearest(name, shipped_names(), "`planner list models` has all of them");
    if is_folder {
        return anyhow!(
            "`{owner}/{name}`: the folder `{owner}` has no `{name}`\nhint: of models that ship, {nearest}"
        );
    }
    let cache =
        hub_cache().map_or_else(|| "the cache".to_owned(), |it| format!("`{}`", it.display()));
    anyhow!(
        "there is no model `{owner}/{name}`: neither a file or folder, nor in {cache}, where the Hugging Face hub's \
         are kept, nor one that ships\nhint: `hf download {owner}/{name} config.json` fetches what is needed of it \
         (`huggingface-cli download` in older versions); of models that ship, {nearest}"
    )
}

/// Error about a path that does not exist, with a hint if a model of that name ships.
fn not_there(path: &Path, error: &anyhow::Error) -> anyhow::Error {
    let name = match path.file_name() {
        Some(name) if name == "config.json" => path.parent().and_then(Path::file_name),
        name => name,
    };
    let name = name.unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(".json").unwrap_or(&name);
    let hint = match names::model(name) {
        Some(shipped) => format!("`{}` ships, and is found by that name alone", shipped.name),
        None => format!(
            "models that ship are found by name: {}",
            or_nearest(name, shipped_names(), LISTED)
        ),
    };
    // The error may already have a hint on a file next to the path.
    let text = format!("{error:#}");
    let joint = if text.contains("\nhint: ") { "; " } else { "\nhint: " };
    anyhow!("{text}{joint}{hint}")
}
