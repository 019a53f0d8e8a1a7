//! The layout in Megatron's arguments.

use std::fmt::Write as _;

use ir::cluster::Architecture;
use ir::framework::{Abilities, TensorOverlap, UpdatedParameters, WhenReduced};
use ir::graph::{
    ContextParallelKind, CudaGraphs, ExpertOverlap, Recompute, RecomputeModule, RecomputeModules,
    TokenDispatcher,
};
use ir::layout::{OffloadedActivations, ZeroStage};

use super::super::argument::{Argument, Section};
use super::super::error::Lack;
use super::super::setting::{Setting, StageParts};

/// Arguments of the layout, by topic.
pub(super) fn sections(setting: &Setting<'_>) -> Vec<Section> {
    let gpus = setting.plan.num_gpus;
    let replicas = setting.layout.data_parallel;
    vec![
        Section::new(
            format!("layout: {gpus} ranks, data parallelism is what is left of them: {replicas}"),
            degrees(setting),
        ),
        Section::new("experts", experts(setting)),
        Section::new("what replicas share", replicas_share(setting)),
        Section::new("activations", activations(setting)),
    ]
}

/// Environment variables that the arguments take, each with its reason.
pub(in super::super) fn environment(setting: &Setting<'_>) -> Vec<(&'static str, String, String)> {
    let architecture = setting.plan.cluster.gpu.architecture;
    let is_fsdp = setting.layout.zero_stage >= ZeroStage::Gradients;
    let overlaps = setting.layout.switches.expert_overlap == ExpertOverlap::MicroBatch;
    let mut all = Vec::new();
    let connections = "CUDA_DEVICE_MAX_CONNECTIONS";
    if is_fsdp || overlaps {
        let why = if is_fsdp {
            "sharded parameters are gathered beside computation, which one queue would put in a row"
        } else {
            "experts' exchanges run beside another micro-batch, which one queue would put in a row"
        };
        all.push((connections, "32".to_owned(), why.to_owned()));
    } else if architecture != Architecture::Blackwell {
        let why = "kernels start in the order they are launched in, so exchanges start first";
        all.push((connections, "1".to_owned(), why.to_owned()));
    }
    if !is_fsdp {
        all.push((
            "NCCL_NVLS_ENABLE",
            "0".to_owned(),
            "multicast buffers are memory that the plan does not count".to_owned(),
        ));
    }
    if setting.layout.switches.cuda_graphs != CudaGraphs::None {
        all.push((
            "NCCL_GRAPH_REGISTER",
            "0".to_owned(),
            "buffers of captured collectives would not survive segments that expand".to_owned(),
        ));
    }
    all.push((
        "PYTORCH_CUDA_ALLOC_CONF",
        "expandable_segments:True".to_owned(),
        "less of the allocator's memory lies idle".to_owned(),
    ));
    all
}

