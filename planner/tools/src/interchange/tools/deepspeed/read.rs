//! Reads DeepSpeed's configuration.

use ir::cluster::Precision;
use ir::layout::ZeroStage;
use ir::plan::Optimizer;

use super::batch::{EACH, GLOBAL, ROUNDS};
use super::table::{TABLE, TARGET};
use crate::interchange::error::ImportError;
use crate::interchange::imported::{Imported, StatedStages};
use crate::interchange::options::{Leaf, OptionError, ParsedOptions};
use crate::interchange::own_options;
use crate::interchange::source::{Source, agreed};
use crate::interchange::table::Reader;
use crate::interchange::tree::Tree;
use crate::interchange::unread::Unread;

/// Features of DeepSpeed that change a step and that the planner does not model; they are accepted only if off.
const NOT_PLANNED: [(&str, &str); 7] = [
    ("zero_optimization.zero_quantized_weights", "weights that are gathered in 8 bits"),
    ("zero_optimization.zero_quantized_nontrainable_weights", "frozen weights in 8 bits"),
    ("zero_optimization.zero_quantized_gradients", "gradients that are reduced in 4 bits"),
    ("fp16.fp16_master_weights_and_grads", "fp16 without master weights"),
    ("sparse_gradients", "gradients of rows alone"),
    ("zero_optimization.offload_optimizer.super_offload", "SuperOffload"),
    ("torch_autocast.enabled", "autocast of fp32 weights"),
];

/// Reads a configuration, or the script that names one.
pub(super) fn read(source: &Source<'_>) -> Result<Imported, ImportError> {
    let tree = source.configuration("--deepspeed_config", "ds_config.json", "DeepSpeed")?;
    let keys = leaves(&tree);
    let mut imported = read_keys(source, &keys, &stated(source, &keys))?;
    let program = source.launched().map_or(&[][..], |it| &it.words);
    let is_read = |name: &str| name.starts_with("deepspeed") || name == "local_rank";
    imported.unread.extend(own_options::unread(program, |name, _| is_read(name)));
    Ok(imported)
}

/// Keys of a configuration; the section `bfloat16` of old versions counts as `bf16` (`BFLOAT16_OLD` in DeepSpeed's
/// `runtime/precision_config.py`).
pub(in super::super) fn leaves(tree: &Tree) -> Vec<(String, Leaf)> {
    let mut all = tree.leaves();
    for (key, _) in all.iter_mut().filter(|_| !tree.has("bf16")) {
        if let Some(rest) = key.strip_prefix("bfloat16.") {
            *key = format!("bf16.{rest}");
        }
    }
    all
}

/// Values that replace `auto` if the user states batch sizes: those of a Trainer in bf16, or in fp16 if fp16 is the
/// only one of the two that has a section in the configuration.
fn stated(source: &Source<'_>, keys: &[(String, Leaf)]) -> ParsedOptions {
    let Some(each) = source.stated.micro_batch_size else { return ParsedOptions::default() };
    let has = |section: &str| keys.iter().any(|it| it.0.starts_with(section));
    let precision = if has("fp16.") && !has("bf16.") { Precision::Fp16 } else { Precision::Bf16 };
    let filled = fills([each, 1], Some(precision), Optimizer::AdamW);
    let is_by_batch = source.stated.global_batch_size.is_some();
    if is_by_batch { filled.without(ROUNDS) } else { filled }
}

/// Values that a Trainer fills in for `auto`: micro-batch size, number of micro-batches, number format and optimizer.
pub(in super::super) fn fills(
    [micro_batch_size, num_micro_batches]: [u32; 2],
    precision: Option<Precision>,
    optimizer: Optimizer,
) -> ParsedOptions {
    let on = |it| if precision == Some(it) { "true" } else { "false" };
    ParsedOptions::default()
        .with(EACH, &micro_batch_size.to_string())
        .with(ROUNDS, &num_micro_batches.to_string())
        .with("bf16.enabled", on(Precision::Bf16))
        .with("fp16.enabled", on(Precision::Fp16))
        .with("optimizer.type", if optimizer == Optimizer::Sgd { "SGD" } else { "AdamW" })
        .without(GLOBAL)
}

