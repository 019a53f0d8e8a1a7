//! DeepSpeed's configuration, read.

use ir::cluster::Precision;
use ir::framework::WhenReduced;
use ir::graph::{ContextParallelKind, Recompute};
use ir::layout::{LayoutSpec, Offload, OffloadedActivations, ZeroStage};
use ir::plan::Optimizer;

use super::super::imported::{Divided, ImportError, Imported, StatedStages, StatedTraining};
use super::super::options::{Given, Known, OptionError, Others};
use super::super::source::{Form, Source, agreed};
use super::super::target::Target;
use super::super::tree::Tree;

/// The keys of `DeepSpeedConfig` in deepspeed 0.19.8. Those that it knows and that are of no plan, such as how often it
/// logs, are here and nowhere else.
const KNOWN: Known =
    Known { program: "DeepSpeed", table: include_str!("keys.txt"), others: Others::Refused };

/// What of a step DeepSpeed can do and the planner does not know; off, it is as if it were not there.
const NOT_PLANNED: [(&str, &str); 6] = [
    ("zero_optimization.zero_quantized_weights", "weights that are gathered in 8 bits"),
    ("zero_optimization.zero_quantized_nontrainable_weights", "frozen weights in 8 bits"),
    ("zero_optimization.zero_quantized_gradients", "gradients that are reduced in 4 bits"),
    ("fp16.fp16_master_weights_and_grads", "fp16 without master weights"),
    ("sparse_gradients", "gradients of rows alone"),
    ("zero_optimization.offload_optimizer.super_offload", "SuperOffload"),
];

/// Reads the configuration, or the script that names it.
pub(in super::super) fn read(source: &Source<'_>) -> Result<Imported, ImportError> {
    if let Form::Tree(tree) = &source.form {
        return read_tree(source, tree, &Given::default());
    }
    let words = &source.started()?.words;
    let inline = words.iter().find_map(|it| it.text.strip_prefix("--deepspeed_config="));
    let place = words.iter().position(|it| it.text == "--deepspeed_config");
    let following = place.and_then(|place| words.get(place + 1)).map(|it| it.text.as_str());
    let name = inline.or(following).ok_or_else(|| ImportError::Unknown {
        what: "nothing names DeepSpeed's configuration".to_owned(),
        works: "`--deepspeed_config ds_config.json`, or the configuration itself".to_owned(),
    })?;
    read_tree(source, &source.tree(name)?, &Given::default())
}

/// Reads a configuration; `filled` is what somebody else fills in where it says `auto`.
pub(in super::super) fn read_tree(
    source: &Source<'_>,
    tree: &Tree,
    filled: &Given,
) -> Result<Imported, ImportError> {
    let given = KNOWN.of_leaves(&tree.leaves())?.filled(filled);
    refuse(&given)?;
    let tensor = given.count("tensor_parallel.autotp_size")?;
    let tensor = match tensor {
        Some(tensor) => Some(tensor),
        None => match given.count("tensor_parallel.tp.tp_size")? {
            Some(tensor) => Some(tensor),
            None => given.count("tensor_parallel.tensor_parallel.tp_size")?,
        },
    };
    let tensor: u32 = tensor.unwrap_or(1);
    let context: u32 = given.count("sequence_parallel_size")?.unwrap_or(1);
    let (stages, pipeline) = pipeline(source)?;
    let others = u64::from(tensor) * u64::from(context) * u64::from(pipeline);
    let batch = batch(source, &given, others)?;
    let zero_stage = zero_stage(&given)?;
    let mut framework = Target::DeepSpeed.framework();
    if zero_stage != ZeroStage::None {
        let overlaps = given.flag("zero_optimization.overlap_comm")?;
        // On by default with ZeRO 3 alone.
        if !overlaps.unwrap_or(zero_stage == ZeroStage::Parameters) {
            framework.gradients.reduced = WhenReduced::AfterBackward;
        }
    }
    let cpu = given.is_on("activation_checkpointing.cpu_checkpointing")?;
    let recomputes = given.has_within("activation_checkpointing");
    let layout = LayoutSpec {
        tensor_parallel: tensor,
        expert_tensor_parallel: tensor,
        context_parallel: context,
        context_parallel_kind: if context > 1 {
            ContextParallelKind::AllToAll
        } else {
            ContextParallelKind::default()
        },
        pipeline_parallel: pipeline,
        zero_stage,
        micro_batch_size: batch.micro_batch_size,
        recompute: if recomputes { Recompute::Full } else { Recompute::None },
        offload: Offload {
            optimizer: is_on_host(&given, "zero_optimization.offload_optimizer.device")?
                || given.is_on("zero_optimization.cpu_offload")?,
            parameters: is_on_host(&given, "zero_optimization.offload_param.device")?
                || given.is_on("zero_optimization.cpu_offload_param")?,
            activations: if cpu {
                OffloadedActivations::AllBlocks
            } else {
                OffloadedActivations::None
            },
        },
        ..LayoutSpec::ONE_RANK
    };
    let precision = precision(&given)?;
    let in_16 = precision != Precision::Fp32;
    let sums = [("fp32", true), ("fp16", false), ("bf16", false)];
    let training = StatedTraining {
        sequence_length: source.stated.sequence_length,
        global_batch_size: batch.global,
        num_micro_batches: batch.num_micro_batches,
        precision,
        optimizer: optimizer(&given)?,
        fp32_gradients: in_16
            && given.one_of("data_types.grad_accum_dtype", &sums)?.unwrap_or(false),
        bf16_moments: in_16 && given.is_on("bf16.bf16_optimizer_states")?,
        no_master_weights: in_16 && given.is_on("bf16.bf16_master_weights_and_grads")?,
    };
    Ok(Imported {
        source: Target::DeepSpeed,
        framework,
        layout,
        num_gpus: batch.num_gpus,
        training,
        stages,
        shard_groups: 1,
        model: Vec::new(),
        multi_token_prediction: source.stated.multi_token_prediction,
        dropout: source.stated.dropout,
    })
}

