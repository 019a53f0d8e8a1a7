//! `planner import`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail};
use ir::plan::Plan;
use planner::file_kind::FileKind;
use planner_tools::interchange::{self, Job, Stated};

use super::answer::Answer;
use super::args::{ImportArgs, SettingsArgs};
use super::files::{read_cluster, read_text, read_text_of, refuse_other_kinds};
use super::input::{command, warn_of_model};
use super::models::read_model;
use super::picture::refuse_other_endings;
use command_line::destination::{has_room, refuse_to_overwrite, write_json};
use command_line::said::{print, tell};

pub(crate) fn import(args: &ImportArgs) -> anyhow::Result<Answer> {
    if let Some(output) = &args.output {
        let draws = "`planner chart plan.json -o step.svg` draws a plan";
        refuse_other_endings(output, "a plan", &["json"], Some(draws))?;
    }
    let text = read_text_of(&args.file, &[FileKind::Settings])?;
    refuse_other_kinds(
        &args.file,
        text.as_bytes(),
        FileKind::Settings,
        &[FileKind::OtherSettings, FileKind::Empty],
    )?;
    let about = || format!("`{}`", args.file.display());
    let Script { text, set, files, .. } = script(text, &args.settings).with_context(about)?;
    let files = beside(&args.file, &text, &set, files).with_context(about)?;
    warn_of_launches(&args.file, &text, &set);
    let file = read_model(&args.model)?;
    warn_of_model(&args.model, &file.model);
    let cluster = read_cluster(&args.cluster)?;
    let plan = interchange::import(&interchange::Import {
        text: &text,
        from: args.settings.from,
        files: &files,
        stated: stated(&args.settings),
        set: &set,
        model: &file.model,
        model_text: &file.text,
        cluster: &cluster,
        command: command(),
    })
    .with_context(about)?;
    if let Some(output) = &args.output {
        for input in [&args.file, &args.model] {
            refuse_to_overwrite(input, output)?;
        }
        write_json(output, &plan)?;
    }
    if has_room(&args.output) {
        print(&summary(&plan))?;
    }
    Ok(Answer::Found)
}

/// Settings, and what they are read with.
pub(super) struct Script {
    /// They themselves, or what a manifest has of them.
    pub(super) text: String,
    /// Variables that the user or the manifest gives.
    pub(super) set: BTreeMap<String, String>,
    /// Files that the manifest has, by their names.
    pub(super) files: BTreeMap<String, String>,
    /// Whether lines and places are those of the file.
    pub(super) is_in_place: bool,
}

/// The settings that a file has, be it a manifest of Kubernetes that runs them.
pub(super) fn script(text: String, args: &SettingsArgs) -> anyhow::Result<Script> {
    if let Some((name, _)) = args.set.iter().find(|(name, _)| !text.contains(name.as_str())) {
        bail!("`--set {name}`: nothing in the script is called so\nhint: leave it out");
    }
    let is_in_place = true;
    let job = interchange::job(&text)?.unwrap_or(Job { text, is_in_place, ..Job::default() });
    let Job { text, is_in_place, files, variables: mut set } = job;
    set.extend(args.set.iter().cloned());
    let found = interchange::variables(&text, &set);
    for (name, given) in &args.set {
        if let Some(value) = found.get(name).filter(|value| *value != given) {
            bail!(
                "`--set {name}`: the script sets it to `{value}`\nhint: leave it out, or change the script"
            );
        }
    }
    Ok(Script { text, set, files, is_in_place })
}

/// What the command line says beside settings.
pub(super) fn stated(args: &SettingsArgs) -> Stated {
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

/// Says on stderr where a script starts several programs that train, of which one is read.
pub(super) fn warn_of_launches(file: &Path, text: &str, set: &BTreeMap<String, String>) {
    let lines = interchange::launches(text, set).unwrap_or_default();
    let [first, rest @ ..] = lines.as_slice() else { return };
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

/// Files that settings name and that lie beside them or are `known`, by their names; those that do not are asked for where
/// they are needed.
fn beside(
    file: &Path,
    text: &str,
    set: &BTreeMap<String, String>,
    known: BTreeMap<String, String>,
) -> anyhow::Result<BTreeMap<String, String>> {
    read_beside(file, interchange::named_files(text, set)?, known)
}

/// Those of some files that lie beside another, by their names, and those that are `known`.
pub(super) fn read_beside(
    file: &Path,
    names: Vec<String>,
    mut known: BTreeMap<String, String>,
) -> anyhow::Result<BTreeMap<String, String>> {
    let folder = file.parent().unwrap_or(Path::new("."));
    for name in names {
        let path = folder.join(&name);
        if !known.contains_key(&name) && path.is_file() {
            known.insert(name, read_text(&path)?);
        }
    }
    Ok(known)
}

/// What the settings are, and what is expected of them.
fn summary(plan: &Plan) -> String {
    let Plan { model, layout, training, prediction, num_gpus, cluster, .. } = plan;
    let micro_batches = layout.num_micro_batches;
    format!(
        "{} on {num_gpus} x {}: {layout}, {}, ZeRO {}, {micro_batches}x{} micro-batches, recompute {}\n\
         sequence {}, batch {}, {}\n\
         predicted: {:.4} s a step, {:.0} tokens/s on each GPU, MFU {:.1} %, {:.1} GiB of {:.1}\n",
        model.name,
        cluster.gpu.name,
        layout.schedule,
        layout.zero_stage.number(),
        layout.micro_batch_size,
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
