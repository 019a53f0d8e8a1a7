//! `planner import`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use ir::cluster::Cluster;
use ir::model::{GraphOptions, Model};
use ir::plan::Plan;
use planner::file_kind::FileKind;
use planner::names;
use planner_tools::interchange::{self, Import, Job, LaunchScript, Stated};

use super::answer::Answer;
use super::args::{ImportArgs, ToolSettingsArgs};
use super::files::{read_cluster, read_text, read_text_of, refuse_other_kinds};
use super::input::{command, warn_of_long_sequence, warn_of_model};
use super::models::{ModelFile, read_model};
use super::picture::refuse_other_endings;
use super::questions::with_schedule;
use command_line::destination::{refuse_to_overwrite, stdout_is_free, write_json};
use command_line::terminal::{print, tell};

pub(crate) fn import(args: &ImportArgs) -> anyhow::Result<Answer> {
    if let Some(output) = &args.output {
        let draws = "`planner chart plan.json -o step.svg` draws a plan";
        refuse_other_endings(output, "a plan", &["json"], Some(draws))?;
    }
    let text = read_text_of(&args.file, &[FileKind::Settings])?;
    check_kind(&args.file, &text)?;
    let ImportArgs { file, model, cluster, settings, output } = args;
    let settings = Settings::read(file, text, model, cluster, settings, output.as_deref())?;
    let plan = interchange::import(&settings.import(&args.settings));
    let (plan, unread) = plan.with_context(|| format!("`{}`", args.file.display()))?;
    for unread in interchange::by_reason(&unread) {
        tell(&format!("warning: `{}`: not part of the plan: {unread}", args.file.display()));
    }
    warn_of_long_sequence(&settings.model.model, &plan.training);
    if let Some(output) = &args.output {
        for input in [args.file.as_path(), args.model.as_path(), Path::new(&args.cluster)] {
            refuse_to_overwrite(input, output)?;
        }
        write_json(output, &plan)?;
    }
    if stdout_is_free(&args.output) {
        print(&summary(&plan))?;
    }
    Ok(Answer::Found)
}

/// Settings of a tool, with the model, the cluster and the variables for importing them.
pub(super) struct Settings {
    /// Text of the settings, from the file itself or from a job manifest.
    pub(super) text: String,
    /// Variables given by the user or the manifest.
    set: BTreeMap<String, String>,
    /// Files that the settings name, by name; they come from the manifest or from the settings' folder. A missing file
    /// is an error only if it is needed.
    pub(super) files: BTreeMap<String, String>,
    /// True if line numbers and positions refer to the file.
    pub(super) is_in_place: bool,
    model: ModelFile,
    cluster: Cluster,
}

impl Settings {
    /// Reads settings from a file, which may be a Kubernetes manifest; and reads the model and the cluster. The `output`
    /// must be none of the files that the settings name.
    pub(super) fn read(
        file: &Path,
        text: String,
        model: &Path,
        cluster: &str,
        args: &ToolSettingsArgs,
        output: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let about = || format!("`{}`", file.display());
        let Job { text, is_in_place, mut files, variables: set } =
            job(text, args).with_context(about)?;
        // A script that cannot be parsed is an error of the import itself; a missing file next to the script is no
        // error here.
        let script = LaunchScript::read_with_files(&text, &set, &mut files, |named| {
            let Some(path) = sibling(file, named) else { return Ok(None) };
            if let Some(output) = output {
                refuse_to_overwrite(&path, output)?;
            }
            read_text(&path).with_context(about).map(Some)
        })?;
        refuse_set(&script, args).with_context(about)?;
        warn_of_launches(file, &script.launches(&files));
        let path = model;
        let model = read_model(path)?;
        warn_of_model(path, &model.model);
        let none = BTreeMap::new();
        let scripts = files.values().filter_map(|it| LaunchScript::read(it, &none, &none).ok());
        let named = scripts.flat_map(|it| it.trained_models());
        let named: Vec<String> = script.trained_models().into_iter().chain(named).collect();
        warn_of_other_model(file, &named, path, &model.model);
        let cluster = read_cluster(cluster)?;
        Ok(Self { text, set, files, is_in_place, model, cluster })
    }

    pub(super) fn import<'a>(&'a self, args: &ToolSettingsArgs) -> Import<'a> {
        Import {
            text: &self.text,
            from: args.from,
            files: &self.files,
            stated: stated(args),
            set: &self.set,
            model: &self.model.model,
            model_text: &self.model.text,
            cluster: &self.cluster,
            command: command(),
        }
    }
}

/// Refuses a file that is certainly not settings of a tool.
pub(super) fn check_kind(file: &Path, text: &str) -> anyhow::Result<()> {
    let taken = [FileKind::OtherSettings, FileKind::Toml, FileKind::Empty];
    refuse_other_kinds(file, text.as_bytes(), FileKind::Settings, &taken)
}

/// Job in a text, with all variables that are set for it.
fn job(text: String, args: &ToolSettingsArgs) -> anyhow::Result<Job> {
    if let Some((name, _)) = args.set.iter().find(|(name, _)| !text.contains(name.as_str())) {
        bail!("`--set {name}`: nothing in the script has this name\nhint: leave it out");
    }
    let is_in_place = true;
    let mut job =
        interchange::job(&text, &args.set)?.unwrap_or(Job { text, is_in_place, ..Job::default() });
    job.variables.extend(args.set.iter().cloned());
    Ok(job)
}

