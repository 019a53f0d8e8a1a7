//! Sharding in accelerate's configuration and the Trainer's arguments.

use cost_models::frameworks;
use ir::cluster::Precision;
use ir::framework::Framework;
use ir::layout::ZeroStage;

use super::table::TRAINER;
use crate::interchange::error::ImportError;
use crate::interchange::file::has_ending;
use crate::interchange::imported::Imported;
use crate::interchange::options::{OptionError, ParsedOptions};
use crate::interchange::source::Source;
use crate::interchange::tree::Tree;

/// Values of `deepspeed` and `fsdp` that switch them off.
pub(super) const OFF: [&str; 6] = ["", "false", "False", "none", "None", "null"];

/// Adds the Trainer's own FSDP arguments to `given`, as keys of accelerate's configuration.
pub(super) fn with_fsdp(
    source: &Source<'_>,
    given: ParsedOptions,
    arguments: &ParsedOptions,
) -> Result<ParsedOptions, ImportError> {
    let Some(words) = arguments.values("fsdp")? else { return Ok(given) };
    let words: Vec<&str> = words.iter().flat_map(|it| it.split_whitespace()).collect();
    if words.is_empty() || OFF.contains(&words[0]) {
        return Ok(given);
    }
    // ms-swift's file has both arguments.
    let both = match words[0] {
        name if has_ending(name, "json") => {
            TRAINER.vocabulary.of_leaves(&source.tree(name)?.leaves())?
        }
        _ => ParsedOptions::default(),
    };
    let words: Vec<&str> = match both.values("fsdp")? {
        Some(named) => named.into_iter().flat_map(str::split_whitespace).collect(),
        None => words,
    };
    let own = match arguments.path("fsdp_config")? {
        _ if both.has("fsdp") => both.clone(),
        Some(name) => {
            let tree = Tree::Keys(vec![("fsdp_config".to_owned(), source.tree(name)?)]);
            TRAINER.vocabulary.of_leaves(&tree.leaves())?
        }
        None => arguments.clone(),
    };
    let mut given = given.with("distributed_type", "FSDP");
    let version = own.text("fsdp_config.version")?.or(own.text("fsdp_config.fsdp_version")?);
    let strategies = ["full_shard", "shard_grad_op", "hybrid_shard", "no_shard"];
    let strategy = strategies.into_iter().find(|name| words.contains(name)).map(str::to_uppercase);
    // The version is 2 unless stated. Version 2 has two of these strategies, as values of `fsdp_reshard_after_forward`.
    let version = version.unwrap_or("2").to_owned();
    given = given.with("fsdp_config.fsdp_version", &version);
    if let Some(name) = strategy {
        given = given.with("fsdp_config.fsdp_sharding_strategy", &name);
        let reshards = if name == "SHARD_GRAD_OP" { "false" } else { "true" };
        given = given.with("fsdp_config.fsdp_reshard_after_forward", reshards);
    }
    // With a hybrid strategy, each node that the launcher starts shards by itself.
    let each = source.launched().ok().and_then(|it| it.ranks_per_node);
    if let (Some(ranks), Some(each @ 1..)) = (source.num_gpus(), each)
        && !given.has("num_machines")
    {
        given = given.with("num_machines", &(ranks / each).max(1).to_string());
    }
    let switch = |name: &str| -> Result<Option<bool>, OptionError> {
        let plain = own.flag(&format!("fsdp_config.{name}"))?;
        Ok(plain.or(own.flag(&format!("fsdp_config.fsdp_{name}"))?))
    };
    if words.contains(&"offload") || switch("offload_params")?.unwrap_or(false) {
        given = given.with("fsdp_config.fsdp_offload_params", "true");
    }
    for name in ["reshard_after_forward", "activation_checkpointing"] {
        if let Some(is_on) = switch(name)? {
            given = given.with(&format!("fsdp_config.fsdp_{name}"), &is_on.to_string());
        }
    }
    Ok(given)
}

/// Kind of data parallelism in accelerate's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataParallelKind {
    Alone,
    Replicas,
    Sharded,
    DeepSpeed,
}