/// Refuses what contradicts itself, and what would change a step in a way that is not planned.
fn refuse(given: &Given) -> Result<(), ImportError> {
    if given.is_on("bf16.enabled")? && given.is_on("fp16.enabled")? {
        return Err(OptionError::Contradiction {
            one: "`bf16.enabled`".to_owned(),
            other: "`fp16.enabled`".to_owned(),
            why: "weights have one number format".to_owned(),
        }
        .into());
    }
    for (name, what) in NOT_PLANNED {
        if given.is_on(name)? {
            return Err(not_planned(name, "true", what));
        }
    }
    let groups = "zero_optimization.zero_hpz_partition_size";
    if given.count::<u32>(groups)?.is_some_and(|size| size > 1) {
        let what = "a second copy of the weights within each node (ZeRO++)";
        return Err(not_planned(groups, "", what));
    }
    if given.has_within("torch_autocast.") && given.has("torch_autocast.enabled") {
        let is_on = given.is_on("torch_autocast.enabled")?;
        if is_on {
            return Err(not_planned("torch_autocast.enabled", "true", "autocast of fp32 weights"));
        }
    }
    Ok(())
}

fn not_planned(name: &str, value: &str, what: &str) -> ImportError {
    OptionError::Value {
        name: name.to_owned(),
        value: value.to_owned(),
        works: format!("a plan has no {what}; leave it out for the nearest"),
    }
    .into()
}

/// The stages in `pipeline.py`, where an export put it; else those that the user says, cut by DeepSpeed's own rule.
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

/// Where stages begin and end, as `pipeline.py` of an export has them.
fn ends_of(text: &str) -> Option<Vec<u32>> {
    let line = text.lines().find_map(|line| line.strip_prefix("STAGES = ["))?;
    let ends = line.strip_suffix(']')?.split(',').map(|it| it.trim().parse().ok());
    let ends: Option<Vec<u32>> = ends.collect();
    ends.filter(|ends| ends.len() > 1)
}

/// Sequences of a step and how they are cut.
struct Batch {
    num_gpus: Option<u32>,
    micro_batch_size: u32,
    num_micro_batches: Option<u32>,
    global: Option<u64>,
}

