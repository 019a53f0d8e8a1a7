//! Changes in the words of the tools, by the names that each has for them.

use ir::cluster::Precision;
use ir::graph::{Recompute, TokenDispatcher};
use ir::layout::ZeroStage;

use super::change::Change;
use super::finding::OptionChange;
use crate::interchange::{Imported, StatedStages, Target};

/// Whose words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speech {
    /// Those of a tool.
    Tool(Target),
    /// Those of this command, of a plan.
    Planner,
}

/// The changes of options that lead from settings to others which differ by these changes; `None` where the tool has no
/// word for one of them.
pub(super) fn words(
    speech: Speech,
    changes: &[Change],
    before: &Imported,
    after: &Imported,
) -> Option<Vec<OptionChange>> {
    let mut all = Vec::new();
    for change in changes {
        let of_change = match speech {
            Speech::Tool(Target::Megatron) => megatron(change, before, after)?,
            Speech::Tool(Target::TorchTitan) => torchtitan(change)?,
            Speech::Tool(Target::DeepSpeed) => deepspeed(change)?,
            Speech::Tool(Target::Trainer) => trainer(change)?,
            Speech::Tool(Target::Executor) | Speech::Planner => planner(change)?,
            Speech::Tool(Target::Accelerate) => accelerate(change)?,
            Speech::Tool(Target::Nanotron) => nanotron(change)?,
            // Python is not written by other means than a new export.
            Speech::Tool(Target::MegatronBridge) => return None,
        };
        all.extend(of_change);
    }
    if speech == Speech::Tool(Target::Megatron) {
        all.extend(stages(before, after));
        let has = |it: &Imported| it.layout.tensor_parallel > 1 && it.layout.sequence_parallel;
        let named = changes.iter().any(|it| matches!(it, Change::SequenceParallel(_)));
        if has(after) && !has(before) && !named {
            all.push(OptionChange::set("--sequence-parallel", None));
        }
    }
    if let (Speech::Planner, StatedStages::Blocks(counts)) = (speech, &after.stages)
        && changes.contains(&Change::CutAnew)
    {
        let counts: Vec<String> = counts.iter().map(u32::to_string).collect();
        all.push(value("--stages", counts.join(",")));
    }
    (!all.is_empty()).then_some(all)
}

/// The options that say what a finding is about, by tool.
pub(super) fn options(speech: Speech, change: &Change) -> Vec<String> {
    let of_change = match speech {
        Speech::Tool(Target::Megatron) => return megatron_options(change),
        Speech::Tool(Target::TorchTitan) => torchtitan(change),
        Speech::Tool(Target::DeepSpeed) => deepspeed(change),
        Speech::Tool(Target::Trainer) => trainer(change),
        Speech::Planner => return plan_keys(change),
        Speech::Tool(Target::Executor) => planner(change),
        Speech::Tool(Target::Accelerate) => accelerate(change),
        Speech::Tool(Target::Nanotron) => nanotron(change),
        Speech::Tool(Target::MegatronBridge) => None,
    };
    of_change.into_iter().flatten().map(|it| it.option().to_owned()).collect()
}

/// Where a plan has it.
fn plan_keys(change: &Change) -> Vec<String> {
    let key = match change {
        Change::TensorParallel(_) => "layout.tensor_parallel",
        Change::SequenceParallel(_) => "layout.sequence_parallel",
        Change::Pipeline(_) => "layout.pipeline_parallel",
        Change::VirtualStages(_) => "layout.virtual_stages",
        Change::Context(_) => "layout.context_parallel",
        Change::Expert(_) => "layout.expert_parallel",
        Change::ExpertTensor(_) => "layout.expert_tensor_parallel",
        Change::MicroBatch(_) => "layout.micro_batch_size",
        Change::GlobalBatch(_) => "training.global_batch_size",
        Change::Sequence(_) => "training.sequence_length",
        Change::Recompute(_) => "layout.recompute",
        Change::Zero(_) => "layout.zero_stage",
        Change::OneShardGroup => "layout.zero_shard",
        Change::Precision(_) => "training.precision",
        Change::Dispatcher(_) => "layout.switches.token_dispatcher",
        Change::NoOffload => "layout.offload",
        Change::CutAnew => "stages",
        Change::Gpus(_) => "num_gpus",
        Change::ReplicasOverlap { .. } => "framework.gradients.reduced",
        Change::VocabularyMultiple(_) => "framework.tensor_parallel.vocabulary_multiple",
    };
    vec![key.to_owned()]
}

