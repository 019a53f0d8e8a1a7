//! Megatron-LM's arguments.

use ir::cluster::Precision;
use ir::graph::{Recompute, TokenDispatcher};
use ir::layout::ZeroStage;

use super::option::{switch, value};
use crate::interchange::{Imported, StatedStages};
use crate::lint::change::Change;
use crate::lint::finding::OptionChange;

const FULL: [&str; 2] = ["--recompute-method", "--recompute-num-layers"];

/// One change.
pub(super) fn words(
    change: &Change,
    before: &Imported,
    after: &Imported,
) -> Option<Vec<OptionChange>> {
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
pub(super) fn stages(before: &Imported, after: &Imported) -> Vec<OptionChange> {
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

/// Sequence parallelism, where tensor parallelism begins and nobody named it.
pub(super) fn sequence(
    changes: &[Change],
    before: &Imported,
    after: &Imported,
) -> Option<OptionChange> {
    let has = |it: &Imported| it.layout.tensor_parallel > 1 && it.layout.sequence_parallel;
    let named = changes.iter().any(|it| matches!(it, Change::SequenceParallel(_)));
    (has(after) && !has(before) && !named).then(|| OptionChange::set("--sequence-parallel", None))
}

/// All the names under which Megatron has something.
pub(super) fn options(change: &Change) -> &'static [&'static str] {
    match change {
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
    }
}

/// Whether an option says where a pipeline is cut.
pub(in crate::lint) fn cuts_stages(option: &str) -> bool {
    matches!(
        option,
        "--num-layers-per-virtual-pipeline-stage"
            | "--pipeline-model-parallel-layout"
            | "--decoder-first-pipeline-num-layers"
            | "--account-for-embedding-in-pipeline-split"
    )
}

/// Fewer layers in each stage, the nearest first.
pub(in crate::lint) fn fewer_layers(option: &str, now: &str) -> Vec<Vec<OptionChange>> {
    if option != "--num-layers-per-virtual-pipeline-stage" {
        return Vec::new();
    }
    let most = now.parse::<u32>().unwrap_or(1).min(64);
    (1..=most).rev().map(|each| vec![value(option, each)]).collect()
}

/// An option left out together with the one that says the same for the other end of the pipeline.
pub(in crate::lint) fn without_both_ends(option: &str) -> Option<Vec<OptionChange>> {
    let ends = [
        ["--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"],
        ["--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"],
    ];
    let ends = ends.into_iter().find(|ends| ends.contains(&option))?;
    Some(ends.map(OptionChange::remove).to_vec())
}

/// A missing option with the value that is right more often than another, and what it needs beside it.
pub(in crate::lint) fn added(option: &str) -> Vec<OptionChange> {
    match option {
        "--recompute-method" => vec![value(option, "uniform"), value("--recompute-num-layers", 1)],
        _ => vec![value(option, 1)],
    }
}

/// What of two options that contradict each other could go, or what the one needs.
pub(in crate::lint) fn contradiction(one: &str, other: &str) -> Vec<Vec<OptionChange>> {
    let Some(needed) = other.strip_prefix("no ") else {
        // Of two formats of 16 bits the one with the larger range stays; of two ways to say the same, the newer.
        let (first, second) = if one == "--fp16" { (one, other) } else { (other, one) };
        return vec![vec![OptionChange::remove(first)], vec![OptionChange::remove(second)]];
    };
    let value = match needed {
        "--recompute-granularity" => Some("selective".to_owned()),
        "--context-parallel-size" => return vec![vec![OptionChange::remove(one)]],
        _ => None,
    };
    vec![vec![OptionChange::set(needed, value)], vec![OptionChange::remove(one)]]
}