/// What Megatron cannot be told of a plan's layout.
pub(super) fn lacks(setting: &Setting<'_>) -> Vec<Lack> {
    let layout = &setting.layout;
    let mut lacks = Vec::new();
    let unnamed = |module: &RecomputeModule| {
        module.names().1.is_none() && *module != RecomputeModule::SharedExperts
    };
    match layout.recompute {
        Recompute::Selective => lacks.push(Lack::new(
            "recompute of activation functions of dense layers (`selective`): `--recompute-modules` has none of \
             them by themselves",
            "`--recompute norms` is what it has of them, `--recompute feed_forward` whole blocks",
        )),
        Recompute::Modules(modules) if modules.iter().any(|it| unnamed(&it)) => {
            lacks.push(Lack::new(
                "recompute of `activations`: `--recompute-modules` has no activation functions of dense layers",
                "`--recompute` without them",
            ));
        }
        _ => {}
    }
    if !Abilities::takes_graphs_with(layout.switches.cuda_graphs, layout.recompute) {
        lacks.push(Lack::new(
            "CUDA graphs of layers that are computed again whole",
            "`--cuda-graphs none`, or `--recompute norms`",
        ));
    }
    let stages = &setting.stages;
    let spread = stages.iter().filter(|stage| stage.prediction_modules > 0).count();
    if spread > 1 {
        lacks.push(Lack::new(
            "modules for multi-token prediction on several stages",
            "stages of which one has all of them, by `--stages`",
        ));
    }
    if layout.switches.expert_overlap == ExpertOverlap::MicroBatch {
        let wants = [
            (layout.expert_parallel > 1, "more than one expert-parallel rank"),
            (
                layout.switches.token_dispatcher != TokenDispatcher::AllGather,
                "a dispatcher other than `all-gather`",
            ),
            (
                setting.num_prediction_modules() <= 1,
                "one module for multi-token prediction at most",
            ),
        ];
        for (has, what) in wants {
            if !has {
                lacks.push(Lack::new(
                    format!("experts' exchanges beside another micro-batch without {what}"),
                    "`--expert-overlap none`",
                ));
            }
        }
    }
    if layout.offload.optimizer && layout.zero_stage != ZeroStage::OptimizerState {
        lacks.push(Lack::new(
            "the optimizer's state on the host without the distributed optimizer",
            "`--zero 1`",
        ));
    }
    if setting.training.bf16_moments && layout.zero_stage == ZeroStage::None {
        lacks.push(Lack::new("moments in bf16 without the distributed optimizer", "`--zero 1`"));
    }
    lacks
}

fn degrees(setting: &Setting<'_>) -> Vec<Argument> {
    let layout = &setting.layout;
    let node = setting.plan.cluster.gpus_per_node;
    let tensor = layout.tensor_parallel;
    let of_tensor = match tensor {
        1 => "products are whole".to_owned(),
        _ if tensor <= node => {
            format!("products over {tensor} neighbours, within a node of {node}")
        }
        _ => format!("products over {tensor} ranks, across nodes of {node}"),
    };
    let mut all = vec![Argument::value("--tensor-model-parallel-size", tensor, of_tensor)];
    if layout.sequence_parallel && tensor > 1 {
        let why = "norms and residuals keep a part of the sequence each, not a copy";
        all.push(Argument::switch("--sequence-parallel", why));
        if setting.plan.framework.tensor_parallel.overlap == TensorOverlap::Products {
            let why =
                "exchanges run piece by piece beside the products that take them, as predicted";
            all.push(Argument::switch("--tp-comm-overlap", why));
        }
    }
    all.extend(pipeline(setting));
    let context = layout.context_parallel;
    if context > 1 {
        let why = format!("each sequence is cut over {context} ranks");
        all.push(Argument::value("--context-parallel-size", context, why));
        let (kind, why) = match layout.context_parallel_kind {
            ContextParallelKind::Ring => ("p2p", "keys and values go round beside attention"),
            ContextParallelKind::AllToAll => ("a2a", "heads are exchanged for positions"),
        };
        all.push(Argument::value("--cp-comm-type", kind, why));
    }
    all
}

fn pipeline(setting: &Setting<'_>) -> Vec<Argument> {
    let layout = &setting.layout;
    let pipeline = layout.pipeline_parallel;
    let of_stages = match pipeline {
        1 => "every rank has all layers".to_owned(),
        _ => format!("layers over {pipeline} ranks, {} GPUs apart", layout.ranks_per_stage()),
    };
    let mut all = vec![Argument::value("--pipeline-model-parallel-size", pipeline, of_stages)];
    let stages = layout.virtual_stages;
    if pipeline == 1 {
        return all;
    }
    if !setting.is_even() {
        let why = "layers of each stage (t), so that none is slower than it must be";
        let text = layout_text(&setting.stages);
        all.push(Argument::value("--pipeline-model-parallel-layout", text, why));
    } else if stages > 1 {
        let why = format!("{stages} stages on each rank: the bubble is {stages} times shorter");
        all.push(Argument::value("--num-virtual-stages-per-pipeline-rank", stages, why));
    }
    all
}

