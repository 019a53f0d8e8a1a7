//! Hugging Face accelerate's YAML, and the Trainer's arguments beside it.

mod read;

use std::fmt::Write as _;

use ir::cluster::Precision;
use ir::framework::Fusion;
use ir::graph::Recompute;
use ir::layout::ZeroStage;
use ir::plan::Optimizer;
use ir::text::printable_json;
use serde_json::json;

use super::argument::Section;
use super::error::Lack;
use super::file::File;
use super::launch::{Program, Starter};
use super::setting::Setting;
/// Read what is in a configuration, in arguments of the Trainer, or in a script.
pub(super) use read::{read, read_trainer};

/// What accelerate cannot be told of a plan.
pub(super) fn lacks(setting: &Setting<'_>, is_trainer: bool) -> Vec<Lack> {
    let (layout, training) = (&setting.layout, &setting.training);
    let mut lacks = Vec::new();
    let is_sharded = layout.zero_stage != ZeroStage::None;
    if layout.recompute == Recompute::Full && !is_sharded && !is_trainer {
        let works = "`--zero 3`; or `--to trainer`, which has a switch of its own";
        lacks.push(Lack::new("recompute without FSDP: its switch is of FSDP", works));
    }
    if training.optimizer != Optimizer::AdamW {
        lacks.push(Lack::new("an optimizer other than AdamW", "`--optimizer adamw`"));
    }
    lacks
}

/// What it cannot be told of the model: that comes from its own `config.json`.
pub(super) fn lacks_of_model(setting: &Setting<'_>) -> Vec<Lack> {
    let is_of_hub = setting.plan.model.description.get("model_type").is_some();
    let mut lacks = Vec::new();
    if !is_of_hub {
        lacks.push("a model that is no Hugging Face configuration");
    }
    // peft wraps the model in the script that makes it.
    if setting.plan.model.adapters.is_some() {
        lacks.push("adapters (LoRA), which the script that makes the model has");
    }
    let lack = |what: &str| Lack { what: what.to_owned(), works: None, is_free: false };
    lacks.into_iter().map(lack).collect()
}

/// The program, and files that it reads; with arguments of the Trainer or without.
pub(super) fn program(setting: &Setting<'_>, is_trainer: bool) -> (Program, Vec<File>) {
    let file =
        |name: &str, text: String| File { name: name.to_owned(), text, is_executable: false };
    let mut files = vec![file("accelerate.yaml", yaml(setting))];
    let config = serde_json::to_string_pretty(&setting.plan.model.description).unwrap_or_default();
    let config = printable_json(&config).into_owned();
    files.push(file("config.json", config + "\n"));
    let mut command = vec!["train.py".to_owned()];
    let layout = &setting.layout;
    let mut reasons = vec!["the layout is in accelerate.yaml, the model in config.json".to_owned()];
    if is_trainer {
        files.push(file("training_arguments.json", arguments(setting)));
        command.push("training_arguments.json".to_owned());
        reasons.push(
            "for HfArgumentParser((TrainingArguments,)).parse_json_file: training_arguments.json"
                .to_owned(),
        );
    } else {
        reasons.push(format!(
            "your script has {} sequences of {} tokens in each batch of its data loader",
            layout.micro_batch_size, setting.training.sequence_length
        ));
    }
    let program = Program {
        name: if is_trainer { "trainer" } else { "accelerate" },
        command,
        environment: Vec::new(),
        sections: vec![Section::new(reasons.join("\n    # "), Vec::new())],
        own: Vec::new(),
        last: Vec::new(),
        starter: Starter::Accelerate { num_micro_batches: layout.num_micro_batches },
        beside: files.clone(),
    };
    (program, files)
}

