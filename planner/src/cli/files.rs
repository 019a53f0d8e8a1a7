//! Reading of input files, with errors that state what a wrong file is.

use std::borrow::Cow;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, anyhow, bail, ensure};
use cost_models::{clusters, frameworks};
use ir::cluster::{Cluster, ClusterError, NodeGroup};
use ir::documents::DocumentLengths;
use ir::expert_load::ExpertLoad;
use ir::framework::{Framework, IDEAL};
use ir::schedule::{Schedule, read_csv};
use ir::text::json::JsonError;
use planner::file_kind::FileKind;
use planner::names::{self, or_nearest};
use planner_core::plan::{self, CheckedPlan};

use super::similar_file::{is_folder, no_file, similar_file};
use super::values::counted_gpus;
use command_line::terminal::tell;

/// Largest size in bytes of a configuration that is read.
pub(crate) const LARGEST_FILE: u64 = 64 << 20;

/// Reads a text file.
pub(crate) fn read_text(path: &Path) -> anyhow::Result<String> {
    decoded(path, &read_bytes(path)?).map(str::to_owned)
}

/// Decodes the bytes of a text file.
pub(crate) fn decoded<'a>(path: &Path, bytes: &'a [u8]) -> anyhow::Result<&'a str> {
    ir::text::decoded(bytes).with_context(|| format!("reading `{}`", path.display()))
}

/// Reads a file of at most [`LARGEST_FILE`] bytes.
pub(crate) fn read_bytes(path: &Path) -> anyhow::Result<Vec<u8>> {
    read_bytes_of(path, LARGEST_FILE, &[])
}

/// Reads a text file of one of the kinds `wanted`. An error names nearby files of these kinds.
pub(crate) fn read_text_of(path: &Path, wanted: &[FileKind]) -> anyhow::Result<String> {
    read_as(path, LARGEST_FILE, wanted, |text| Ok(text.to_owned()))
}

/// Reads and parses a text file of one of the kinds `wanted`, of at most `most` bytes. An error names nearby files of
/// these kinds, and for a file of another kind, what reads it.
pub(crate) fn read_as<T>(
    path: &Path,
    most: u64,
    wanted: &[FileKind],
    parse: impl FnOnce(&str) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let bytes = read_bytes_of(path, most, wanted)?;
    let in_file = || format!("`{}`", path.display());
    let parsed = decoded(path, &bytes).and_then(|text| parse(text).with_context(in_file));
    parsed.map_err(|error| match wanted {
        [first, ..] => is_wrong(path, &bytes, *first, error),
        [] => error,
    })
}

/// Error about a file that was given instead of one of kind `wanted`: its actual kind, with hints on what reads it and
/// what to give instead. Returns `error` if the kind is right or unknown.
pub(crate) fn is_wrong(
    path: &Path,
    bytes: &[u8],
    wanted: FileKind,
    error: anyhow::Error,
) -> anyhow::Error {
    let kind = FileKind::of(bytes);
    let instead = wanted.source();
    let name = path.display().to_string();
    if kind == wanted {
        return error;
    }
    if kind == FileKind::Unknown {
        let text = format!("{error:#}");
        return match instead {
            Some(instead) if !text.contains("\nhint: ") => anyhow!("{text}\nhint: {instead}"),
            _ => error,
        };
    }
    let (found, wanted_in_words) = (kind.describe(), wanted.describe());
    if (kind, wanted) == (FileKind::Model, FileKind::Plan) {
        return anyhow!(
            "`{name}` is {found}, not {wanted_in_words}\nhint: `planner search {name} --gpus N -o plan.json` makes a plan \
             for it"
        );
    }
    // Hints on files of a model's repository help only if a model is wanted.
    let of_repository = [
        FileKind::Page,
        FileKind::Pointer,
        FileKind::Weights,
        FileKind::BesideModel,
        FileKind::Diffusers,
        FileKind::Params,
    ];
    let is_useless = of_repository.contains(&kind) && wanted != FileKind::Model;
    let taken = kind.use_of(&name).filter(|_| !is_useless);
    let is_told = wanted == FileKind::Plan && matches!(kind, FileKind::Report | FileKind::Results);
    let hints: Vec<String> =
        taken.into_iter().chain(instead.filter(|_| !is_told).map(str::to_owned)).collect();
    anyhow!("`{name}` is {found}, not {wanted_in_words}\nhint: {}", hints.join("; "))
}

/// Refuses a file of a kind other than `wanted`, unless its kind is unknown or in `taken`.
pub(crate) fn refuse_other_kinds(
    path: &Path,
    bytes: &[u8],
    wanted: FileKind,
    taken: &[FileKind],
) -> anyhow::Result<()> {
    let kind = FileKind::of(bytes);
    if kind == wanted || kind == FileKind::Unknown || taken.contains(&kind) {
        return Ok(());
    }
    Err(is_wrong(path, bytes, wanted, anyhow!("`{}` cannot be read", path.display())))
}

/// Path that stands for standard input.
const STDIN: &str = "-";

