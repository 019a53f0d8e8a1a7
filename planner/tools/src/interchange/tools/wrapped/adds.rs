//! Settings that follow from several keys of a tool.

use std::collections::BTreeSet;

use super::wrapper::{Setting, add, is_on, number, value};
use crate::interchange::file::basename;
use crate::interchange::shell::Word;
use crate::interchange::source::Source;

/// axolotl shards if a degree or FSDP's keys say so, even without the Trainer's `fsdp`; with DeepSpeed, a degree alone
/// does not shard. axolotl's own DeepSpeed configurations are recognised by name.
pub(super) fn shards(all: &mut Vec<Setting>, source: &Source<'_>) {
    let degrees =
        ["dp_shard_size", "tensor_parallel_size", "context_parallel_size", "context_parallel.size"];
    let is_parted = degrees.iter().any(|key| number(all, key).is_some_and(|it| it > 1));
    // Its section for context parallelism (integrations/ringmaster/args.py).
    if let Some(size) = number(all, "context_parallel.size") {
        let is_ulysses = value(all, "context_parallel.backend") == Some("ulysses");
        add(all, if is_ulysses { "ulysses_ranks" } else { "ring_ranks" }, &size);
    }
    let has_keys = all.iter().any(|it| it.0.starts_with("fsdp_config.") || it.0 == "fsdp_version");
    let is_alone = value(all, "deepspeed").is_none();
    if (is_parted && is_alone || has_keys) && value(all, "fsdp").is_none() {
        add(all, "fsdp", &"full_shard");
    }
    // Its `bf16` is `auto` unless given (utils/schemas/config.py).
    let has_format = ["bf16", "bfloat16"].iter().any(|key| value(all, key).is_some());
    if !has_format && !is_on(all, "fp16") && !is_on(all, "float16") {
        add(all, "bf16", &true);
    }
    let is_offloaded =
        value(all, "gradient_checkpointing").is_some_and(|it| it.starts_with("offload"));
    if is_offloaded && value(all, "activation_offloading").is_none() {
        add(all, "activation_offloading", &true);
    }
    own_stage(all, source, &STAGES_OF_AXOLOTL);
}

/// A DeepSpeed configuration that a tool ships is recognised by the end of its path, unless a file of this name is
/// given.
pub(super) fn own_stage(all: &mut Vec<Setting>, source: &Source<'_>, known: &[(&str, &str)]) {
    let path = value(all, "deepspeed").filter(|it| !source.files.contains_key(basename(it)));
    let stage = path.and_then(|path| {
        let is_it = |name: &str| {
            path.strip_suffix(name).is_some_and(|it| it.is_empty() || it.ends_with('/'))
        };
        known.iter().find(|it| is_it(it.0)).map(|it| it.1)
    });
    if let Some(stage) = stage {
        all.retain(|it| it.0 != "deepspeed");
        add(all, "deepspeed", &stage);
    }
}

/// axolotl's own DeepSpeed configurations (its folder `deepspeed_configs`), with what they shard and offload to the
/// host.
pub(super) const STAGES_OF_AXOLOTL: [(&str, &str); 6] = [
    ("deepspeed_configs/zero1.json", "zero1"),
    ("deepspeed_configs/zero2.json", "zero2_offload"),
    ("deepspeed_configs/zero3.json", "zero3"),
    ("deepspeed_configs/zero3_bf16.json", "zero3"),
    ("deepspeed_configs/zero3_bf16_cpuoffload_all.json", "zero3_offload"),
    ("deepspeed_configs/zero3_bf16_cpuoffload_params.json", "zero3_offload_params"),
];

/// LLaMA-Factory's own DeepSpeed configurations (its folder `examples/deepspeed`).
pub(super) const STAGES_OF_LLAMA_FACTORY: [(&str, &str); 5] = [
    ("ds_z0_config.json", "zero0"),
    ("ds_z2_config.json", "zero2"),
    ("ds_z2_offload_config.json", "zero2_offload"),
    ("ds_z3_config.json", "zero3"),
    ("ds_z3_offload_config.json", "zero3_offload"),
];