/// Stages in the letters of `--pipeline-model-parallel-layout`; equal ones that follow each other are counted.
fn layout_text(stages: &[StageParts]) -> String {
    let of_stage = |stage: &StageParts| {
        let several = |letter: &str, count: u32| match count {
            0 => String::new(),
            1 => letter.to_owned(),
            _ => format!("{letter}*{count}"),
        };
        let [embedding, head] = [(stage.embedding, "E"), (stage.head, "L")]
            .map(|(has, letter)| if has { letter } else { "" });
        let layers = several("t", stage.layers);
        format!("{embedding}{layers}{}{head}", several("m", stage.prediction_modules))
    };
    let texts: Vec<String> = stages.iter().map(of_stage).collect();
    // What follows a bar is another stage, so the last has none after it and is not counted with others.
    let Some((last, others)) = texts.split_last() else { return String::new() };
    let mut text = String::new();
    for run in others.chunk_by(|one, other| one == other) {
        if run.len() > 1 {
            let _ = write!(text, "({}|)*{}", run[0], run.len());
        } else {
            let _ = write!(text, "{}|", run[0]);
        }
    }
    text + last
}

fn experts(setting: &Setting<'_>) -> Vec<Argument> {
    if !setting.has_experts() {
        return Vec::new();
    }
    let layout = &setting.layout;
    let (expert, tensor) = (layout.expert_parallel, layout.expert_tensor_parallel);
    let mut all = vec![Argument::value(
        "--expert-model-parallel-size",
        expert,
        format!("experts are spread over {expert} ranks"),
    )];
    let why = if tensor == layout.tensor_parallel {
        "experts are cut as all else is"
    } else {
        "experts are cut less than all else: their products are large enough as they are"
    };
    all.push(Argument::value("--expert-tensor-parallel-size", tensor, why));
    let (kind, backend) = match layout.switches.token_dispatcher {
        TokenDispatcher::AllToAll => ("alltoall", None),
        TokenDispatcher::AllGather => ("allgather", None),
        TokenDispatcher::DeepEp => ("flex", Some("deepep")),
        TokenDispatcher::HybridEp => ("flex", Some("hybridep")),
    };
    let why = match layout.switches.token_dispatcher {
        TokenDispatcher::AllToAll => "a token is sent once for each of its experts",
        TokenDispatcher::AllGather => {
            "all tokens go to all ranks, which suits many experts a token"
        }
        TokenDispatcher::DeepEp | TokenDispatcher::HybridEp => "a token crosses a network once",
    };
    all.push(Argument::value("--moe-token-dispatcher-type", kind, why));
    if let Some(backend) = backend {
        let why = "whose kernels carry the tokens";
        all.push(Argument::value("--moe-flex-dispatcher-backend", backend, why));
    }
    all.push(Argument::switch(
        "--moe-grouped-gemm",
        "one kernel for a rank's experts, as predicted",
    ));
    if layout.switches.expert_overlap == ExpertOverlap::MicroBatch {
        let why = "exchanges run beside another micro-batch's kernels";
        all.push(Argument::switch("--overlap-moe-expert-parallel-comm", why));
    }
    all
}