fn yaml(setting: &Setting<'_>) -> String {
    let (layout, training) = (&setting.layout, &setting.training);
    let [nodes, _] = setting.nodes();
    let is_sharded = layout.zero_stage != ZeroStage::None;
    let mut text: String =
        setting.heading("accelerate 1.15.0").iter().flat_map(|line| ["# ", line, "\n"]).collect();
    let mut line = |indent: usize, key: &str, value: &str, why: &str| {
        let setting = format!("{}{key}: {value}", " ".repeat(indent));
        if why.is_empty() {
            let _ = writeln!(text, "{}", setting.trim_end());
        } else {
            let _ = writeln!(text, "{setting:52} # {why}");
        }
    };
    line(0, "compute_environment", "LOCAL_MACHINE", "");
    let plain = if setting.plan.num_gpus == 1 { "\"NO\"" } else { "MULTI_GPU" };
    let kind = if is_sharded { "FSDP" } else { plain };
    let why =
        if is_sharded { "states are sharded over replicas" } else { "replicas have all states" };
    line(0, "distributed_type", kind, why);
    line(0, "num_machines", &nodes.to_string(), "nodes");
    line(0, "num_processes", &setting.plan.num_gpus.to_string(), "ranks on all of them");
    line(0, "machine_rank", "0", "the script says which");
    let bits = match training.precision {
        Precision::Fp32 => "\"no\"",
        Precision::Fp16 => "fp16",
        _ => "bf16",
    };
    line(0, "mixed_precision", bits, "of activations and products");
    if is_sharded {
        line(0, "fsdp_config", "", "");
        line(2, "fsdp_version", "2", "PyTorch's fully_shard");
        let reshards = layout.zero_stage == ZeroStage::Parameters;
        let why = if reshards {
            "parameters are gathered again for backward (ZeRO 3)"
        } else {
            "parameters stay gathered until backward is done (ZeRO 2)"
        };
        line(2, "fsdp_reshard_after_forward", &reshards.to_string(), why);
        line(2, "fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP", "layer by layer, as predicted");
        let full = (layout.recompute == Recompute::Full).to_string();
        line(2, "fsdp_activation_checkpointing", &full, "every layer computed again, or none");
        let host = layout.offload.parameters.to_string();
        line(2, "fsdp_offload_params", &host, "whether shards and the update lie on the host");
        line(2, "fsdp_state_dict_type", "SHARDED_STATE_DICT", "each rank saves its own");
        let (efficient, why) = if setting.corrects_routing() {
            ("false", "every rank reads the model: a buffer, as its routers have, is not sent")
        } else {
            ("true", "one rank of a node reads the model")
        };
        line(2, "fsdp_cpu_ram_efficient_loading", efficient, why);
    }
    if setting.plan.framework.kernels.fusion == Fusion::Compiled {
        line(0, "dynamo_config", "", "");
        line(2, "dynamo_backend", "INDUCTOR", "kernels are compiled, as predicted");
        line(2, "dynamo_use_regional_compilation", "true", "layer by layer");
    }
    let shards = if is_sharded { layout.zero_shard / layout.context_parallel } else { 1 };
    let copies = layout.data_parallel / shards.max(1);
    line(0, "parallelism_config", "", "");
    let prefix = |name: &str| format!("parallelism_config_{name}");
    line(2, &prefix("dp_replicate_size"), &copies.to_string(), "replicas of all states");
    line(2, &prefix("dp_shard_size"), &shards.to_string(), "ranks over which states are sharded");
    line(
        2,
        &prefix("tp_size"),
        &layout.tensor_parallel.to_string(),
        "ranks over which products are cut",
    );
    let context = layout.context_parallel;
    line(2, &prefix("cp_size"), &context.to_string(), "ranks that pass keys and values round");
    if context > 1 {
        let why = "one part after the other, as predicted; the default gathers all at once";
        line(2, &prefix("cp_comm_strategy"), "alltoall", why);
    }
    text
}

/// The Trainer's own arguments, for its parser of JSON.
fn arguments(setting: &Setting<'_>) -> String {
    let (layout, training) = (&setting.layout, &setting.training);
    // FSDP has a switch of its own, beside which this one computes again twice.
    let recomputes_alone =
        layout.recompute == Recompute::Full && layout.zero_stage == ZeroStage::None;
    let all = json!({
        "output_dir": "out",
        "per_device_train_batch_size": layout.micro_batch_size,
        "gradient_accumulation_steps": layout.num_micro_batches,
        "bf16": training.precision == Precision::Bf16,
        "fp16": training.precision == Precision::Fp16,
        "gradient_checkpointing": recomputes_alone,
        "optim": "adamw_torch_fused",
        "max_steps": 20,
        "logging_steps": 1,
        "include_num_input_tokens_seen": "no",
    });
    serde_json::to_string_pretty(&all).unwrap_or_default() + "\n"
}