/// DeepSpeed-Chat's ZeRO stage, offload and number format, with its defaults (DeepSpeedExamples,
/// applications/DeepSpeed-Chat/dschat/utils/ds_utils.py).
pub(super) fn zero_stage(all: &mut Vec<Setting>) {
    let offloads = all.iter().any(|it| it.0 == "offload");
    let stage = all.iter().find(|it| it.0 == "zero_stage").and_then(|it| it.1.first());
    let stage = stage.map_or_else(|| Word::known("0"), Clone::clone);
    let text = format!("zero{}{}", stage.text, if offloads { "_offload" } else { "" });
    let is_half = value(all, "dtype") != Some("bf16");
    all.retain(|it| it.0 != "zero_stage");
    all.push(("zero_stage".to_owned(), vec![Word { text, ..stage }]));
    add(all, if is_half { "half" } else { "brain" }, &true);
}

/// torchtune's recipes shard like FSDP, in the number format of the weights; LoRA is in the model's arguments.
pub(super) fn recipe(all: &mut Vec<Setting>) {
    if value(all, "loss._component_").is_some_and(|it| it.contains(".rlhf.")) {
        add(all, "reference_model", &true);
    }
    if value(all, "dtype") == Some("bf16") {
        add(all, "pure", &1);
    }
    if value(all, "model.lora_rank").is_none() {
        return;
    }
    add(all, "use_peft", &true);
    // QLoRA's builders are LoRA's with `quantize_base=True` (torchtune/models/*/_model_builders.py).
    let builder = value(all, "model._component_").and_then(|it| it.rsplit('.').next());
    let is_quantized = builder.is_some_and(|it| it.starts_with("qlora_"));
    if is_quantized && value(all, "model.quantize_base").is_none() {
        add(all, "model.quantize_base", &true);
    }
    let of_mlp = if is_on(all, "model.apply_lora_to_mlp") {
        &["gate_proj", "up_proj", "down_proj"][..]
    } else {
        &[]
    };
    let of_attention = all.iter().find(|it| it.0 == "model.lora_attn_modules");
    let of_attention = of_attention.map_or(&[][..], |it| it.1.as_slice());
    let plain =
        |word: &Word| Word::known(if word.text == "output_proj" { "o_proj" } else { &word.text });
    let targets = of_attention.iter().map(plain).chain(of_mlp.iter().map(|it| Word::known(it)));
    let targets = targets.collect();
    all.push(("targets".to_owned(), targets));
}

/// If Primus's settings have a layout of stages, the number of virtual stages follows from the layout.
pub(super) fn layout_alone(all: &mut Vec<Setting>) {
    if value(all, "overrides.pipeline_model_parallel_layout").is_some() {
        all.retain(|it| it.0 != "overrides.virtual_pipeline_model_parallel_size");
    }
}

/// If the number of steps per rollout is given, slime's batch is the answers to one batch of prompts, divided by it
/// (slime/utils/arguments.py).
pub(super) fn steps_of_rollout(all: &mut Vec<Setting>) {
    const PARTS: [&str; 3] =
        ["num_steps_per_rollout", "rollout_batch_size", "n_samples_per_prompt"];
    let parts = || all.iter().filter(|it| PARTS.contains(&it.0.as_str())).flat_map(|it| &it.1);
    let unknown: BTreeSet<String> = parts().flat_map(|it| it.unknown.iter().cloned()).collect();
    if all.iter().any(|it| it.0 == PARTS[0]) && !unknown.is_empty() {
        all.retain(|it| it.0 != "global_batch_size");
        all.push(("global_batch_size".to_owned(), vec![Word { text: String::new(), unknown }]));
        return;
    }
    let steps = number(all, "num_steps_per_rollout").filter(|it| *it > 0);
    if let (Some(steps), Some(prompts)) = (steps, number(all, "rollout_batch_size")) {
        let answers = number(all, "n_samples_per_prompt").unwrap_or(1);
        all.retain(|it| it.0 != "global_batch_size");
        add(all, "global_batch_size", &(prompts.saturating_mul(answers) / steps));
    }
}