/// True once standard input has been read, which is possible only once per process.
static STDIN_IS_READ: AtomicBool = AtomicBool::new(false);

/// Reads a file of one of the kinds `wanted`, of at most `most` bytes. An error names nearby files of these kinds.
pub(crate) fn read_bytes_of(
    path: &Path,
    most: u64,
    wanted: &[FileKind],
) -> anyhow::Result<Vec<u8>> {
    let reading = || format!("reading `{}`", path.display());
    let file: &mut dyn Read = if is_stdin(path) {
        let was_read = STDIN_IS_READ.swap(true, Ordering::Relaxed);
        ensure!(
            !was_read,
            "`-`, standard input, is given for more than one file, but can be read only once"
        );
        &mut std::io::stdin().lock()
    } else if path.is_dir() {
        return Err(is_folder(path, wanted));
    } else {
        &mut std::fs::File::open(path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => no_file(path, wanted),
            _ => anyhow::Error::new(error).context(reading()),
        })?
    };
    let mut bytes = Vec::new();
    // The length of devices and pipes is unknown.
    file.take(most + 1).read_to_end(&mut bytes).with_context(reading)?;
    if bytes.len() as u64 > most {
        bail!("`{}` has more than the {most} bytes that are read", path.display());
    }
    Ok(bytes)
}

/// Returns whether a path stands for standard input.
pub(crate) fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == STDIN
}

/// The last component of a path.
pub(crate) fn file_name(path: &Path) -> Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

/// The ending of a path's name in lower case, if it has one.
pub(crate) fn ending(path: &Path) -> Option<String> {
    path.extension().map(|ending| ending.to_string_lossy().to_lowercase())
}

/// Returns whether a path exists or is standard input.
pub(crate) fn is_there(path: &Path) -> bool {
    is_stdin(path) || path.exists()
}

/// The cluster preset with the given name or synonym.
fn cluster_preset(name: &str) -> Option<Cluster> {
    let own = clusters::preset(&name.to_ascii_lowercase());
    own.or_else(|| names::cluster(name).and_then(clusters::preset))
}

/// Reads nodes of several presets, such as `a100:4,h100:2`; `None` if the text has another form.
fn read_groups(text: &str) -> Option<anyhow::Result<Cluster>> {
    let group = |(name, nodes): (&str, u32)| {
        anyhow::ensure!(
            !is_there(Path::new(name)),
            "`--cluster {text}`: `{name}` is a file, but only presets can have a number of nodes\n\
             hint: a file with `groups`: [{{\"nodes\": {nodes}, \"cluster\": ..}}, ..], each with a preset's name or all of a cluster"
        );
        let cluster = cluster_preset(name).ok_or_else(|| no_cluster(name))?;
        anyhow::Ok(NodeGroup { nodes, cluster })
    };
    let groups = counted_groups(text)?.into_iter().map(group).collect::<anyhow::Result<Vec<_>>>();
    Some(groups.and_then(|groups| Ok(Cluster::of_groups(groups, Vec::new())?)))
}

/// Names of presets and numbers of nodes in a text such as `a100:4,h100:2`.
fn counted_groups(text: &str) -> Option<Vec<(&str, u32)>> {
    let parts = text.split(',').map(|part| part.rsplit_once(':'));
    parts.map(|part| Some((part?.0.trim(), part?.1.trim().parse().ok()?))).collect()
}

/// Total number of nodes in a text such as `h100:2`, over all presets in it.
pub(crate) fn counted_nodes(text: &str) -> Option<u32> {
    let groups = counted_groups(text)?.into_iter();
    Some(groups.fold(0, |sum, (_, nodes)| sum.saturating_add(nodes)))
}

/// Reads a cluster: a preset's name, nodes of several presets, or a file.
pub(crate) fn read_cluster(name: &str) -> anyhow::Result<Cluster> {
    if let Some(cluster) = clusters::preset(&name.to_ascii_lowercase()) {
        return Ok(cluster);
    }
    let path = Path::new(name);
    if !is_there(path) {
        let groups = read_groups(name);
        return groups.unwrap_or_else(|| cluster_preset(name).ok_or_else(|| no_cluster(name)));
    }
    read_as(path, LARGEST_FILE, &[FileKind::Cluster], |text| {
        let text = clusters::completed(text)?;
        let cluster = Cluster::from_json_with(&text, cluster_preset);
        let cluster = cluster.map_err(|error| match error {
            // Positions in text that contains a preset's fields do not refer to the user's file.
            ClusterError::Json(JsonError { problem, .. }) if matches!(text, Cow::Owned(_)) => {
                anyhow!("with the fields of the cluster that it is `like`: {problem}")
            }
            error => error.into(),
        })?;
        clusters::check_rates(&cluster)?;
        Ok(clusters::with_known_rates(cluster))
    })
}

