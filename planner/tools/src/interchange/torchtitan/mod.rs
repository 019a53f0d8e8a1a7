//! torchtitan: flags, a function of the model for its registry, and the schedule as PyTorch's CSV.

mod model;
mod read;

use std::fmt::Write as _;

use ir::graph::{Recompute, TokenDispatcher};
use ir::layout::ZeroStage;
use ir::plan::{Optimizer, Training};
use ir::schedule::{ScheduleKind, generate, write_csv};

use super::argument::{Argument, Section};
use super::error::Lack;
use super::file::File;
use super::launch::{Program, Starter};
use super::setting::Setting;
/// Reads flags, with the function that they name.
pub(super) use read::read;

/// What torchtitan cannot be told of a plan, its model aside.
pub(super) fn lacks(setting: &Setting<'_>) -> Vec<Lack> {
    let (layout, training) = (&setting.layout, &setting.training);
    let mut lacks = Vec::new();
    if training.bf16_moments != is_all_in_16(training) {
        lacks.push(Lack::new(
            "one of weights and moments in 16 bits without the other (`training.dtype` is of both)",
            "`--precision bf16 --no-master-weights --bf16-moments`, or none of the last two",
        ));
    }
    if training.optimizer != Optimizer::AdamW {
        lacks.push(Lack::new(
            "an optimizer other than AdamW in its registry",
            "`--optimizer adamw`",
        ));
    }
    let (m, p) = (layout.num_micro_batches, layout.pipeline_parallel);
    let rounds = (m / p).max(1);
    let is_looped =
        matches!(layout.schedule, ScheduleKind::Interleaved | ScheduleKind::InterleavedZb);
    if p > 1 && is_looped && !m.is_multiple_of(rounds) {
        lacks.push(Lack::new(
            format!("{m} micro-batches in rounds over {p} ranks, which do not divide"),
            format!("a batch of a multiple of {p} micro-batches"),
        ));
    }
    if setting.num_prediction_modules() > 0 {
        lacks.push(Lack::new("modules for multi-token prediction", "a plan without them"));
    }
    lacks
}

/// Whether nothing is kept in 32 bits of weights that products read in 16.
fn is_all_in_16(training: &Training) -> bool {
    training.precision.activation_bytes() == 2 && training.no_master_weights
}

/// What it cannot be told of a plan's model.
pub(super) fn lacks_of_model(setting: &Setting<'_>) -> Vec<Lack> {
    model::source(setting).err().into_iter().collect()
}

/// The file with the schedule.
const SCHEDULE: &str = "schedule.csv";

/// The program, and files that it reads.
pub(super) fn program(setting: &Setting<'_>) -> (Program, Vec<File>) {
    let mut files = Vec::new();
    let model = model::source(setting).unwrap_or_default();
    files.push(File {
        name: "planned.py".to_owned(),
        text: module(setting, &model),
        is_executable: false,
    });
    let layout = &setting.layout;
    if layout.pipeline_parallel > 1
        && let Ok(schedule) = generate(
            layout.schedule,
            layout.pipeline_parallel,
            layout.num_micro_batches,
            layout.virtual_stages,
        )
    {
        let text = write_csv(&schedule);
        files.push(File { name: SCHEDULE.to_owned(), text, is_executable: false });
    }
    // The schedule's name says which rank has which stages; of one of the user's own the CSV says the order.
    let is_given =
        matches!(layout.schedule, ScheduleKind::Given(_)) && layout.pipeline_parallel > 1;
    let by_csv = is_given.then_some(["--parallelism.pipeline_parallel_schedule_csv", SCHEDULE]);
    let command = ["-m", "torchtitan.train"].into_iter().chain(by_csv.into_iter().flatten());
    let recompute = match layout.recompute {
        Recompute::Full | Recompute::FirstLayers(_) => "full",
        Recompute::Selective | Recompute::Modules(_) => "selective",
        Recompute::None => "none",
    };
    let program = Program {
        name: "torchtitan",
        command: command.map(str::to_owned).collect(),
        environment: vec![
            (
                "PYTHONPATH",
                "$HERE${PYTHONPATH:+:$PYTHONPATH}".to_owned(),
                "planned.py, the model, lies beside this script".to_owned(),
            ),
            (
                "PYTORCH_CUDA_ALLOC_CONF",
                "expandable_segments:True".to_owned(),
                "less of the allocator's memory lies idle".to_owned(),
            ),
        ],
        sections: sections(setting),
        own: own(),
        last: vec![format!("activation-checkpoint:{recompute}")],
        starter: Starter::Torchrun,
        beside: files.clone(),
    };
    (program, files)
}

