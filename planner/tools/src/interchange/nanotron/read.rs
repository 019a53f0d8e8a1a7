//! nanotron's YAML, read.

use ir::cluster::Precision;
use ir::framework::TensorOverlap;
use ir::layout::{LayoutSpec, ZeroStage};
use ir::plan::Optimizer;
use ir::schedule::ScheduleKind;

use super::super::argument::Argument;
use super::super::imported::{Divided, ImportError, Imported, StatedStages, StatedTraining};
use super::super::options::{Given, Known, OptionError, Others};
use super::super::source::{Form, Source, agreed};
use super::super::target::Target;
use super::super::tree::Tree;
use super::stages::{Sizes, blocks};

/// The keys of nanotron 0.4's dataclasses.
const KNOWN: Known =
    Known { program: "nanotron", table: include_str!("keys.txt"), others: Others::Refused };

/// Keys of the model that are held against the one that is given.
const OF_MODEL: [&str; 6] = [
    "model.model_config.hidden_size",
    "model.model_config.intermediate_size",
    "model.model_config.num_attention_heads",
    "model.model_config.num_key_value_heads",
    "model.model_config.num_hidden_layers",
    "model.model_config.vocab_size",
];

/// Reads the configuration, or the script that names it.
pub(in super::super) fn read(source: &Source<'_>) -> Result<Imported, ImportError> {
    if let Form::Tree(tree) = &source.form {
        return read_tree(source, tree);
    }
    let words = &source.started()?.words;
    let place = words.iter().position(|it| it.text == "--config-file");
    let name = place.and_then(|place| words.get(place + 1)).map(|it| it.text.clone());
    let name = name.ok_or_else(|| ImportError::Unknown {
        what: "nothing names nanotron's configuration".to_owned(),
        works: "`--config-file nanotron.yaml`, or the configuration itself".to_owned(),
    })?;
    read_tree(source, &source.tree(&name)?)
}