/// Error that no preset or file has this name, with hints.
fn no_cluster(name: &str) -> anyhow::Error {
    const ALL: &str = "`planner list clusters` has all presets, and a file describes any other";
    let hint = match counted_gpus(name) {
        Some((gpu, count)) => {
            format!("`--cluster {gpu} --gpus {count}` says which GPUs and how many")
        }
        None => match names::related_cluster(name) {
            Some(related) => format!("`{related}` is the nearest in kind; {ALL}"),
            None => or_nearest(name, clusters::names(), ALL),
        },
    };
    let sibling = sibling_hint(name, FileKind::Cluster);
    anyhow!("cluster `{name}` is neither a preset nor a file\nhint: {sibling}{hint}")
}

/// Hint on a file of a kind next to a missing one, if the name looks like a file's.
fn sibling_hint(name: &str, kind: FileKind) -> String {
    let path = Path::new(name);
    let is_file = path.extension().is_some() || path.components().count() > 1;
    let similar = similar_file(path, &[kind]).filter(|_| is_file);
    similar.map_or_else(String::new, |similar| format!("`{}` is there; ", similar.display()))
}

/// Reads a framework: a preset's name or a file.
pub(crate) fn read_framework(name: &str) -> anyhow::Result<Framework> {
    if let Some(framework) = frameworks::preset(&name.to_ascii_lowercase()) {
        return Ok(framework);
    }
    let path = Path::new(name);
    if !is_there(path) {
        let known = frameworks::names().chain([IDEAL]);
        return names::framework(name).and_then(frameworks::preset).ok_or_else(|| {
            anyhow!(
                "framework `{name}` is neither one that ships nor a file\nhint: {}{}",
                sibling_hint(name, FileKind::Framework),
                or_nearest(name, known, "`planner list frameworks` has all that ship")
            )
        });
    }
    read_as(path, LARGEST_FILE, &[FileKind::Framework], |text| Ok(frameworks::read(text)?))
}

/// Reads lengths of documents: a named distribution, or a file of lengths.
pub(crate) fn read_document_lengths(text: &str, longest: u64) -> anyhow::Result<DocumentLengths> {
    let path = Path::new(text);
    let lengths = if is_there(path) {
        let lengths = DocumentLengths::from_lines(&read_text(path)?, longest);
        lengths.with_context(|| format!("`{text}`"))
    } else {
        text.parse().map_err(anyhow::Error::from)
    };
    lengths.context("`--document-lengths`")
}

/// Reads the spread of tokens over experts by routers: a named one, or a file of counts.
pub(crate) fn read_expert_load(text: &str) -> anyhow::Result<ExpertLoad> {
    let path = Path::new(text);
    let load = if is_there(path) {
        ExpertLoad::from_counts(&read_text(path)?).with_context(|| format!("`{text}`"))
    } else {
        text.parse().map_err(anyhow::Error::from)
    };
    load.context("`--expert-load`")
}

/// Reads a plan and checks it.
pub(crate) fn read_plan(path: &Path) -> anyhow::Result<CheckedPlan> {
    let checked = read_as(path, LARGEST_FILE, &[FileKind::Plan], |text| Ok(plan::read(text)?))?;
    warn_of_prediction(path, &checked);
    Ok(checked)
}

/// Parses and checks a plan that was read from `path`.
pub(crate) fn parse_plan(path: &Path, text: &str) -> anyhow::Result<CheckedPlan> {
    let checked = plan::read(text)
        .with_context(|| format!("`{}`", path.display()))
        .map_err(|error| is_wrong(path, text.as_bytes(), FileKind::Plan, error))?;
    warn_of_prediction(path, &checked);
    Ok(checked)
}

/// Largest relative difference between step times at which two predictions count as equal.
const SAME_PREDICTION: f64 = 1e-6;

/// Warns on stderr if the prediction in a plan differs from a new prediction for its layout.
fn warn_of_prediction(path: &Path, checked: &CheckedPlan) {
    let CheckedPlan { plan, problem, found, .. } = checked;
    let (written, now) = (&plan.prediction, found.prediction(problem));
    let is_as_fast =
        (now.step_time_seconds / written.step_time_seconds - 1.0).abs() <= SAME_PREDICTION;
    if is_as_fast && now.peak_memory_bytes == written.peak_memory_bytes {
        return;
    }
    tell(&format!(
        "warning: `{}` predicts {:.4} s and {}, but its layout takes {:.4} s and {}: it was edited, or made by a planner that \
         predicts otherwise (it says {})\nhint: `{}` makes it again",
        path.display(),
        written.step_time_seconds,
        written.peak_memory_bytes,
        now.step_time_seconds,
        now.peak_memory_bytes,
        plan.provenance.planner_version,
        plan.provenance.command,
    ));
}

/// Largest size in bytes of a CSV that is read: 10^8 actions of ten characters.
const LARGEST_CSV: u64 = 1 << 30;

/// Reads a schedule in PyTorch's CSV form.
pub(crate) fn read_schedule(path: &Path) -> anyhow::Result<Schedule> {
    read_as(path, LARGEST_CSV, &[FileKind::Order], |text| Ok(read_csv(text)?))
}
