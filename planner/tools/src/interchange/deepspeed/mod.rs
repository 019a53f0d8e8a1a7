//! DeepSpeed: its JSON, the stages of its pipeline in Python, and a script with the reasons, which JSON has no room for.

mod read;

use ir::cluster::Precision;
use ir::framework::WhenReduced;
use ir::graph::Recompute;
use ir::layout::{OffloadedActivations, ZeroStage};
use ir::plan::Optimizer;
use ir::text::count_of;
use serde_json::{Map, Value, json};

use super::argument::{Argument, Section};
use super::error::Lack;
use super::file::File;
use super::launch::{Program, Starter};
use super::setting::Setting;
/// Reads a configuration, or a script that names one.
pub(super) use read::{read, read_tree};

/// What DeepSpeed cannot be told of a plan.
pub(super) fn lacks(setting: &Setting<'_>) -> Vec<Lack> {
    let mut lacks = Vec::new();
    if setting.training.bf16_moments && !setting.training.no_master_weights {
        lacks.push(Lack::new(
            "moments in bf16 beside master weights in fp32",
            "`--no-master-weights` too",
        ));
    }
    if setting.training.no_master_weights && setting.training.precision != Precision::Bf16 {
        lacks.push(Lack::new(
            "no master weights in other precisions than bf16",
            "`--precision bf16`",
        ));
    }
    lacks
}

/// What it cannot be told of a plan's model, which the user's own script makes.
pub(super) fn lacks_of_model(setting: &Setting<'_>) -> Vec<Lack> {
    let what = "adapters (LoRA), which the script that makes the model has".to_owned();
    let lack = Lack { what, works: None, is_free: false };
    setting.plan.model.adapters.iter().map(|_| lack.clone()).collect()
}

/// The program, and files that it reads.
pub(super) fn program(setting: &Setting<'_>) -> (Program, Vec<File>) {
    let (config, reasons) = config(setting);
    let text = serde_json::to_string_pretty(&config).expect("a configuration is JSON") + "\n";
    let mut files = vec![File { name: "ds_config.json".to_owned(), text, is_executable: false }];
    if setting.layout.pipeline_parallel > 1 {
        files.push(File {
            name: "pipeline.py".to_owned(),
            text: pipeline(setting),
            is_executable: false,
        });
    }
    let reasons = reasons.into_iter().map(|(key, why)| format!("{key}: {why}"));
    let title = "the settings are in ds_config.json; why:";
    let title =
        std::iter::once(title.to_owned()).chain(reasons).collect::<Vec<_>>().join("\n    #   ");
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

/// The configuration, and the reason for each key.
fn config(setting: &Setting<'_>) -> (Value, Vec<(String, String)>) {
    let (layout, training) = (&setting.layout, &setting.training);
    let mut all = Map::new();
    let mut reasons: Vec<(String, String)> = Vec::new();
    let mut put = |key: &str, value: Value, why: String| {
        all.insert(key.to_owned(), value);
        reasons.push((key.to_owned(), why));
    };
    let (each, rounds) = (layout.micro_batch_size, layout.num_micro_batches);
    // DeepSpeedConfig counts AutoTP's ranks as replicas, and would find the batch too small (runtime/config.py:471).
    if layout.tensor_parallel == 1 {
        put(
            "train_batch_size",
            training.global_batch_size.into(),
            format!(
                "{} x {rounds} x {each}",
                count_of(layout.data_parallel, "replica", "replicas")
            ),
        );
    }
    put("train_micro_batch_size_per_gpu", each.into(), "sequences at once".to_owned());
    put("gradient_accumulation_steps", rounds.into(), "micro-batches of a step".to_owned());
    match training.precision {
        Precision::Fp16 => {
            put("fp16", json!({"enabled": true}), "activations and weights in 16 bits".to_owned());
        }
        Precision::Fp32 => {}
        _ => {
            let mut bf16 = json!({"enabled": true});
            if training.no_master_weights {
                bf16["bf16_master_weights_and_grads"] = true.into();
            }
            if training.bf16_moments {
                bf16["bf16_optimizer_states"] = true.into();
            }
            put("bf16", bf16, "activations and weights in 16 bits".to_owned());
        }
    }
    let sum = if training.fp32_gradients || training.precision == Precision::Fp32 {
        "fp32"
    } else if training.precision == Precision::Fp16 {
        "fp16"
    } else {
        "bf16"
    };
    put("data_types", json!({"grad_accum_dtype": sum}), "gradients are added up so".to_owned());
    put("zero_optimization", zero(setting), format!("ZeRO {}", layout.zero_stage.number()));
    if layout.tensor_parallel > 1 {
        let degree = json!({"autotp_size": layout.tensor_parallel});
        put("tensor_parallel", degree, "products over neighbours".to_owned());
    }
    if layout.context_parallel > 1 {
        let why = "heads are exchanged for positions (Ulysses), if the script passes deepspeed.initialize the mpu of \
                   UlyssesSPAttentionHF.register_with_transformers";
        put("sequence_parallel_size", layout.context_parallel.into(), why.to_owned());
    }
    if layout.recompute == Recompute::Full {
        let on_host = layout.offload.activations != OffloadedActivations::None;
        let why =
            "for what calls deepspeed.checkpointing.checkpoint: every layer is computed again";
        put("activation_checkpointing", json!({"cpu_checkpointing": on_host}), why.to_owned());
    }
    let optimizer = match training.optimizer {
        Optimizer::AdamW => json!({"type": "AdamW", "params": {"lr": 3e-4}}),
        Optimizer::Momentum => json!({"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9}}),
        Optimizer::Sgd => json!({"type": "SGD", "params": {"lr": 0.1}}),
    };
    put("optimizer", optimizer, "the learning rate is yours".to_owned());
    if training.optimizer != Optimizer::AdamW && layout.zero_stage != ZeroStage::None {
        let why = "ZeRO takes no torch.optim.SGD without it";
        put("zero_allow_untested_optimizer", true.into(), why.to_owned());
    }
    put(
        "gradient_clipping",
        json!(1.0),
        "the norm is part of the prediction; its limit is yours".to_owned(),
    );
    (Value::Object(all), reasons)
}

fn zero(setting: &Setting<'_>) -> Value {
    let layout = &setting.layout;
    let mut zero = json!({"stage": layout.zero_stage.number()});
    if layout.zero_stage != ZeroStage::None {
        let beside = setting.plan.framework.gradients.reduced == WhenReduced::BesideBackward;
        zero["overlap_comm"] = beside.into();
        zero["contiguous_gradients"] = true.into();
        zero["reduce_scatter"] = true.into();
    }
    let host = json!({"device": "cpu", "pin_memory": true});
    if layout.offload.optimizer {
        zero["offload_optimizer"] = host.clone();
    }
    if layout.offload.parameters {
        zero["offload_param"] = host;
    }
    zero
}

/// The stages of the plan for a `PipelineModule`, which cuts by rules of its own otherwise.
fn pipeline(setting: &Setting<'_>) -> String {
    let heading: Vec<String> =
        setting.heading("DeepSpeed 0.19.8").iter().map(|line| format!("# {line}\n")).collect();
    let mut ends = vec![0];
    for stage in &setting.plan.stages {
        ends.push(stage.first_block + stage.num_blocks);
    }
    let stages = setting.layout.pipeline_parallel;
    let again = match setting.layout.recompute {
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