/// Refuses the user's values for variables that the script sets to other values.
fn refuse_set(script: &LaunchScript, args: &ToolSettingsArgs) -> anyhow::Result<()> {
    for (name, given) in &args.set {
        if let Some(value) = script.variables().get(name).filter(|value| *value != given) {
            bail!(
                "`--set {name}`: the script sets it to `{value}`\nhint: leave it out, or change the script"
            );
        }
    }
    Ok(())
}

/// Largest number of folders above the settings' folder in which a path is looked for.
const MOST_ABOVE: usize = 5;

/// File that settings name. Scripts are started from any folder, so the path is tried relative to the settings' folder,
/// to the folders above it if the path itself has folders, and to the working folder. If that fails, later parts of the
/// path are tried, since a checkout may have any name; finally the file name alone, in the settings' folder or one
/// above. An unknown beginning of a path is left out.
fn sibling(settings: &Path, named: &str) -> Option<PathBuf> {
    let name = named.rsplit('/').next().unwrap_or_default();
    let inner = named.trim_start_matches("./").trim_start_matches('/');
    let folder = settings.parent().unwrap_or(Path::new("."));
    // A name without a folder has an empty one, which has no absolute path.
    let whole = std::path::absolute(Path::new(".").join(folder));
    let whole = whole.unwrap_or_else(|_| folder.to_owned());
    let folders_above = whole.ancestors().skip(1).take(MOST_ABOVE);
    let above = folders_above.clone().filter(|_| inner.contains('/'));
    let mut paths = vec![folder.join(named), folder.join(inner)];
    paths.extend(above.clone().map(|it| it.join(inner)));
    paths.push(PathBuf::from(inner));
    let parts = inner.match_indices('/').map(|it| &inner[it.0 + 1..]);
    for part in parts.filter(|it| it.contains('/')) {
        paths.extend(above.clone().map(|it| it.join(part)));
    }
    paths.push(folder.join(name));
    paths.extend(folders_above.map(|it| it.join(name)));
    paths.into_iter().find(|path| path.is_file())
}

/// Values that the command line adds to the settings.
fn stated(args: &ToolSettingsArgs) -> Stated {
    Stated {
        num_gpus: args.gpus,
        sequence_length: args.seq_len,
        micro_batch_size: args.micro_batch_size,
        global_batch_size: args.global_batch_size,
        pipeline_parallel: args.pp,
        multi_token_prediction: args.parts.multi_token_prediction,
        dropout: args.parts.dropout,
    }
}

/// Warns on stderr if a script starts training several times; only the first is read.
fn warn_of_launches(file: &Path, lines: &[usize]) {
    let [first, rest @ ..] = lines else { return };
    if rest.is_empty() {
        return;
    }
    let rest: Vec<String> = rest.iter().map(ToString::to_string).collect();
    let s = if rest.len() == 1 { "" } else { "s" };
    tell(&format!(
        "warning: `{}` starts training in line {first} and again in line{s} {}; only the first is read\nhint: give each a \
         script of its own",
        file.display(),
        rest.join(", ")
    ));
}

/// Warns on stderr if the settings name a model that ships and that differs from the user's in its parameters.
fn warn_of_other_model(file: &Path, named: &[String], path: &Path, model: &Model) {
    let count = |model: &Model| {
        let graph = model.graph(GraphOptions::default());
        graph.ok().map(|it| it.parameter_counts().total)
    };
    let named: Vec<&str> = named.iter().filter_map(|it| Some(names::model(it)?.name)).collect();
    let count_of = |name: &str| read_model(Path::new(name)).ok().and_then(|it| count(&it.model));
    let is_it = |name: &&str| count_of(name) == count(model);
    if let Some(name) = named.first().filter(|_| !named.iter().any(is_it)) {
        tell(&format!(
            "warning: `{}`: the settings name {name}, which has other parameters than `{}`\nhint: `--model {name}`",
            file.display(),
            path.display()
        ));
    }
}

/// Text of the imported plan and its prediction.
fn summary(plan: &Plan) -> String {
    let Plan { model, layout, training, prediction, num_gpus, cluster, .. } = plan;
    let adapters = model.adapters.as_ref().map_or_else(String::new, |it| {
        let targets = it.targets.join(", ");
        format!(", LoRA of rank {} on {targets}; base weights {}", it.rank, it.base_weights)
    });
    format!(
        "{} on {num_gpus} x {}: {}, {} micro-batches, recompute {}\n\
         sequence {}, batch {}, {}{adapters}\n\
         predicted: {:.4} s a step, {:.0} tokens/s on each GPU, MFU {:.1} %, {:.1} GiB of {:.1}\n",
        model.name,
        cluster.gpu.name,
        with_schedule(layout),
        layout.micro_batches(),
        layout.recompute,
        training.sequence_length,
        training.global_batch_size,
        training.precision,
        prediction.step_time_seconds,
        prediction.tokens_per_second_per_gpu,
        prediction.mfu * 100.0,
        prediction.peak_memory_bytes.as_gib(),
        cluster.gpu.memory.as_gib(),
    )
}
