//! Megatron-Bridge: Python that makes a `ConfigContainer` for the model in a `config.json`.
//!
//! Its settings are Megatron-LM's arguments under other names, so they are derived from those.

mod read;
mod table;

use std::fmt::Write as _;

use ir::cluster::Precision;
use ir::graph::CudaGraphs;
use ir::layout::OffloadedActivations;

use super::megatron;
use crate::interchange::argument::{Argument, Section};
use crate::interchange::error::Lack;
use crate::interchange::file::{File, basename, filled};
use crate::interchange::launch::Program;
use crate::interchange::target::Target;
use crate::interchange::tool::Tool;
use crate::interchange::view::ExportView;
pub(crate) use read::setting;
use table::rows;
pub(crate) use table::settings;

pub(super) static TOOL: Tool = Tool {
    tables: &[&megatron::TABLE],
    read: Some(read::read),
    starts: |words, place, files| {
        let text = files.get(basename(&words[place].text));
        (words[place].is_python("") && text.is_some_and(|it| is_of_bridge(it))).then_some(place)
    },
    lacks,
    lacks_of_model,
    model_arguments,
    is_python: true,
    has_fp32_gradients: true,
    ..Tool::new(TARGET, |view, _| program(view))
};

const TARGET: Target = Target::new(
    "megatron-bridge",
    "Megatron-Bridge 0.6.2 with megatron-core 0.19.2",
    "megatron-core",
);

/// Returns whether a text is Python for Megatron-Bridge.
pub(super) fn is_of_bridge(text: &str) -> bool {
    text.contains("import AutoBridge") || text.contains("ConfigContainer")
}

/// Text-only architectures that `AutoBridge` of 0.6.2 supports.
const ARCHITECTURES: [&str; 20] = [
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
    "Exaone4ForCausalLM",
    "FalconH1ForCausalLM",
    "GemmaForCausalLM",
    "Gemma2ForCausalLM",
    "Gemma3ForCausalLM",
    "Glm4MoeForCausalLM",
    "GptOssForCausalLM",
    "KimiK2ForCausalLM",
    "LlamaForCausalLM",
    "MiMoForCausalLM",
    "MiniMaxM2ForCausalLM",
    "MistralForCausalLM",
    "NemotronForCausalLM",
    "OlmoeForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
    "Qwen3NextForCausalLM",
];

/// Parts of a plan, apart from its model, that Megatron-Bridge cannot express; they include those of Megatron-LM.
fn lacks(view: &ExportView<'_>) -> Vec<Lack> {
    let mut lacks = megatron::lacks(view);
    let unplaced = megatron::sections(view)
        .into_iter()
        .filter(|section| section.title != MODEL)
        .flat_map(|section| section.arguments)
        .filter(|argument| rows().all(|row| row.flag != argument.name));
    lacks.extend(unplaced.map(|argument| {
        Lack::without_remedy(format!("`{}`, which no setting of it is", argument.words()))
    }));
    lacks
}

/// Title of the section of Megatron's arguments that `config.json` replaces here.
const MODEL: &str = "model";

/// Parts of a plan's model that Megatron-Bridge cannot make from a `config.json`.
fn lacks_of_model(view: &ExportView<'_>) -> Vec<Lack> {
    let model = &view.plan.model;
    let architecture = model.description["architectures"][0].as_str().unwrap_or_default();
    let mut lacks = Vec::new();
    if !ARCHITECTURES.contains(&architecture) {
        let what = match architecture {
            "" => "a model that is no Hugging Face configuration".to_owned(),
            known => format!("`{known}`, which its `AutoBridge` does not have"),
        };
        lacks.push(Lack::without_remedy(what));
    }
    if model.adapters.is_some() {
        lacks.push(Lack::without_remedy("adapters (LoRA) as the planner has them"));
    }
    lacks
}

/// Megatron's model arguments that are settings of Megatron-Bridge too, in addition to `config.json`.
fn model_arguments(view: &ExportView<'_>) -> Vec<Argument> {
    let mut all = megatron::model_arguments(view);
    all.retain(|argument| rows().any(|row| row.flag == argument.name));
    all
}

fn program(view: &ExportView<'_>) -> Program {
    let why = "the settings, with their reasons, in planned.py beside this script; the model in config.json";
    Program {
        name: "megatron-bridge",
        command: vec!["planned.py".to_owned()],
        environment: megatron::environment(view),
        sections: vec![Section::new(why, Vec::new())],
        extra_files: vec![
            File::text("planned.py", python(view)),
            File::json("config.json", &view.plan.model.description),
        ],
        ..Program::default()
    }
}

/// Column where comments with reasons start, unless the setting is longer.
const REASONS: usize = 64;

fn python(view: &ExportView<'_>) -> String {
    let mut text = String::new();
    let mut line = |path: &str, value: &str, why: &str| {
        let setting = format!("    config.{path} = {value}");
        let _ = writeln!(text, "{setting:REASONS$}  # {why}");
    };
    for section in megatron::sections(view) {
        for argument in &section.arguments {
            let Some(row) = rows().find(|row| row.flag == argument.name) else { continue };
            let value = row.literal(Some(&argument.values));
            line(row.path, &value, &argument.why);
            if let Some(twin) = row.twin {
                line(twin, &value, "the same once more");
            }
        }
    }
    more(view, &mut line);
    filled(
        include_str!("planned.py.template"),
        &[("heading", &view.heading("Megatron-Bridge 0.6.2")), ("settings", &text)],
    )
}

/// Settings that Megatron-LM derives from its options, or whose defaults differ in Megatron-Bridge.
fn more(view: &ExportView<'_>, line: &mut impl FnMut(&str, &str, &str)) {
    let (layout, training) = (&view.layout, &view.training);
    let given: Vec<String> = megatron::sections(view)
        .into_iter()
        .flat_map(|section| section.arguments)
        .map(|argument| argument.name)
        .collect();
    let has = |flag: &str| given.iter().any(|name| name == flag);
    if !has("--cross-entropy-loss-fusion") {
        let why = "logits and their gradient are apart, as predicted";
        line("model.cross_entropy_loss_fusion", "False", why);
    }
    if !has("--mtp-num-layers") {
        // `config.json` may have modules for multi-token prediction.
        let why = "no modules for multi-token prediction, as in the plan";
        line("model.mtp_num_layers", "None", why);
    }
    if !has("--accumulate-allreduce-grads-in-fp32") && !has("--grad-reduce-in-bf16") {
        line("mixed_precision.grad_reduce_in_fp32", "False", "gradients are as activations are");
    }
    if training.precision != Precision::Fp32 {
        let dtype =
            if training.precision == Precision::Fp16 { "torch.float16" } else { "torch.bfloat16" };
        line("mixed_precision.params_dtype", dtype, "of weights, beside their copy in 32 bits");
        line("mixed_precision.pipeline_dtype", dtype, "of what stages send each other");
    }
    if matches!(layout.offload.activations, OffloadedActivations::Blocks(_)) {
        line("model.cpu_offloading", "True", "of so many layers");
    }
    if layout.switches.cuda_graphs != CudaGraphs::None {
        line("model.use_te_rng_tracker", "True", "graphs take its random numbers");
        line("rng.te_rng_tracker", "True", "the same once more");
    }
}