fn replicas_share(setting: &Setting<'_>) -> Vec<Argument> {
    let layout = &setting.layout;
    let framework = &setting.plan.framework;
    let mut all = Vec::new();
    let replicas = setting.replicas();
    let groups = replicas / layout.zero_shard.max(1);
    let strategy = match layout.zero_stage {
        ZeroStage::None => None,
        ZeroStage::OptimizerState => {
            let why = "each replica keeps a part of the optimizer's state (ZeRO 1)";
            all.push(Argument::switch("--use-distributed-optimizer", why));
            None
        }
        ZeroStage::Gradients => Some(("optim_grads", "and of the gradients (ZeRO 2)")),
        ZeroStage::Parameters => Some(("optim_grads_params", "gradients and parameters (ZeRO 3)")),
    };
    if let Some((name, why)) = strategy {
        let of = "Megatron's FSDP: each replica keeps a part of the optimizer's state";
        all.push(Argument::switch("--use-megatron-fsdp", of));
        all.push(Argument::value("--data-parallel-sharding-strategy", name, why));
        all.push(Argument::value("--ckpt-format", "fsdp_dtensor", "the one that FSDP writes"));
        let why = "FSDP reduces gradients as they come";
        all.push(Argument::switch("--no-gradient-accumulation-fusion", why));
    }
    if groups > 1 && layout.zero_stage != ZeroStage::None {
        let why =
            format!("sharded over {} ranks each: {groups} groups of replicas", layout.zero_shard);
        all.push(Argument::value("--num-distributed-optimizer-instances", groups, why));
    }
    let reduces_beside = framework.gradients.reduced == WhenReduced::BesideBackward;
    if replicas > 1 && reduces_beside {
        let why = "gradients are reduced beside backward";
        all.push(Argument::switch("--overlap-grad-reduce", why));
        let gathers_beside = framework.parameters.gathered == UpdatedParameters::BesideForward;
        if gathers_beside && layout.zero_stage != ZeroStage::None {
            let why = "parameters are gathered beside forward";
            all.push(Argument::switch("--overlap-param-gather", why));
        }
    }
    if layout.offload.optimizer {
        let why = "the optimizer's state lies on the host, which updates it";
        all.push(Argument::switch("--optimizer-cpu-offload", why));
    }
    all
}

fn activations(setting: &Setting<'_>) -> Vec<Argument> {
    let layout = &setting.layout;
    let stages = setting.stages.len() as u32;
    let layers = setting.num_layers().div_ceil(stages.max(1));
    let mut all = Vec::new();
    let granularity = |kind: &str, why: &str| Argument::value("--recompute-granularity", kind, why);
    match layout.recompute {
        Recompute::None | Recompute::Selective => {}
        Recompute::Full => {
            all.push(granularity(
                "full",
                "only the inputs of layers are kept: all else would not fit",
            ));
            all.push(Argument::value("--recompute-method", "uniform", "of every layer"));
            all.push(Argument::value("--recompute-num-layers", 1, "an input is kept for each"));
        }
        Recompute::FirstLayers(count) => {
            let why = "of some layers only the inputs are kept: the others fit whole";
            all.push(granularity("full", why));
            all.push(Argument::value("--recompute-method", "block", "of the first of each stage"));
            let why = format!("of {layers}");
            all.push(Argument::value("--recompute-num-layers", count, why));
        }
        Recompute::Modules(modules) => {
            all.push(granularity("selective", "what is cheap to compute again for its bytes"));
            let why = "the parts that are computed again";
            all.push(Argument::values("--recompute-modules", module_names(modules), why));
        }
    }
    if let OffloadedActivations::Blocks(each) = layout.offload.activations {
        let why = "what so many layers keep lies on the host until backward";
        all.push(Argument::value("--cpu-offloading-num-layers", each, why));
    }
    match layout.switches.cuda_graphs {
        CudaGraphs::None => {}
        CudaGraphs::Layers => {
            let why = "launches of layers are captured: the host is slower than the GPU";
            all.push(Argument::value("--cuda-graph-impl", "transformer_engine", why));
            let modules: &[&str] = if setting.has_experts() {
                &["attn", "moe_router", "moe_preprocess"]
            } else {
                &["attn", "mlp"]
            };
            let why = "parts whose shapes do not change from step to step";
            all.push(Argument::values("--cuda-graph-modules", modules, why));
        }
        CudaGraphs::Iteration => {
            let why = "a whole step is captured: the host is slower than the GPU";
            all.push(Argument::value("--cuda-graph-impl", "full_iteration", why));
            let why = "a captured step cannot look at its losses";
            all.push(Argument::switch("--no-check-for-nan-in-loss-and-grad", why));
        }
    }
    all
}

/// Modules by Megatron's names.
fn module_names(modules: RecomputeModules) -> Vec<&'static str> {
    modules
        .iter()
        .filter_map(|module| {
            let (own, theirs) = module.names();
            theirs.or((module == RecomputeModule::SharedExperts).then_some(own))
        })
        .collect()
}
