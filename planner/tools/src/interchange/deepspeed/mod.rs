//! DeepSpeed: its JSON, the pipeline's stages in Python, and a script that has the reasons, as JSON has no comments.

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
/// Readers of a configuration, and of a script that names one.
pub(super) use read::{read, read_tree};
pub(crate) use table::TABLE;

/// Parts of a plan that DeepSpeed has no setting for, its model aside.
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

/// Parts of a plan's model that DeepSpeed has no setting for: the user's own script makes the model.
pub(super) fn lacks_of_model(view: &ExportView<'_>) -> Vec<Lack> {
    let what = "adapters (LoRA), which the script that makes the model has".to_owned();
    let lack = Lack { what, works: None, is_free: false };
    view.plan.model.adapters.iter().map(|_| lack.clone()).collect()
}

/// The program to start, and the files that it reads.
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

/// Text of `pipeline.py`: a `PipelineModule` with the plan's stages instead of DeepSpeed's own partition.
fn pipeline(view: &ExportView<'_>) -> String {
    let heading: Vec<String> =
        view.heading("DeepSpeed 0.19.8").iter().map(|line| format!("# {line}\n")).collect();
    let mut ends = vec![0];
    for stage in &view.plan.stages {
        ends.push(stage.first_block + stage.num_blocks);
    }
    let stages = view.layout.pipeline_parallel;
    let again = match view.layout.recompute {
        // Every layer is a checkpoint: in a pipeline, the key `activation_checkpointing` alone has no effect.
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
