//! Recompute and offload of activations in Megatron's options.

use ir::graph::{
    LayerModule, OffloadModule, OffloadModules, Recompute, RecomputeModule, RecomputeModules,
};
use ir::layout::OffloadedActivations;

use crate::interchange::options::{OptionError, ParsedOptions};
use crate::interchange::run::Run;
use crate::interchange::table::Values;

/// Values of a recompute option, or none if it is not written.
pub(super) fn write(option: &str, run: &Run<'_>) -> Option<Values> {
    let [granularity, method, num_layers] = match run.layout.recompute {
        Recompute::None | Recompute::Selective => return None,
        Recompute::Full => ["full", "uniform", "1"].map(str::to_owned),
        Recompute::FirstLayers(count) => ["full".into(), "block".into(), count.to_string()],
        Recompute::Modules(modules) => {
            let name = |module: RecomputeModule| {
                let is_shared = module == RecomputeModule::SharedExperts;
                module.megatron_name().or(is_shared.then_some(module.name()))
            };
            return match option {
                "--recompute-granularity" => Some(vec!["selective".to_owned()]),
                "--recompute-modules" => {
                    Some(modules.iter().filter_map(name).map(str::to_owned).collect())
                }
                _ => None,
            };
        }
    };
    match option {
        "--recompute-granularity" => Some(vec![granularity]),
        "--recompute-method" => Some(vec![method]),
        "--recompute-num-layers" => Some(vec![num_layers]),
        _ => None,
    }
}

/// Recompute that the options together select.
pub(super) fn read(given: &ParsedOptions) -> Result<Recompute, OptionError> {
    let attention = RecomputeModules::new([RecomputeModule::Attention]);
    let granularities = [("full", true), ("selective", false)];
    let is_full = given.one_of("--recompute-granularity", &granularities)?;
    let is_full = is_full.or(given.has("--recompute-activations").then_some(false));
    match is_full {
        None => of_old_versions(given),
        Some(true) => {
            let methods = [("uniform", false), ("block", true)];
            let is_block = given.one_of("--recompute-method", &methods)?;
            let number = "--recompute-num-layers";
            let layers = match is_block {
                Some(true) => given.count_unless_0(number)?,
                _ => given.count(number)?,
            };
            match (is_block, layers) {
                (Some(true), Some(layers)) => Ok(Recompute::FirstLayers(layers)),
                (Some(true), None) if given.has(number) => Ok(Recompute::None),
                (Some(_), _) => Ok(Recompute::Full),
                (None, _) => Err(OptionError::missing(
                    "--recompute-method",
                    "full recompute takes `uniform` or `block`",
                )),
            }
        }
        Some(false) => {
            let Some(names) = names(given, "--recompute-modules")? else {
                return Ok(attention.map_or(Recompute::None, Recompute::Modules));
            };
            let module = |name: &&str| {
                let of = |it: &RecomputeModule| it.megatron_name().unwrap_or(it.name()) == *name;
                let known = RecomputeModule::ALL
                    .into_iter()
                    .filter(|it| *it != RecomputeModule::Activations);
                known.into_iter().find(of).ok_or_else(|| {
                    let works = "core_attn, moe_act, layernorm, mla_up_proj, mlp, moe and shared_experts are known";
                    OptionError::value("--recompute-modules", *name, works)
                })
            };
            let modules: Vec<RecomputeModule> =
                names.iter().map(module).collect::<Result<_, _>>()?;
            Ok(RecomputeModules::new(modules).map_or(Recompute::None, Recompute::Modules))
        }
    }
}

/// Recompute by the options that Megatron-LM had before `--recompute-granularity`: a switch for every layer, and later a
/// method, of which `block` takes one layer of each stage unless a number is given.
///
/// # Source
///
/// `_add_training_args` and `parse_args` in `megatron/arguments.py` of Megatron-LM 2.0 to 2.6.
fn of_old_versions(given: &ParsedOptions) -> Result<Recompute, OptionError> {
    let methods = [("uniform", false), ("block", true)];
    let is_block = given.one_of("--activations-checkpoint-method", &methods)?;
    if is_block == Some(true) {
        let layers = given.count("--activations-checkpoint-num-layers")?;
        return Ok(Recompute::FirstLayers(layers.unwrap_or(1)));
    }
    let is_full = is_block.is_some() || given.has("--checkpoint-activations");
    Ok(if is_full { Recompute::Full } else { Recompute::None })
}

/// Values of an option of offloaded modules, or none if it is not written.
pub(super) fn write_offloaded(option: &str, run: &Run<'_>) -> Option<Values> {
    let modules = run.layout.offload.activations.modules()?;
    let names = || modules.iter().filter_map(OffloadModule::megatron_name).map(str::to_owned);
    Some(if option == "--offload-modules" { names().collect() } else { Vec::new() })
}

/// Activations whose modules the options name.
pub(super) fn read_offloaded(given: &ParsedOptions) -> Result<OffloadedActivations, OptionError> {
    let option = "--offload-modules";
    let names = names(given, option)?.unwrap_or_default();
    if names.is_empty() {
        return Err(OptionError::missing(
            option,
            "fine-grained offload takes the modules, such as core_attn and attn_proj",
        ));
    }
    // The module of the whole fused product contains both parts.
    let parts = names.iter().flat_map(|name| match *name {
        "fused_group_mlp" => vec!["expert_fc1", "moe_act"],
        name => vec![name],
    });
    let modules = OffloadModules::named(parts).map_err(|name| {
        let known = OffloadModules::known();
        OptionError::value(
            option,
            name,
            format!("known, with Megatron's names in brackets: {known}"),
        )
    })?;
    Ok(OffloadedActivations::Modules(modules))
}

/// Values of an option that takes several. Hydra passes them as one list with brackets and commas.
fn names<'a>(
    given: &'a ParsedOptions,
    option: &'static str,
) -> Result<Option<Vec<&'a str>>, OptionError> {
    let Some(values) = given.values(option)? else { return Ok(None) };
    let parts = values.iter().flat_map(|it| it.split(','));
    let names = parts.map(|it| it.trim_matches(|c: char| "[]'\" ".contains(c)));
    Ok(Some(names.filter(|it| !it.is_empty()).collect()))
}
