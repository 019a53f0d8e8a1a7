//! DeepSpeed: its JSON, the pipeline's stages in Python, and a script that states the reasons, since JSON has no
//! comments.

mod batch;
mod read;
mod table;

use ir::cluster::Precision;
use ir::graph::Recompute;
use ir::plan::Optimizer;

use crate::interchange::argument::{Argument, Section};
use crate::interchange::error::Lack;
use crate::interchange::file::{File, filled};
use crate::interchange::keys;
use crate::interchange::launch::{EXPANDABLE_SEGMENTS, Program};
use crate::interchange::shell::is_program;
use crate::interchange::tool::Tool;
use crate::interchange::tree::Tree;
use crate::interchange::view::ExportView;
/// Keys of the batch.
pub(super) use batch::{EACH, GLOBAL, ROUNDS, SEQUENCE_RANKS};
/// Reader of a configuration, its keys, and what a Trainer fills in.
pub(super) use read::{fills, leaves, read_keys};
use table::{TABLE, TARGET};

pub(super) static TOOL: Tool = Tool {
    tables: &[&TABLE],
    read: Some(read::read),
    starts: |words, place, _| {
        let has = |option| words[place..].iter().any(|it| it.text.starts_with(option));
        // The Trainer has an option for a DeepSpeed file.
        let is_own = has("--deepspeed_config") && !has("--per_device_train_batch_size");
        (is_program(words, place) && is_own).then_some(place)
    },
    has_keys,
    lacks,
    lacks_of_model,
    nearest_training: |training, _| training.bf16_moments &= training.no_master_weights,
    ..Tool::new(TARGET, |view, _| program(view))
};

fn has_keys(tree: &Tree) -> bool {
    // Other tools also use this key for gradient accumulation, together with a key for the trained model.
    let of_others = ["base_model", "model", "model_name_or_path", "datasets"];
    tree.has_any(&[
        "train_batch_size",
        "train_micro_batch_size_per_gpu",
        "zero_optimization",
        "tensor_parallel",
        "activation_checkpointing",
    ]) || tree.has("gradient_accumulation_steps") && !tree.has_any(&of_others)
}

/// Parts of a plan, apart from its model, that DeepSpeed has no setting for.
fn lacks(view: &ExportView<'_>) -> Vec<Lack> {
    let mut lacks = Vec::new();
    if view.training.bf16_moments && !view.training.no_master_weights {
        lacks.push(Lack::new(
            "moments in bf16 beside master weights in fp32",
            "`--no-master-weights` too",
        ));
    }
    if view.training.optimizer == Optimizer::AdamW8bit {
        let what = "moments of 8 bits, whose optimizer the script that makes the model has";
        lacks.push(Lack::new(what, "`--optimizer adamw`"));
    }
    if view.training.no_master_weights && view.training.precision != Precision::Bf16 {
        lacks.push(Lack::new(
            "no master weights in other precisions than bf16",
            "`--precision bf16`",
        ));
    }
    lacks
}

/// Parts of a plan's model that DeepSpeed has no setting for: the user's own script makes the model.
fn lacks_of_model(view: &ExportView<'_>) -> Vec<Lack> {
    let what = "adapters (LoRA), which the script that makes the model has";
    view.plan.model.adapters.iter().map(|_| Lack::without_remedy(what)).collect()
}

fn program(view: &ExportView<'_>) -> Program {
    let settings = TABLE.arguments(&view.run());
    let mut files = vec![File::text("ds_config.json", keys::json(&settings))];
    if view.layout.pipeline_parallel > 1 {
        files.push(File::text("pipeline.py", pipeline(view)));
    }
    let reasons = settings.iter().map(|it| format!("\n    #   {}: {}", it.name, it.why));
    let title = format!("the settings are in ds_config.json; why:{}", reasons.collect::<String>());
    let arguments =
        vec![Argument::value("--deepspeed_config", "ds_config.json", "beside this script")];
    Program {
        name: "deepspeed",
        command: vec!["train.py".to_owned()],
        environment: vec![EXPANDABLE_SEGMENTS],
        sections: vec![Section::new(title, arguments)],
        extra_files: files,
        ..Program::default()
    }
}

/// Text of `pipeline.py`: a `PipelineModule` with the plan's stages instead of DeepSpeed's own partition.
fn pipeline(view: &ExportView<'_>) -> String {
    let mut ends = vec![0];
    for stage in &view.plan.stages {
        ends.push(stage.first_block + stage.num_blocks);
    }
    let recompute_interval = match view.layout.recompute {
        // Every layer is a checkpoint: in a pipeline, the key `activation_checkpointing` alone has no effect.
        Recompute::Full => ", activation_checkpoint_interval=1",
        _ => "",
    };
    filled(
        include_str!("pipeline.py.template"),
        &[
            ("heading", &view.heading(TARGET.tool())),
            ("ends", &format!("{ends:?}")),
            ("stages", &view.layout.pipeline_parallel),
            ("again", &recompute_interval),
        ],
    )
}
