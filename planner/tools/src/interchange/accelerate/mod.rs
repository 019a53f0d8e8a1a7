//! Hugging Face accelerate: its YAML configuration, with or without the Trainer's arguments.

mod read;
mod table;

use ir::graph::Recompute;
use ir::layout::ZeroStage;
use ir::plan::Optimizer;
use ir::text::printable_json;

use super::argument::{Argument, Section};
use super::error::Lack;
use super::file::File;
use super::keys;
use super::launch::{Program, Starter};
use super::view::ExportView;
/// Readers of a configuration, of the Trainer's arguments, and of a script that has them.
pub(super) use read::{read, read_trainer};
pub(crate) use table::{CONFIGURATION, TRAINER};

/// Parts of a plan that accelerate has no setting for, the model aside.
pub(super) fn lacks(view: &ExportView<'_>, is_trainer: bool) -> Vec<Lack> {
    let (layout, training) = (&view.layout, &view.training);
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

/// Parts of the plan's model that accelerate cannot express: the model is made from its own `config.json`.
pub(super) fn lacks_of_model(view: &ExportView<'_>) -> Vec<Lack> {
    let is_of_hub = view.plan.model.description.get("model_type").is_some();
    let mut lacks = Vec::new();
    if !is_of_hub {
        lacks.push("a model that is no Hugging Face configuration");
    }
    // The training script wraps the model for LoRA (peft), not the configuration.
    if view.plan.model.adapters.is_some() {
        lacks.push("adapters (LoRA), which the script that makes the model has");
    }
    let lack = |what: &str| Lack { what: what.to_owned(), works: None, is_free: false };
    lacks.into_iter().map(lack).collect()
}

/// The program to start and the files that it reads, which include the Trainer's arguments if `is_trainer`.
pub(super) fn program(view: &ExportView<'_>, is_trainer: bool) -> (Program, Vec<File>) {
    let mut files = vec![File::text("accelerate.yaml", yaml(view))];
    let config = serde_json::to_string_pretty(&view.plan.model.description).unwrap_or_default();
    let config = printable_json(&config).into_owned();
    files.push(File::text("config.json", config + "\n"));
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

fn yaml(view: &ExportView<'_>) -> String {
    let heading = view.heading("accelerate 1.15.0");
    let heading: String = heading.iter().flat_map(|line| ["# ", line, "\n"]).collect();
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

/// Trainer arguments that a plan does not decide, with values with which a step runs at once.
const YOURS: [(&str, &str); 5] = [
    ("output_dir", "out"),
    ("optim", "adamw_torch_fused"),
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
    all.extend(YOURS.map(|(name, value)| Argument::value(name, value, "yours")));
    keys::json(&all)
}