/// All the names under which Megatron has something.
fn megatron_options(change: &Change) -> Vec<String> {
    let names: &[&str] = match change {
        Change::TensorParallel(_) => &["--tensor-model-parallel-size"],
        Change::SequenceParallel(_) => &["--sequence-parallel", "--tensor-model-parallel-size"],
        Change::Pipeline(_) => &["--pipeline-model-parallel-size"],
        Change::VirtualStages(_) => &[
            "--num-virtual-stages-per-pipeline-rank",
            "--num-layers-per-virtual-pipeline-stage",
            "--pipeline-model-parallel-layout",
        ],
        Change::Context(_) => &["--context-parallel-size"],
        Change::Expert(_) => &["--expert-model-parallel-size"],
        Change::ExpertTensor(_) => &["--expert-tensor-parallel-size"],
        Change::MicroBatch(_) => &["--micro-batch-size"],
        Change::GlobalBatch(_) => &["--global-batch-size"],
        Change::Sequence(_) => &["--seq-length"],
        Change::Recompute(_) => &["--recompute-granularity", "--recompute-activations"],
        Change::Zero(_) => {
            &["--use-distributed-optimizer", "--use-megatron-fsdp", "--use-torch-fsdp2"]
        }
        Change::OneShardGroup => &["--num-distributed-optimizer-instances"],
        Change::ReplicasOverlap { .. } => &["--overlap-grad-reduce"],
        Change::Precision(_) => &["--fp8-format", "--fp4-format", "--fp16", "--bf16"],
        Change::VocabularyMultiple(_) => &["--make-vocab-size-divisible-by"],
        Change::Dispatcher(_) => &["--moe-token-dispatcher-type"],
        Change::NoOffload => &["--optimizer-cpu-offload", "--cpu-offloading-num-layers"],
        Change::CutAnew => &[
            "--pipeline-model-parallel-layout",
            "--decoder-first-pipeline-num-layers",
            "--decoder-last-pipeline-num-layers",
            "--pipeline-model-parallel-size",
        ],
        Change::Gpus(_) => &["--nnodes", "--nproc_per_node", "--nproc-per-node"],
    };
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[expect(clippy::needless_pass_by_value, reason = "so that numbers are written plainly")]
fn value(name: &str, value: impl ToString) -> OptionChange {
    OptionChange::set(name, Some(value.to_string()))
}

fn switch(name: &str, is_on: bool) -> OptionChange {
    if is_on { OptionChange::set(name, None) } else { OptionChange::remove(name) }
}

const FULL: [&str; 2] = ["--recompute-method", "--recompute-num-layers"];

fn megatron(change: &Change, before: &Imported, after: &Imported) -> Option<Vec<OptionChange>> {
    let layout = &after.layout;
    Some(match change {
        Change::TensorParallel(degree) => {
            let mut all = vec![value("--tensor-model-parallel-size", degree)];
            if *degree == 1 && before.layout.sequence_parallel {
                all.push(OptionChange::remove("--sequence-parallel"));
            }
            all
        }
        Change::SequenceParallel(is_on) => vec![switch("--sequence-parallel", *is_on)],
        Change::Pipeline(degree) => vec![value("--pipeline-model-parallel-size", degree)],
        Change::VirtualStages(_) => Vec::new(),
        Change::Context(1) => vec![
            OptionChange::remove("--context-parallel-size"),
            OptionChange::remove("--cp-comm-type"),
        ],
        Change::Context(degree) => vec![value("--context-parallel-size", degree)],
        Change::Expert(degree) => vec![value("--expert-model-parallel-size", degree)],
        Change::ExpertTensor(degree) => vec![value("--expert-tensor-parallel-size", degree)],
        Change::MicroBatch(sequences) => vec![value("--micro-batch-size", sequences)],
        Change::GlobalBatch(sequences) => vec![value("--global-batch-size", sequences)],
        Change::Sequence(tokens) => vec![value("--seq-length", tokens)],
        Change::Recompute(recompute) => megatron_recompute(*recompute)?,
        Change::Zero(stage) => megatron_zero(*stage, before),
        Change::OneShardGroup => {
            vec![OptionChange::remove("--num-distributed-optimizer-instances")]
        }
        Change::ReplicasOverlap { gathers } => {
            let mut all = vec![switch("--overlap-grad-reduce", true)];
            if *gathers && layout.zero_stage != ZeroStage::None {
                all.push(switch("--overlap-param-gather", true));
            }
            all
        }
        Change::Precision(precision) => megatron_precision(*precision)?,
        Change::VocabularyMultiple(multiple) => {
            vec![value("--make-vocab-size-divisible-by", multiple)]
        }
        Change::Dispatcher(TokenDispatcher::AllToAll) => {
            vec![value("--moe-token-dispatcher-type", "alltoall")]
        }
        Change::Dispatcher(_) | Change::Gpus(_) => return None,
        Change::NoOffload => ["--optimizer-cpu-offload", "--cpu-offloading-num-layers"]
            .map(OptionChange::remove)
            .to_vec(),
        Change::CutAnew => Vec::new(),
    })
}

/// What says what is computed again.
fn megatron_recompute(recompute: Recompute) -> Option<Vec<OptionChange>> {
    let plain = "--recompute-activations";
    let granularity = "--recompute-granularity";
    let mut all = vec![OptionChange::remove(plain), OptionChange::remove(granularity)];
    let modules = "--recompute-modules";
    match recompute {
        Recompute::None => {
            all.extend([FULL[0], FULL[1], modules].map(OptionChange::remove));
        }
        Recompute::Full | Recompute::FirstLayers(_) => {
            let count = recompute.first_layers();
            all = vec![
                OptionChange::remove(plain),
                OptionChange::remove(modules),
                value(granularity, "full"),
                value(FULL[0], if count.is_some() { "block" } else { "uniform" }),
                value(FULL[1], count.unwrap_or(1)),
            ];
        }
        Recompute::Modules(modules_of) => {
            let names: Vec<&str> =
                modules_of.iter().map(|it| it.names().1.unwrap_or(it.names().0)).collect();
            all = vec![
                OptionChange::remove(plain),
                value(granularity, "selective"),
                value(modules, names.join(" ")),
            ];
            all.extend(FULL.map(OptionChange::remove));
        }
        Recompute::Selective => return None,
    }
    Some(all)
}

/// What says what replicas share.
fn megatron_zero(stage: ZeroStage, before: &Imported) -> Vec<OptionChange> {
    match stage {
        ZeroStage::OptimizerState => {
            let mut all = vec![switch("--use-distributed-optimizer", true)];
            let fsdp = [
                "--use-megatron-fsdp",
                "--use-torch-fsdp2",
                "--data-parallel-sharding-strategy",
                "--torch-fsdp2-no-reshard-after-forward",
                "--ckpt-format",
                "--no-gradient-accumulation-fusion",
            ];
            if before.layout.zero_stage > ZeroStage::OptimizerState {
                all.extend(fsdp.map(OptionChange::remove));
            }
            all
        }
        ZeroStage::None => vec![
            OptionChange::remove("--use-distributed-optimizer"),
            OptionChange::remove("--overlap-param-gather"),
        ],
        ZeroStage::Gradients | ZeroStage::Parameters => {
            let strategy =
                if stage == ZeroStage::Gradients { "optim_grads" } else { "optim_grads_params" };
            vec![
                switch("--use-megatron-fsdp", true),
                value("--data-parallel-sharding-strategy", strategy),
                value("--ckpt-format", "fsdp_dtensor"),
                switch("--no-gradient-accumulation-fusion", true),
                OptionChange::remove("--use-distributed-optimizer"),
            ]
        }
    }
}

/// What says the number format.
fn megatron_precision(precision: Precision) -> Option<Vec<OptionChange>> {
    let few = [
        "--fp8-format",
        "--fp8-recipe",
        "--fp8-param-gather",
        "--fp8-amax-history-len",
        "--fp8-amax-compute-algo",
        "--fp4-format",
        "--fp4-recipe",
    ];
    let sixteen = match precision {
        Precision::Bf16 => ["--fp16", "--bf16"],
        Precision::Fp16 => ["--bf16", "--fp16"],
        _ => return None,
    };
    let mut all = few.map(OptionChange::remove).to_vec();
    all.extend([OptionChange::remove(sixteen[0]), switch(sixteen[1], true)]);
    Some(all)
}

/// How Megatron is told the stages, where they differ.
fn stages(before: &Imported, after: &Imported) -> Vec<OptionChange> {
    let (old, new) = (&before.layout, &after.layout);
    let is_same = before.stages == after.stages
        && (old.pipeline_parallel, old.virtual_stages)
            == (new.pipeline_parallel, new.virtual_stages);
    if is_same {
        return Vec::new();
    }
    let of_rank = "--num-virtual-stages-per-pipeline-rank";
    let others = [
        "--num-layers-per-virtual-pipeline-stage",
        "--decoder-first-pipeline-num-layers",
        "--decoder-last-pipeline-num-layers",
        "--account-for-embedding-in-pipeline-split",
        "--account-for-loss-in-pipeline-split",
        "--microbatch-group-size-per-virtual-pipeline-stage",
    ];
    let mut all = others.map(OptionChange::remove).to_vec();
    if let StatedStages::Blocks(counts) = &after.stages {
        all.push(OptionChange::remove(of_rank));
        all.push(value("--pipeline-model-parallel-layout", layout_text(counts)));
    } else {
        all.push(OptionChange::remove("--pipeline-model-parallel-layout"));
        all.push(match new.virtual_stages {
            1 => OptionChange::remove(of_rank),
            stages => value(of_rank, stages),
        });
    }
    all
}

/// Stages in the letters of `--pipeline-model-parallel-layout`, equal ones that follow each other counted:
/// `Et*8|(t*9|)*2t*4L`.
fn layout_text(counts: &[u32]) -> String {
    let last = counts.len().saturating_sub(1);
    let stage = |(index, count): (usize, &u32)| {
        let (first, is_last) = (index == 0, index == last);
        let layers = count.saturating_sub(u32::from(first) + u32::from(is_last));
        let [embedding, head] =
            [(first, "E"), (is_last, "L")].map(|(has, letter)| if has { letter } else { "" });
        let layers = match layers {
            0 => String::new(),
            1 => "t".to_owned(),
            _ => format!("t*{layers}"),
        };
        format!("{embedding}{layers}{head}")
    };
    let texts: Vec<String> = counts.iter().enumerate().map(stage).collect();
    // What follows a bar is another stage, so the last has none after it and is not counted with others.
    let Some((last, others)) = texts.split_last() else { return String::new() };
    let runs = others.chunk_by(|one, other| one == other).map(|run| match run.len() {
        1 => format!("{}|", run[0]),
        times => format!("({}|)*{times}", run[0]),
    });
    runs.collect::<String>() + last
}

fn torchtitan(change: &Change) -> Option<Vec<OptionChange>> {
    let parallelism = |name: &str, degree: &dyn ToString| {
        Some(vec![value(&format!("--parallelism.{name}"), degree.to_string())])
    };
    match change {
        Change::TensorParallel(degree) => parallelism("tensor_parallel_degree", degree),
        Change::Pipeline(degree) => parallelism("pipeline_parallel_degree", degree),
        Change::Context(degree) => parallelism("context_parallel_degree", degree),
        Change::Expert(degree) => parallelism("expert_parallel_degree", degree),
        Change::SequenceParallel(is_on) => parallelism("enable_sequence_parallel", is_on),
        Change::MicroBatch(sequences) => {
            Some(vec![value("--training.local_batch_size", sequences)])
        }
        Change::GlobalBatch(sequences) => {
            Some(vec![value("--training.global_batch_size", sequences)])
        }
        Change::Sequence(tokens) => Some(vec![value("--training.seq_len", tokens)]),
        _ => None,
    }
}

fn deepspeed(change: &Change) -> Option<Vec<OptionChange>> {
    let one = |name: &str, it: &dyn ToString| Some(vec![value(name, it.to_string())]);
    match change {
        Change::TensorParallel(degree) => one("tensor_parallel.autotp_size", degree),
        Change::MicroBatch(sequences) => one("train_micro_batch_size_per_gpu", sequences),
        Change::GlobalBatch(sequences) => one("train_batch_size", sequences),
        Change::Zero(stage) => one("zero_optimization.stage", &stage.number()),
        Change::ReplicasOverlap { .. } => one("zero_optimization.overlap_comm", &true),
        Change::NoOffload => {
            Some(vec![OptionChange::remove("zero_optimization.offload_optimizer")])
        }
        Change::Precision(Precision::Bf16) => {
            Some(vec![value("bf16.enabled", true), value("fp16.enabled", false)])
        }
        _ => None,
    }
}

fn trainer(change: &Change) -> Option<Vec<OptionChange>> {
    match change {
        Change::MicroBatch(sequences) => {
            Some(vec![value("--per_device_train_batch_size", sequences)])
        }
        Change::Recompute(Recompute::None) => {
            Some(vec![OptionChange::remove("--gradient_checkpointing")])
        }
        Change::Recompute(Recompute::Full) => Some(vec![value("--gradient_checkpointing", true)]),
        Change::Precision(Precision::Bf16) => {
            Some(vec![OptionChange::remove("--fp16"), value("--bf16", true)])
        }
        _ => None,
    }
}

fn accelerate(change: &Change) -> Option<Vec<OptionChange>> {
    let one = |name: &str, it: &dyn ToString| Some(vec![value(name, it.to_string())]);
    let of = |name: &str, it: &dyn ToString| {
        one(&format!("parallelism_config.parallelism_config_{name}_size"), it)
    };
    match change {
        Change::TensorParallel(degree) => of("tp", degree),
        Change::Context(degree) => of("cp", degree),
        Change::Recompute(Recompute::None) => {
            one("fsdp_config.fsdp_activation_checkpointing", &false)
        }
        Change::Recompute(Recompute::Full) => {
            one("fsdp_config.fsdp_activation_checkpointing", &true)
        }
        Change::Zero(ZeroStage::Gradients) => one("fsdp_config.fsdp_reshard_after_forward", &false),
        Change::Zero(ZeroStage::Parameters) => one("fsdp_config.fsdp_reshard_after_forward", &true),
        Change::Precision(Precision::Bf16) => one("mixed_precision", &"bf16"),
        _ => None,
    }
}

fn nanotron(change: &Change) -> Option<Vec<OptionChange>> {
    let one = |name: &str, it: &dyn ToString| Some(vec![value(name, it.to_string())]);
    match change {
        Change::TensorParallel(degree) => one("parallelism.tp", degree),
        Change::Pipeline(degree) => one("parallelism.pp", degree),
        Change::Expert(degree) => one("parallelism.expert_parallel_size", degree),
        Change::MicroBatch(sequences) => one("tokens.micro_batch_size", sequences),
        Change::Sequence(tokens) => one("tokens.sequence_length", tokens),
        Change::Zero(stage @ (ZeroStage::None | ZeroStage::OptimizerState)) => {
            one("optimizer.zero_stage", &stage.number())
        }
        _ => None,
    }
}

/// Arguments of `planner evaluate`.
fn planner(change: &Change) -> Option<Vec<OptionChange>> {
    let one = |name: &str, it: &dyn ToString| Some(vec![value(name, it.to_string())]);
    match change {
        Change::TensorParallel(degree) => one("--tp", degree),
        Change::SequenceParallel(is_on) => one("--sequence-parallel", is_on),
        Change::Pipeline(degree) => one("--pp", degree),
        Change::VirtualStages(stages) => one("--virtual-stages", stages),
        Change::Context(degree) => one("--cp", degree),
        Change::Expert(degree) => one("--ep", degree),
        Change::ExpertTensor(degree) => one("--etp", degree),
        Change::MicroBatch(sequences) => one("--micro-batch-size", sequences),
        Change::GlobalBatch(sequences) => one("--global-batch-size", sequences),
        Change::Recompute(recompute) => one("--recompute", recompute),
        Change::Sequence(tokens) => one("--seq-len", tokens),
        Change::Zero(stage) => one("--zero", &stage.number()),
        Change::Precision(precision) => one("--precision", precision),
        Change::NoOffload => Some(vec![OptionChange::remove("--offload")]),
        Change::CutAnew => Some(Vec::new()),
        Change::Gpus(ranks) => one("--gpus", ranks),
        _ => None,
    }
}
