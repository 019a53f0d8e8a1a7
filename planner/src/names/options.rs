//! Other names of the values of options.

use ir::cluster::Precision;
use ir::graph::ContextParallelKind;
use ir::schedule::ScheduleKind;

use super::folded;
use planner_tools::interchange::{Launcher, Target};

/// The schedule that is called `given`, in any writing.
pub fn schedule(given: &str) -> Option<ScheduleKind> {
    let given = folded(given);
    let is_it = |kind: &ScheduleKind| {
        folded(kind.name()) == given || schedule_names(*kind).contains(&given.as_str())
    };
    ScheduleKind::ALL.into_iter().find(is_it)
}

/// What else a schedule is called, folded: in papers, and as PyTorch's classes.
pub fn schedule_names(kind: ScheduleKind) -> &'static [&'static str] {
    match kind {
        ScheduleKind::Sequential => &["naive", "naivepp"],
        ScheduleKind::GPipe => &["schedulegpipe", "allforwardallbackward", "afab"],
        ScheduleKind::OneFOneB => {
            &["schedule1f1b", "onefoneb", "oneforwardonebackward", "pipedreamflush"]
        }
        ScheduleKind::Interleaved => &["interleaved", "scheduleinterleaved1f1b", "1f1binterleaved"],
        ScheduleKind::LoopedBfs => &["scheduleloopedbfs", "bfs", "breadthfirst"],
        ScheduleKind::ZbH1 => &["zh1", "zerobubbleh1", "h1"],
        ScheduleKind::ZbH2 => &["zh2", "zerobubbleh2", "h2"],
        ScheduleKind::InterleavedZb => &["interleavedzerobubble", "scheduleinterleavedzerobubble"],
        ScheduleKind::Zbv => &["zbvzerobubble", "schedulezbvzerobubble", "zerobubblev"],
        ScheduleKind::VHalf | ScheduleKind::VMin | ScheduleKind::Given(_) => &[],
        ScheduleKind::DualPipe => &["scheduledualpipe"],
        ScheduleKind::DualPipeV => &["scheduledualpipev"],
        ScheduleKind::AsyncOneFOneB => &["pipedream", "asynchronous1f1b"],
    }
}

/// Schedules of a kind that is no single one.
pub fn schedules_like(given: &str) -> Option<&'static str> {
    match folded(given).as_str() {
        "zerobubble" | "zb" | "zbpp" | "zbh" => Some(
            "several split backward: `zb-h1` has the memory of 1f1b and less of its bubble, `zb-h2` hardly a bubble and up to twice the memory, `zbv` hardly a bubble and the memory of 1f1b, with two chunks a rank",
        ),
        "v" | "vshape" | "vschedule" => Some(
            "several are V-shaped: `zbv` with the memory of 1f1b, `v-half` with half of it, `v-min` with a third",
        ),
        "dual" | "bidirectional" | "deepseek" => Some(
            "`dualpipe` runs the pipeline from both ends; `dualpipev` is half of it, folded into a V",
        ),
        _ => None,
    }
}

/// What else a number format is called, folded: in PyTorch, JAX and launch scripts.
pub fn precision_names(precision: Precision) -> &'static [&'static str] {
    match precision {
        Precision::Fp32 => &["float32", "f32", "float", "single", "torchfloat32"],
        Precision::Fp16 => &["float16", "f16", "half", "torchfloat16", "fp16mixed", "16mixed"],
        Precision::Bf16 => &["bfloat16", "bfloat", "torchbfloat16", "bf16mixed", "bfp16"],
        Precision::Fp8 => {
            &["float8", "f8", "fp8hybrid", "e4m3", "fp8e4m3", "torchfloat8e4m3fn", "mxfp8"]
        }
        Precision::Fp4 => &["float4", "f4", "nvfp4", "mxfp4", "e2m1"],
    }
}

/// What else a tool that trains is called, folded.
pub fn target_names(target: Target) -> &'static [&'static str] {
    match target {
        Target::Megatron => &["megatronlm", "megatroncore", "mcore"],
        Target::MegatronBridge => &["bridge", "nemo"],
        Target::TorchTitan => &["titan"],
        Target::DeepSpeed => &["ds"],
        Target::Accelerate => &["huggingface", "hfaccelerate", "fsdp", "fsdp2"],
        Target::Trainer => &["transformers", "hftrainer", "huggingfacetrainer"],
        Target::Nanotron => &[],
        Target::Executor => &["burn"],
    }
}

/// What else a launcher is called, folded.
pub fn launcher_names(launcher: Launcher) -> &'static [&'static str] {
    match launcher {
        Launcher::Torchrun => &["torch", "elastic", "torchdistributedrun"],
        Launcher::Slurm => &["srun", "sbatch"],
        Launcher::Mpirun => &["mpi", "openmpi", "mpiexec"],
        Launcher::Kubernetes => &["k8s", "kubeflow"],
    }
}

/// What else a kind of context parallelism is called, folded.
pub fn context_names(kind: ContextParallelKind) -> &'static [&'static str] {
    match kind {
        ContextParallelKind::Ring => &["p2p", "ringattention"],
        ContextParallelKind::AllToAll => &["a2a", "ulysses", "deepspeedulysses"],
    }
}
