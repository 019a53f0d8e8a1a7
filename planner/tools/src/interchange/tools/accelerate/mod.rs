//! Hugging Face accelerate: its YAML configuration, with or without the Trainer's arguments.

mod adapters;
mod optimizer;
mod read;
mod sharding;
mod table;
mod trl;

use std::collections::BTreeMap;

use ir::graph::Recompute;
use ir::layout::{LayoutSpec, ZeroStage};
use ir::plan::{Optimizer, Training};

use crate::interchange::argument::{Argument, Section};
use crate::interchange::error::Lack;
use crate::interchange::file::{File, basename};
use crate::interchange::keys;
use crate::interchange::launch::{EXPANDABLE_SEGMENTS, Program, Starter};
use crate::interchange::shell::{Word, is_program};
use crate::interchange::target::Target;
use crate::interchange::tool::{OwnKey, Tool};
use crate::interchange::view::ExportView;
/// Reader of PEFT's arguments, for tools that pass them on.
pub(super) use adapters::adapters;
use optimizer::name_of;
/// ZeRO stage and offload in the name of a built-in configuration of DeepSpeed.
pub(crate) use read::built_in_stage;
use read::is_launch;
pub(super) use read::read_words;
pub(super) use table::{CONFIGURATION, TRAINER};
use trl::is_trl;

pub(super) static TOOL: Tool = Tool {
    tables: &[&CONFIGURATION],
    read: Some(read::read),
    starts: |words, place, files| {
        (is_launch(words, place) && !has_arguments(&words[place + 1..], files)).then_some(place + 1)
    },
    has_keys: |tree| {
        tree.has_any(&[
            "compute_environment",
            "distributed_type",
            "fsdp_config",
            "parallelism_config",
        ])
    },
    lacks: |view| lacks(view, false),
    lacks_of_model,
    nearest_training,
    starts_any: true,
    ..Tool::new(Target::new("accelerate", "accelerate 1.15.0", "fsdp2"), |view, _| {
        program(view, false)
    })
};

/// Hugging Face's Trainer, which `accelerate launch` may start.
pub(super) static TRAINER_TOOL: Tool = Tool {
    tables: &[&TRAINER],
    read: Some(read::read_trainer),
    starts: |words, place, files| {
        if is_launch(words, place) {
            return has_arguments(&words[place + 1..], files).then_some(place + 1);
        }
        if is_trl(words, place) {
            return Some(place + 1);
        }
        let is_own = |word: &Word| word.text.starts_with("--per_device_train_batch_size");
        // A program of the user's own may start `accelerate launch`, as a later word shows.
        let starts_another = (place + 1..words.len()).any(|at| is_launch(words, at));
        let is_it = is_program(words, place) && words[place..].iter().any(is_own);
        (is_it && !starts_another).then_some(place)
    },
    has_keys: |tree| {
        let others = [
            "num_train_epochs",
            "gradient_accumulation_steps",
            "bf16",
            "fp16",
            "deepspeed",
            "fsdp",
        ];
        tree.has("per_device_train_batch_size") || tree.has("output_dir") && tree.has_any(&others)
    },
    own_options: &["--per_device_train_batch_size"],
    lacks: |view| lacks(view, true),
    lacks_of_model,
    nearest_training,
    anchors: &["--per_device_train_batch_size"],
    own_keys: |option| vec![OwnKey { name: option.to_owned(), is_flag: true, ..OwnKey::default() }],
    ..Tool::new(
        Target::new("trainer", "transformers 5.23.0 with accelerate 1.15.0", "fsdp2"),
        |view, _| program(view, true),
    )
};

/// Returns whether some words, or a file that they name, have the Trainer's arguments.
fn has_arguments(words: &[Word], files: &BTreeMap<String, String>) -> bool {
    let keys = ["\"per_device_train_batch_size\"", "per_device_train_batch_size:"];
    let of_file = |text: &String| keys.iter().any(|key| text.contains(key));
    words.iter().any(|word| {
        word.text.starts_with("--per_device_train_batch_size")
            || files.get(basename(&word.text)).is_some_and(of_file)
    })
}

fn nearest_training(training: &mut Training, layout: &LayoutSpec) {
    // Gradients of DDP are in fp32, those of FSDP in 16 bits.
    training.fp32_gradients &= layout.zero_stage == ZeroStage::None
        && layout.tensor_parallel * layout.context_parallel == 1;
    training.optimizer = Optimizer::AdamW;
}

