//! DeepSpeed: its JSON, the stages of its pipeline in Python, and a script with the reasons, which JSON has no room for.

mod batch;
mod read;
mod table;

use ir::cluster::Precision;
use ir::graph::Recompute;

use super::argument::{Argument, Section};
use super::error::Lack;
use super::file::File;
use super::keys;
use super::launch::{Program, Starter};
use super::view::ExportView;
/// Reads a configuration, or a script that names one.
pub(super) use read::{read, read_tree};
pub(crate) use table::TABLE;

/// What DeepSpeed cannot be told of a plan.
pub(super) fn lacks(view: &ExportView<'_>) -> Vec<Lack> {
    let mut lacks = Vec::new();
    if view.training.bf16_moments && !view.training.no_master_weights {
        lacks.push(Lack::new(
            "moments in bf16 beside master weights in fp32",
            "`--no-master-weights` too",
        ));
    }
    if view.training.no_master_weights && view.training.precision != Precision::Bf16 {
        lacks.push(Lack::new(
            "no master weights in other precisions than bf16",
            "`--precision bf16`",
        ));
    }
    lacks
}

/// What it cannot be told of a plan's model, which the user's own script makes.
pub(super) fn lacks_of_model(view: &ExportView<'_>) -> Vec<Lack> {
    let what = "adapters (LoRA), which the script that makes the model has".to_owned();
    let lack = Lack { what, works: None, is_free: false };
    view.plan.model.adapters.iter().map(|_| lack.clone()).collect()
}

/// The program, and files that it reads.
pub(super) fn program(view: &ExportView<'_>) -> (Program, Vec<File>) {
    let settings = TABLE.arguments(&view.run());
    let mut files = vec![File::text("ds_config.json", keys::json(&settings))];
    if view.layout.pipeline_parallel > 1 {
        files.push(File::text("pipeline.py", pipeline(view)));
    }
    let reasons = settings.iter().map(|it| format!("\n    #   {}: {}", it.name, it.why));
    let title = format!("the settings are in ds_config.json; why:{}", reasons.collect::<String>());
    let arguments =
        vec![Argument::value("--deepspeed_config", "ds_config.json", "beside this script")];
    let program = Program {
        name: "deepspeed",
        command: vec!["train.py".to_owned()],
        environment: Vec::new(),
        sections: vec![Section::new(title, arguments)],
        own: Vec::new(),
        last: Vec::new(),
        starter: Starter::Torchrun,
        beside: files.clone(),
    };
    (program, files)
}

/// The stages of the plan for a `PipelineModule`, which cuts by rules of its own otherwise.
fn pipeline(view: &ExportView<'_>) -> String {
    let heading: Vec<String> =
        view.heading("DeepSpeed 0.19.8").iter().map(|line| format!("# {line}\n")).collect();
    let mut ends = vec![0];
    for stage in &view.plan.stages {
        ends.push(stage.first_block + stage.num_blocks);
    }
    let stages = view.layout.pipeline_parallel;
    let again = match view.layout.recompute {
        // Of every layer: `activation_checkpointing` of the configuration does nothing in a pipeline by itself.
        Recompute::Full => ", activation_checkpoint_interval=1",
        _ => "",
    };
    format!(
        "{}from deepspeed.pipe import PipelineModule\n\n# Where each stage begins, counting the embedding as the first block and \
         the head as the last.\nSTAGES = {ends:?}\n\n\nclass PlannedPipeline(PipelineModule):\n    \"\"\"A pipeline of {stages} \
         stages that has the plan's blocks on each; takes a list of as many layers as there are blocks.\"\"\"\n\n    \
         def __init__(self, layers, **options):\n        super().__init__(layers=layers, num_stages={stages}{again}, **options)\n\n    \
         def _partition_layers(self, method=\"uniform\"):\n        stage = self._topo.get_coord(self.global_rank).pipe\n        \
         self.parts = STAGES\n        self._set_bounds(start=STAGES[stage], stop=STAGES[stage + 1])\n",
        heading.concat()
    )
}
