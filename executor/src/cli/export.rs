//! `executor export`.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use command_line::destination::{check_output, file_target, write_output};
use command_line::terminal::tell;
use executor_kernels::array::Element;
use executor_runtime::base::Base;
use executor_runtime::checkpoint::{
    Form, ModelParameter, Naming, ParameterId, PieceKind, Shard, State, TrainingState, Weights,
    WeightsWriter,
};
use executor_runtime::merge::merged;
use executor_runtime::program::Program;
use executor_runtime::settings::Settings;
use ir::graph::Learning;

use super::args::ExportArgs;
use super::files;

pub(crate) fn export(args: &ExportArgs) -> anyhow::Result<()> {
    let plan = files::read(&args.plan)?;
    // Export runs no steps, so the usual settings suffice.
    let usual = Settings::usual(plan.training.optimizer, Element::F32);
    let settings = Settings { max_gradient_norm: None, ..usual };
    let named = || format!("`{}`", args.plan.display());
    let program = Program::from_plan(&plan, settings).with_context(named)?;
    let state = open(args)?;
    state.check_model(&program.identity(), &program.trained_parameters())?;
    state.verify()?;
    check_output(&args.output, &[&args.plan])?;
    let target = file_target(&args.output)?;
    if args.adapters {
        write_adapters(args, &target, &program, &state)?;
    } else {
        write_model(args, &target, &program, &state)?;
    }
    let step = state.training().step;
    tell(&format!("wrote `{}`, of step {step}", args.output.display()));
    Ok(())
}

/// Writes all of the model's own parameters, with adapters merged into them.
fn write_model(
    args: &ExportArgs,
    path: &Path,
    program: &Program,
    state: &State,
) -> anyhow::Result<()> {
    let parameters = program.parameters();
    let naming = program.naming();
    let base = base(args, program, state, &parameters)?;
    let read = |id: &ParameterId| {
        let shape = state.shape(id).expect("a checkpoint of the model has its trained parameters");
        state.read(id, PieceKind::Weight, &Shard::whole(shape))
    };
    let stored = |parameter: &ModelParameter| naming.stored(parameter);
    let mut writer = WeightsWriter::create(path, stored, &parameters, Element::F32)?;
    let seed = state.training().seed;
    for parameter in program.whole_parameters() {
        let values = match (parameter.learning, &base) {
            (Learning::Adapter, _) => continue,
            (Learning::Trained, _) => read(&parameter.id)?,
            (Learning::Frozen(_), base) => {
                let before = base.values(&parameter, seed)?;
                merged(program, &parameter, before, read)?
            }
        };
        writer.write(&parameter.id, &values)?;
    }
    Ok(writer.finish()?)
}

/// Source of frozen parameters, which must be the ones with which the adapters were trained.
fn base(
    args: &ExportArgs,
    program: &Program,
    state: &State,
    parameters: &[ModelParameter],
) -> anyhow::Result<Base> {
    let TrainingState { seed, base: trained_base, .. } = state.training();
    let base = match &args.weights {
        Some(path) => Base::Weights(Weights::open(path, &program.naming(), parameters)?),
        None => Base::Random { seed: *seed },
    };
    let given = base.identity(program)?;
    if given != *trained_base {
        let named = |base: &Option<String>| base.clone().unwrap_or_else(|| "none".to_owned());
        bail!(
            "the adapters were trained beside {}, not {}\nhint: give `--weights` as in the run",
            named(trained_base),
            named(&given)
        );
    }
    Ok(base)
}

/// Writes only the adapters, as peft reads them: the weights, and `adapter_config.json` in the same folder.
fn write_adapters(
    args: &ExportArgs,
    path: &Path,
    program: &Program,
    state: &State,
) -> anyhow::Result<()> {
    let parameters = program.adapter_parameters();
    let Some(adapters) = &program.adapters else {
        bail!("`--adapters`: the plan has none\nhint: leave it out to write the model");
    };
    let naming = program.naming();
    let stored = |parameter: &ModelParameter| naming.stored_adapter(parameter);
    let mut modules = BTreeSet::new();
    for parameter in &parameters {
        let Some(stored) = stored(parameter) else {
            bail!(
                "peft has no adapter of its own for `{}` of `{}`\nhint: leave `--adapters` out to merge it",
                parameter.id,
                program.model_name
            );
        };
        modules.extend(stored.tensors.iter().map(|tensor| target(&naming, tensor)));
    }
    check_experts(&parameters)?;
    let mut writer = WeightsWriter::create(path, stored, &parameters, Element::F32)?;
    for parameter in &parameters {
        let whole = Shard::whole(&parameter.shape);
        let values = state.read(&parameter.id, PieceKind::Weight, &whole)?;
        writer.write(&parameter.id, &values)?;
    }
    writer.finish()?;
    let config = serde_json::json!({
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": adapters.rank,
        "lora_alpha": adapters.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": naming.has_conv1d(),
        "target_modules": modules,
        "base_model_name_or_path": args.weights,
        "inference_mode": true,
    });
    let config_path = args.output.with_file_name("adapter_config.json");
    write_output(&config_path, serde_json::to_string_pretty(&config)?.as_bytes())
}

/// peft's name of the layer that an adapter's tensor belongs to: the end of the layer's name.
fn target(naming: &Naming, tensor: &str) -> String {
    // GPT-2's layers each have two modules named `c_proj`.
    let count = if naming.has_conv1d() { 2 } else { 1 };
    // `lora_A` and `weight` come last.
    let mut parts: Vec<&str> = tensor.rsplit('.').skip(2).take(count).collect();
    parts.reverse();
    parts.join(".")
}

/// transformers stores the three matrices of experts in two tensors; peft 0.21 refuses adapters of half of a tensor,
/// and loads adapters of only the first tensor without using them.
fn check_experts(parameters: &[ModelParameter]) -> anyhow::Result<()> {
    let experts = parameters.iter().filter(|it| matches!(it.form, Form::Experts { .. }));
    let adapted: BTreeSet<&str> = experts.filter_map(|it| it.id.op.rsplit('.').nth(1)).collect();
    let opens = adapted.is_superset(&BTreeSet::from(["gate", "up", "down"]))
        || adapted.is_subset(&BTreeSet::from(["down"]));
    ensure!(
        opens,
        "peft does not read adapters of experts' {} alone\nhint: leave `--adapters` out to merge them, or train \
         those of `gate_proj`, `up_proj` and `down_proj`",
        Vec::from_iter(adapted).join(" and ")
    );
    Ok(())
}

/// The checkpoint: the folder itself, or the newest checkpoint in it.
fn open(args: &ExportArgs) -> anyhow::Result<State> {
    let path = &args.checkpoint;
    ensure!(path.is_dir(), "`{}` is no checkpoint, nor a folder of any", path.display());
    if path.join("manifest.json").exists() {
        return Ok(State::open(path)?);
    }
    let warn = |skipped: &_| tell(&format!("warning: {skipped}"));
    match files::newest_checkpoint(path, warn)? {
        Some((_, state)) => Ok(state),
        None => bail!(
            "`{}` has no checkpoint\nhint: `executor run PLAN --checkpoint {0}` keeps some there",
            path.display()
        ),
    }
}