/// Parts of a plan, apart from its model, that accelerate has no setting for.
fn lacks(view: &ExportView<'_>, is_trainer: bool) -> Vec<Lack> {
    let (layout, training) = (&view.layout, &view.training);
    let mut lacks = Vec::new();
    let is_sharded = layout.zero_stage != ZeroStage::None;
    if layout.recompute == Recompute::Full && !is_sharded && !is_trainer {
        let works = "`--zero 3`; or `--to trainer`, which has a switch of its own";
        lacks.push(Lack::new("recompute without FSDP: its switch is of FSDP", works));
    }
    if training.optimizer != Optimizer::AdamW
        && !(is_trainer && name_of(training.optimizer).is_some())
    {
        lacks.push(Lack::new("an optimizer other than AdamW", "`--optimizer adamw`"));
    }
    lacks
}

/// Parts of the plan's model that accelerate cannot express: the model is made from its own `config.json`.
fn lacks_of_model(view: &ExportView<'_>) -> Vec<Lack> {
    let is_of_hub = view.plan.model.description.get("model_type").is_some();
    let mut lacks = Vec::new();
    if !is_of_hub {
        lacks.push("a model that is no Hugging Face configuration");
    }
    // The training script, not the configuration, wraps the model for LoRA (peft).
    if view.plan.model.adapters.is_some() {
        lacks.push("adapters (LoRA), which the script that makes the model has");
    }
    lacks.into_iter().map(Lack::without_remedy).collect()
}

/// The program to start; its files include the Trainer's arguments if `is_trainer`.
fn program(view: &ExportView<'_>, is_trainer: bool) -> Program {
    let mut files = vec![File::text("accelerate.yaml", yaml(view))];
    files.push(File::json("config.json", &view.plan.model.description));
    let mut command = vec!["train.py".to_owned()];
    let layout = &view.layout;
    let mut reasons = vec!["the layout is in accelerate.yaml, the model in config.json".to_owned()];
    if is_trainer {
        files.push(File::text("training_arguments.json", arguments(view)));
        command.push("training_arguments.json".to_owned());
        reasons.push(
            "for HfArgumentParser((TrainingArguments,)).parse_json_file: training_arguments.json"
                .to_owned(),
        );
    } else {
        reasons.push(format!(
            "your script has {} sequences of {} tokens in each batch of its data loader",
            layout.micro_batch_size, view.training.sequence_length
        ));
    }
    Program {
        name: if is_trainer { "trainer" } else { "accelerate" },
        command,
        environment: vec![EXPANDABLE_SEGMENTS],
        sections: vec![Section::new(reasons.join("\n    # "), Vec::new())],
        starter: Starter::Accelerate { num_micro_batches: layout.num_micro_batches },
        extra_files: files,
        ..Program::default()
    }
}

fn yaml(view: &ExportView<'_>) -> String {
    let heading = view.heading(TOOL.target.tool());
    let [nodes, _] = view.nodes();
    let mut all = vec![
        Argument::value("compute_environment", "LOCAL_MACHINE", ""),
        Argument::value("num_machines", nodes, "nodes"),
        Argument::value("machine_rank", 0, "the script says which"),
    ];
    all.extend(CONFIGURATION.arguments(&view.run()));
    if view.layout.zero_stage != ZeroStage::None {
        let (efficient, why) = if view.corrects_routing() {
            (false, "every rank reads the model: a buffer, as its routers have, is not sent")
        } else {
            (true, "one rank of a node reads the model")
        };
        all.push(Argument::value("fsdp_config.fsdp_cpu_ram_efficient_loading", efficient, why));
    }
    heading + &keys::yaml(&all)
}

/// Trainer arguments that a plan does not decide, with values that let a step run at once.
const YOURS: [(&str, &str); 4] = [
    ("output_dir", "out"),
    ("max_steps", "20"),
    ("logging_steps", "1"),
    ("include_num_input_tokens_seen", "no"),
];

/// Text of `training_arguments.json`, for the Trainer's JSON parser.
fn arguments(view: &ExportView<'_>) -> String {
    // FSDP has its own switch for recompute; with both switched on, blocks are recomputed twice.
    let mut all = TRAINER.arguments(&view.run());
    let is_sharded = view.layout.zero_stage != ZeroStage::None;
    for argument in all.iter_mut().filter(|it| is_sharded && it.name == "gradient_checkpointing") {
        argument.values = vec!["false".to_owned()];
    }
    if let Some(name) = name_of(view.training.optimizer) {
        all.push(Argument::value("optim", name, "as the plan has it"));
    }
    all.extend(YOURS.map(|(name, value)| Argument::value(name, value, "yours")));
    keys::json(&all)
}