fn read_tree(source: &Source<'_>, tree: &Tree) -> Result<Imported, ImportError> {
    let given = KNOWN.of_leaves(&tree.leaves())?;
    let [data, pipeline, tensor] = [
        needed(&given, "parallelism.dp")?,
        needed(&given, "parallelism.pp")?,
        needed(&given, "parallelism.tp")?,
    ];
    let expert: u32 = given.count("parallelism.expert_parallel_size")?.unwrap_or(1);
    let product = u64::from(data) * u64::from(pipeline) * u64::from(tensor);
    let started = source.started().ok().and_then(|it| it.num_gpus).map(u64::from);
    if let Some(ranks) = started.filter(|ranks| *ranks != product) {
        return Err(ImportError::Divides {
            of: Divided::Ranks,
            instead: None,
            what: format!(
                "dp {data} x pp {pipeline} x tp {tensor} are {product} ranks, but {ranks} are started"
            ),
            works: format!("{product} ranks"),
        });
    }
    let modes = [
        ("REDUCE_SCATTER", true),
        ("reduce_scatter", true),
        ("ALL_REDUCE", false),
        ("all_reduce", false),
    ];
    let cuts = given.one_of("parallelism.tp_mode", &modes)?.unwrap_or(false);
    let engines = [("1f1b", ScheduleKind::OneFOneB), ("afab", ScheduleKind::GPipe)];
    // All forward, all backward is its default.
    let engine = given.one_of("parallelism.pp_engine", &engines)?.unwrap_or(ScheduleKind::GPipe);
    let stages_of_zero = [("0", ZeroStage::None), ("1", ZeroStage::OptimizerState)];
    let zero_stage = given.one_of("optimizer.zero_stage", &stages_of_zero)?;
    let dtypes = [("bfloat16", Precision::Bf16), ("float32", Precision::Fp32)];
    let precision = given.one_of("model.dtype", &dtypes)?.unwrap_or(Precision::Bf16);
    let sums = given.is_on("optimizer.accumulate_grad_in_fp32")?;
    let mut framework = Target::Nanotron.framework();
    let beside = given.is_on("parallelism.tp_linear_async_communication")?;
    if cuts && tensor > 1 && !beside {
        framework.tensor_parallel.overlap = TensorOverlap::None;
    }
    let multiple = given.count("model.make_vocab_size_divisible_by")?.unwrap_or(1);
    framework.tensor_parallel.vocabulary_multiple = multiple;
    let in_16 = precision != Precision::Fp32;
    let length = "tokens.sequence_length";
    let each = "tokens.micro_batch_size";
    let stated = source.stated;
    Ok(Imported {
        source: Target::Nanotron,
        framework,
        layout: LayoutSpec {
            tensor_parallel: tensor,
            expert_tensor_parallel: tensor,
            sequence_parallel: cuts && tensor > 1,
            expert_parallel: expert,
            pipeline_parallel: pipeline,
            schedule: if pipeline > 1 { engine } else { ScheduleKind::OneFOneB },
            zero_stage: zero_stage.unwrap_or(ZeroStage::None),
            micro_batch_size: agreed(
                given.count(each)?,
                each,
                stated.micro_batch_size,
                "--micro-batch-size",
            )?
            .ok_or_else(|| missing(each))?,
            ..LayoutSpec::ONE_RANK
        },
        num_gpus: u32::try_from(product).ok(),
        training: StatedTraining {
            sequence_length: agreed(
                given.count(length)?,
                length,
                stated.sequence_length,
                "--seq-len",
            )?,
            global_batch_size: stated.global_batch_size,
            num_micro_batches: Some(
                given.count("tokens.batch_accumulation_per_replica")?.unwrap_or(1),
            ),
            precision,
            optimizer: Optimizer::AdamW,
            fp32_gradients: in_16 && sums,
            // Without sums in fp32 there is no copy of weights either, and moments are as the weights are.
            bf16_moments: in_16 && !sums,
            no_master_weights: in_16 && !sums,
        },
        stages: stages(&given, pipeline)?,
        shard_groups: 1,
        model: model(&given)?,
        multi_token_prediction: stated.multi_token_prediction,
        dropout: stated.dropout,
    })
}

fn missing(name: &str) -> OptionError {
    let works = "nanotron has no default for it".to_owned();
    OptionError::Missing { name: name.to_owned(), works }
}

fn needed(given: &Given, name: &str) -> Result<u32, OptionError> {
    given.count(name)?.ok_or_else(|| missing(name))
}

/// Stages as nanotron cuts them.
fn stages(given: &Given, pipeline: u32) -> Result<StatedStages, OptionError> {
    if pipeline == 1 {
        return Ok(StatedStages::Even);
    }
    let size = |name: &str| {
        let name = format!("model.model_config.{name}");
        given.count::<u64>(&name)?.ok_or_else(|| missing(&name))
    };
    let layers: u32 = needed(given, "model.model_config.num_hidden_layers")?;
    let sizes = Sizes {
        layers,
        hidden_size: size("hidden_size")?,
        intermediate_size: size("intermediate_size")?,
        num_attention_heads: size("num_attention_heads")?,
        vocab_size: size("vocab_size")?,
    };
    let blocks = blocks(&sizes, pipeline).ok_or_else(|| OptionError::Value {
        name: "parallelism.pp".to_owned(),
        value: pipeline.to_string(),
        works: format!(
            "nanotron's rule leaves a stage of {layers} layers empty; fewer are expected"
        ),
    })?;
    Ok(StatedStages::Blocks(blocks))
}

fn model(given: &Given) -> Result<Vec<Argument>, OptionError> {
    let mut all = Vec::new();
    for name in OF_MODEL {
        if let Some(values) = given.values(name)? {
            all.push(Argument::values(name, values, ""));
        }
    }
    Ok(all)
}