fn sections(setting: &Setting<'_>) -> Vec<Section> {
    let (layout, training) = (&setting.layout, &setting.training);
    let model = vec![
        Argument::value("--module", "planned", "the model, in planned.py"),
        Argument::value("--config", "planned", "its function"),
    ];
    let mut degrees = replicas(setting);
    let tensor = layout.tensor_parallel;
    degrees.push(of("tensor_parallel_degree", tensor, "ranks over which products are cut"));
    if tensor > 1 && !layout.sequence_parallel {
        let why = "norms and residuals are whole on each of them";
        degrees.push(Argument::switch("--parallelism.no-enable-sequence-parallel", why));
    }
    if layout.context_parallel > 1 {
        let why = "ranks over which each sequence is cut";
        degrees.push(of("context_parallel_degree", layout.context_parallel, why));
    }
    if setting.has_experts() {
        let why = "ranks over which experts are spread, out of the sharded ones";
        degrees.push(of("expert_parallel_degree", layout.expert_parallel, why));
    }
    let mut batch = vec![Argument::value(
        "--training.seq_len",
        training.sequence_length,
        "tokens of a sequence",
    )];
    let (each, rounds) = (layout.micro_batch_size, layout.num_micro_batches);
    if layout.pipeline_parallel > 1 {
        degrees.extend(pipeline(setting));
        let why = format!("{rounds} micro-batches of {each} go through the pipeline");
        batch.push(Argument::value("--training.local_batch_size", each * rounds, why));
        let why = "sequences of a micro-batch";
        batch.push(of("pipeline_parallel_microbatch_size", each, why));
    } else {
        let why = "sequences that a replica computes at once";
        batch.push(Argument::value("--training.local_batch_size", each, why));
    }
    let why = format!("{} replicas, {rounds} micro-batches of {each} each", layout.data_parallel);
    batch.push(Argument::value("--training.global_batch_size", training.global_batch_size, why));
    vec![
        Section::new("model", model),
        Section::new(format!("layout of {} ranks", setting.plan.num_gpus), degrees),
        Section::new("batch", batch),
        Section::new("precision, kernels", precision(setting)),
    ]
}

#[expect(clippy::needless_pass_by_value, reason = "so that numbers are written plainly")]
fn of(name: &str, value: impl ToString, why: impl Into<String>) -> Argument {
    Argument::value(&format!("--parallelism.{name}"), value.to_string(), why)
}

/// Replicas, and what of them is sharded. It shards over context-parallel ranks too.
fn replicas(setting: &Setting<'_>) -> Vec<Argument> {
    let layout = &setting.layout;
    let shards = match layout.zero_stage {
        ZeroStage::None => 1,
        _ => layout.zero_shard / layout.context_parallel,
    };
    let copies = layout.data_parallel / shards.max(1);
    let mut all = vec![
        of("data_parallel_replicate_degree", copies, "replicas of all states"),
        of("data_parallel_shard_degree", shards, "ranks over which states are sharded (FSDP)"),
    ];
    match layout.zero_stage {
        ZeroStage::Parameters => {
            let why = "parameters are gathered again for backward (ZeRO 3)";
            all.push(of("fsdp_reshard_after_forward", "always", why));
        }
        ZeroStage::None => {}
        _ => {
            let why = "parameters stay gathered until backward is done (ZeRO 2)";
            all.push(of("fsdp_reshard_after_forward", "never", why));
        }
    }
    if layout.offload.parameters {
        let why = "shards and the update lie on the host";
        all.push(Argument::switch("--training.enable_cpu_offload", why));
    }
    all
}