/// Reads the keys of a configuration; `filled` has the values that replace `auto`.
pub(in super::super) fn read_keys(
    source: &Source<'_>,
    keys: &[(String, Leaf)],
    filled: &ParsedOptions,
) -> Result<Imported, ImportError> {
    let given = &TABLE.vocabulary.of_leaves(keys)?.filled(filled);
    refuse(given)?;
    let mut settings = source.defaults(TARGET);
    (settings.stages, settings.layout.pipeline_parallel) = pipeline(source)?;
    settings.training.sequence_length = source.stated.sequence_length;
    TABLE.read(Reader { source, given }, &mut settings)?;
    let groups = "zero_optimization.zero_hpz_partition_size";
    if given.count::<u32>(groups)?.is_some_and(|size| size > 1) {
        let why = "a second copy of the weights within each node (ZeRO++)";
        settings.unread.push(Unread::new(groups, why));
    }
    if settings.layout.zero_stage != ZeroStage::Parameters && settings.layout.offload.parameters {
        settings.layout.offload.parameters = false;
        let why = "parameters on the host, which it takes with stage 3 only";
        settings.unread.push(Unread::new("zero_optimization.offload_param", why));
    }
    if settings.layout.offload.parameters && !settings.layout.offload.optimizer {
        settings.layout.offload.parameters = false;
        let why = "parameters on the host, with the optimizer on the device: planned on the device";
        let unread = Unread::new("zero_optimization.offload_param", why);
        settings.unread.push(Unread { saves_memory: true, ..unread });
    }
    let training = &mut settings.training;
    if training.precision == Precision::Fp32 {
        training.fp32_gradients = false;
        training.bf16_moments = false;
        training.no_master_weights = false;
    }
    Ok(settings)
}

/// Refuses contradictory keys, and features that change a step but are not modelled.
fn refuse(given: &ParsedOptions) -> Result<(), ImportError> {
    if given.is_on("bf16.enabled")? && given.is_on("fp16.enabled")? {
        given.not_both("bf16.enabled", "fp16.enabled", "weights have one number format")?;
    }
    for (name, what) in NOT_PLANNED {
        if given.is_on(name)? {
            let works = format!("a plan has no {what}; leave it out for the nearest");
            return Err(OptionError::value(name, "true", works).into());
        }
    }
    Ok(())
}

/// Stages and their number, from an export's `pipeline.py`; else the user's number of stages, with DeepSpeed's own
/// partition.
fn pipeline(source: &Source<'_>) -> Result<(StatedStages, u32), ImportError> {
    let stated = source.stated.pipeline_parallel;
    let listed = source.files.get("pipeline.py").and_then(|text| ends_of(text));
    let Some(ends) = listed else {
        let pipeline = stated.unwrap_or(1);
        let stages = if pipeline > 1 { StatedStages::Balanced } else { StatedStages::Even };
        return Ok((stages, pipeline));
    };
    let blocks: Vec<u32> = ends.windows(2).map(|it| it[1].saturating_sub(it[0])).collect();
    let pipeline = blocks.len() as u32;
    agreed(Some(pipeline), "STAGES", stated, "--pp")?;
    Ok((StatedStages::Blocks(blocks), pipeline))
}

/// First block of each stage, and the end of the last, from `STAGES` in an export's `pipeline.py`.
fn ends_of(text: &str) -> Option<Vec<u32>> {
    let line = text.lines().find_map(|line| line.strip_prefix("STAGES = ["))?;
    let ends = line.strip_suffix(']')?.split(',').map(|it| it.trim().parse().ok());
    let ends: Option<Vec<u32>> = ends.collect();
    ends.filter(|ends| ends.len() > 1)
}