pub(super) fn kind(given: &ParsedOptions) -> Result<DataParallelKind, OptionError> {
    if given.is_on("use_megatron_lm")? {
        let works = "its degrees are not read; a script of Megatron-LM's own is";
        return Err(OptionError::value("use_megatron_lm", "true", works));
    }
    if given.is_on("use_fsdp")? {
        return Ok(DataParallelKind::Sharded);
    }
    if given.is_on("use_deepspeed")? {
        return Ok(DataParallelKind::DeepSpeed);
    }
    let known = [
        ("NO", DataParallelKind::Alone),
        // Without quotes, YAML reads `NO` as false.
        ("false", DataParallelKind::Alone),
        ("MULTI_GPU", DataParallelKind::Replicas),
        ("FSDP", DataParallelKind::Sharded),
        ("DEEPSPEED", DataParallelKind::DeepSpeed),
    ];
    Ok(given.one_of("distributed_type", &known)?.unwrap_or(DataParallelKind::Replicas))
}

/// ZeRO stage; with a hybrid strategy, also the number of groups of replicas that each shard the states.
pub(super) fn sharded(
    given: &ParsedOptions,
    is_sharded: bool,
) -> Result<(ZeroStage, Option<u32>), ImportError> {
    if !is_sharded {
        return Ok((ZeroStage::None, None));
    }
    let reshards = given.flag("fsdp_config.fsdp_reshard_after_forward");
    if is_first(given)? {
        let known = [
            ("FULL_SHARD", ZeroStage::Parameters),
            ("SHARD_GRAD_OP", ZeroStage::Gradients),
            ("NO_SHARD", ZeroStage::None),
            ("HYBRID_SHARD", ZeroStage::Parameters),
            ("HYBRID_SHARD_ZERO2", ZeroStage::Gradients),
            // PyTorch's numbers for the strategies, in files of older versions.
            ("1", ZeroStage::Parameters),
            ("2", ZeroStage::Gradients),
            ("3", ZeroStage::None),
            ("4", ZeroStage::Parameters),
            ("5", ZeroStage::Gradients),
        ];
        let name = "fsdp_config.fsdp_sharding_strategy";
        // FSDP 1 may have a strategy in the key `fsdp_reshard_after_forward` too; it is not used here.
        let stage = given.one_of(name, &known)?.unwrap_or(ZeroStage::Parameters);
        let is_hybrid = given.text(name)?.is_some_and(|it| it.starts_with(['H', '4', '5']));
        let nodes: Option<u32> = given.count("num_machines")?;
        if is_hybrid && nodes.is_none() {
            return Err(ImportError::unknown(
                "how many nodes there are, each of which shards by itself, is not said",
                "`num_machines` in the configuration",
            ));
        }
        return Ok((stage, nodes.filter(|_| is_hybrid)));
    }
    let stage =
        if reshards?.unwrap_or(true) { ZeroStage::Parameters } else { ZeroStage::Gradients };
    Ok((stage, None))
}

/// Returns whether the configuration is for FSDP version 1, accelerate's default.
pub(super) fn is_first(given: &ParsedOptions) -> Result<bool, OptionError> {
    let versions = [("1", true), ("2", false)];
    Ok(given.one_of("fsdp_config.fsdp_version", &versions)?.unwrap_or(true))
}

/// Arguments of scripts for the number format in which the model is loaded.
const LOADED: [&str; 2] = ["torch_dtype", "dtype"];

/// DDP trains weights in the number format in which they are loaded, so that gradients and moments have it too; what
/// shards weights copies them to 32 bits (`prepare_model` in accelerate's `accelerator.py`, DeepSpeed's optimizers).
pub(super) fn loaded(arguments: &ParsedOptions, imported: &mut Imported) {
    let formats = ["bfloat16", "bf16", "torch.bfloat16"];
    let format = LOADED.into_iter().find_map(|it| arguments.text_if_known(it));
    let is_sharded = imported.layout.zero_stage != ZeroStage::None
        || ["deepspeed", "fsdp"].into_iter().any(|it| arguments.has(it));
    let is_other = imported.training.precision == Precision::Fp16 || imported.adapters.is_some();
    if format.is_some_and(|it| formats.contains(&it)) && !is_sharded && !is_other {
        imported.training.precision = Precision::Bf16;
        imported.keep_16_bits();
        imported.unread.retain(|it| !LOADED.contains(&it.option.as_str()));
    }
}

/// Framework preset of the FSDP version in use.
pub(super) fn habits(source: &Source<'_>, given: &ParsedOptions) -> Result<Framework, OptionError> {
    let is_first = given.has_within("fsdp_config.") && is_first(given)?;
    let older = frameworks::preset("fsdp").filter(|_| is_first);
    Ok(older.unwrap_or_else(|| source.target.framework()))
}