/// PyTorch's name of a schedule.
const fn schedule_name(kind: ScheduleKind) -> Option<&'static str> {
    Some(match kind {
        ScheduleKind::OneFOneB => "1F1B",
        ScheduleKind::Interleaved => "Interleaved1F1B",
        ScheduleKind::GPipe => "GPipe",
        ScheduleKind::LoopedBfs => "LoopedBFS",
        ScheduleKind::InterleavedZb => "InterleavedZeroBubble",
        ScheduleKind::Zbv => "ZBVZeroBubble",
        ScheduleKind::DualPipeV => "DualPipeV",
        ScheduleKind::Given(given) if given.is_v_shaped() => "ZBVZeroBubble",
        ScheduleKind::Given(given) if given.virtual_stages() > 1 => "Interleaved1F1B",
        ScheduleKind::Given(_) => "1F1B",
        _ => return None,
    })
}

fn pipeline(setting: &Setting<'_>) -> Vec<Argument> {
    let layout = &setting.layout;
    let why = "ranks over which layers are spread; which has which, planned.py says";
    let mut all = vec![of("pipeline_parallel_degree", layout.pipeline_parallel, why)];
    if let Some(name) = schedule_name(layout.schedule) {
        let why = "the order of micro-batches; schedule.csv has it action by action";
        all.push(of("pipeline_parallel_schedule", name, why));
    }
    all
}

fn precision(setting: &Setting<'_>) -> Vec<Argument> {
    let training = &setting.training;
    let bits = if training.precision.activation_bytes() == 4 { "float32" } else { "bfloat16" };
    let mut all = vec![Argument::value(
        "--training.mixed_precision_param",
        bits,
        "of activations and products",
    )];
    if is_all_in_16(training) {
        let why = "of weights, gradients and moments: no copy in 32 bits";
        all.push(Argument::value("--training.dtype", "bfloat16", why));
    }
    all.push(Argument::switch("--compile.enable", "blocks are compiled, as predicted"));
    all.push(Argument::switch(
        "--training.disable_cuda_graphs",
        "no step is captured, as predicted",
    ));
    all
}

fn own() -> Vec<Section> {
    let own = vec![
        Argument::value("--training.steps", 20, "steps"),
        Argument::value("--hf_assets_path", "./assets/hf", "your tokenizer"),
        Argument::value("--metrics.log_freq", 1, "a line for each step"),
    ];
    vec![Section::new("data, steps", own)]
}

/// The module with the function that `--config` names.
fn module(setting: &Setting<'_>, model: &model::Source) -> String {
    let heading: Vec<String> =
        setting.heading("torchtitan 0.3.0").iter().map(|line| format!("# {line}\n")).collect();
    let backend = match setting.layout.switches.token_dispatcher {
        TokenDispatcher::DeepEp if setting.has_experts() => ", moe_comm_backend=\"deepep\"",
        TokenDispatcher::HybridEp if setting.has_experts() => ", moe_comm_backend=\"hybridep\"",
        _ => "",
    };
    let mut text = format!("{}\n{}", heading.concat(), model.imports);
    text.push_str(&model.definitions);
    let converters = if setting.training.precision.is_cast() {
        text.push_str("from torchtitan.components.quantization import Float8LinearConverter\n");
        ", converters=[Float8LinearConverter.Config(model_compile_enabled=True)]"
    } else {
        ""
    };
    let spec = &model.spec;
    let _ = write!(
        text,
        "\n\ndef planned():\n    spec = model_registry({spec}{backend}{converters})\n    config = Trainer.Config(\n        \
         loss=ChunkedLossWrapper.Config(\n            loss_fn=CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(spec)),\n        \
         ),\n        model_spec=spec,\n        optimizer=default_adamw(lr=3e-4),\n        \
         dataloader=HuggingFaceTextDataLoader.Config(dataset=\"c4\"),\n    )\n"
    );
    if setting.layout.pipeline_parallel > 1 {
        text.push_str("    # Layers of each stage, so that none is slower than it must be.\n");
        text.push_str("    config.parallelism.module_fqns_per_model_part = [\n");
        let mut next = 0;
        for stage in &setting.stages {
            let mut names = Vec::new();
            if stage.embedding {
                names.push("\"tok_embeddings\"".to_owned());
            }
            names.extend((next..next + stage.layers).map(|layer| format!("\"layers.{layer}\"")));
            next += stage.layers;
            if stage.head {
                names.extend(["\"norm\"", "\"lm_head\""].map(str::to_owned));
            }
            let _ = writeln!(text, "        [{}],", names.join(", "));
        }
        text.push_str("    ]\n");
    }
    text + "    return config\n"
}