/// Two of batch, micro-batch and their number decide the third where the replicas are known; all three the replicas.
fn batch(source: &Source<'_>, given: &Given, others: u64) -> Result<Batch, ImportError> {
    let stated = source.stated;
    let [all, each, rounds] =
        ["train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"];
    let global: Option<u64> =
        agreed(given.count(all)?, all, stated.global_batch_size, "--global-batch-size")?;
    let micro: Option<u32> =
        agreed(given.count(each)?, each, stated.micro_batch_size, "--micro-batch-size")?;
    let number: Option<u32> = given.count(rounds)?;
    let ranks = source.num_gpus();
    let replicas = ranks.map(u64::from).filter(|ranks| ranks.is_multiple_of(others));
    let replicas = replicas.map(|ranks| ranks / others);
    let whole = |what: u64, by: u64, name: &str| {
        let quotient = what.checked_div(by).filter(|_| what.is_multiple_of(by));
        let quotient = quotient.and_then(|it| u32::try_from(it).ok()).filter(|it| *it > 0);
        quotient.map(Some).ok_or_else(|| ImportError::Divides {
            of: Divided::Batch,
            instead: Some(("train_batch_size", what.next_multiple_of(by.max(1)))),
            what: format!(
                "`train_batch_size` {what} is no multiple of {by}, so there is no `{name}`"
            ),
            works: format!("`train_batch_size` {}", what.next_multiple_of(by.max(1))),
        })
    };
    let (micro, number) = match (global, micro, number, replicas) {
        (Some(global), Some(micro), Some(number), Some(replicas)) => {
            let product = u64::from(micro) * u64::from(number) * replicas;
            if product != global {
                return Err(ImportError::Divides {
                    of: Divided::Batch,
                    instead: Some(("train_batch_size", product)),
                    what: format!(
                        "`train_batch_size` is {global}, but `train_micro_batch_size_per_gpu` {micro} x \
                         `gradient_accumulation_steps` {number} x {replicas} replicas are {product}"
                    ),
                    works: format!("`train_batch_size` {product}"),
                });
            }
            (micro, Some(number))
        }
        (Some(global), Some(micro), None, Some(replicas)) => {
            (micro, whole(global, u64::from(micro) * replicas, rounds)?)
        }
        (Some(global), None, number, Some(replicas)) => {
            let number = number.unwrap_or(1);
            let micro = whole(global, u64::from(number) * replicas, each)?.unwrap_or(1);
            (micro, Some(number))
        }
        (_, Some(micro), number, _) => (micro, number),
        (Some(_), None, _, None) => {
            return Err(ImportError::Unknown {
                what: format!("how many sequences `{each}` is depends on the ranks"),
                works: "`--gpus 64`".to_owned(),
            });
        }
        (None, None, _, _) => {
            return Err(ImportError::Unknown {
                what: format!("`{each}` is missing, and `{all}` too"),
                works: "`--micro-batch-size 1`".to_owned(),
            });
        }
    };
    // All three say how many replicas there are.
    let derived = match (ranks, global, number) {
        (None, Some(global), Some(number)) => {
            whole(global, u64::from(micro) * u64::from(number), "replicas")?
                .and_then(|replicas| u32::try_from(u64::from(replicas) * others).ok())
        }
        _ => None,
    };
    let num_gpus = source.started().ok().and_then(|it| it.num_gpus).or(derived);
    Ok(Batch { num_gpus, micro_batch_size: micro, num_micro_batches: number, global })
}

fn zero_stage(given: &Given) -> Result<ZeroStage, OptionError> {
    let stages = ZeroStage::ALL.map(|stage| (stage.number().to_string(), stage));
    let stages: Vec<(&str, ZeroStage)> =
        stages.iter().map(|(name, stage)| (name.as_str(), *stage)).collect();
    Ok(given.one_of("zero_optimization.stage", &stages)?.unwrap_or(ZeroStage::None))
}

fn is_on_host(given: &Given, name: &str) -> Result<bool, OptionError> {
    Ok(given.one_of(name, &[("none", false), ("cpu", true)])?.unwrap_or(false))
}

fn precision(given: &Given) -> Result<Precision, OptionError> {
    Ok(match (given.is_on("bf16.enabled")?, given.is_on("fp16.enabled")?) {
        (true, _) => Precision::Bf16,
        (_, true) => Precision::Fp16,
        _ => Precision::Fp32,
    })
}

/// What is not named is the script's own, most often AdamW.
fn optimizer(given: &Given) -> Result<Optimizer, OptionError> {
    let momentum = given.text("optimizer.params.momentum")?;
    let has_momentum = momentum.is_some_and(|it| it.parse() != Ok(0.0));
    let descent = if has_momentum { Optimizer::Momentum } else { Optimizer::Sgd };
    let known = [("AdamW", Optimizer::AdamW), ("Adam", Optimizer::AdamW), ("SGD", descent)];
    Ok(given.one_of("optimizer.type", &known)?.unwrap_or_default())
}
