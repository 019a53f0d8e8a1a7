//! Parts of a plan's layout that Megatron has no option for, and the environment variables that its options need.

use ir::cluster::Architecture;
use ir::framework::Abilities;
use ir::graph::{CudaGraphs, ExpertOverlap, Recompute, RecomputeModule, TokenDispatcher};
use ir::layout::ZeroStage;

use crate::interchange::error::Lack;
use crate::interchange::launch::{EXPANDABLE_SEGMENTS, ONE_QUEUE, Variable};
use crate::interchange::view::ExportView;

/// Environment variables that the arguments need, each with its reason.
pub(in super::super) fn environment(view: &ExportView<'_>) -> Vec<Variable> {
    let architecture = view.plan.cluster.gpu.architecture;
    let is_fsdp = view.layout.zero_stage >= ZeroStage::Gradients;
    let overlaps = view.layout.switches.expert_overlap == ExpertOverlap::MicroBatch;
    let mut all = Vec::new();
    if is_fsdp || overlaps {
        let why = if is_fsdp {
            "sharded parameters are gathered beside computation, which one queue would put in a row"
        } else {
            "experts' exchanges run beside another micro-batch, which one queue would put in a row"
        };
        all.push([ONE_QUEUE[0], "32", why]);
    } else if architecture != Architecture::Blackwell {
        all.push(ONE_QUEUE);
    }
    if !is_fsdp {
        let why = "multicast buffers are memory that the plan does not count";
        all.push(["NCCL_NVLS_ENABLE", "0", why]);
    }
    if view.layout.switches.cuda_graphs != CudaGraphs::None {
        let why = "buffers of captured collectives would not survive segments that expand";
        all.push(["NCCL_GRAPH_REGISTER", "0", why]);
    }
    if view.layout.offload.activations.modules().is_some() {
        let why = "Transformer Engine 2.10 and newer offload modules with it alone";
        all.push(["NVTE_CPU_OFFLOAD_V1", "1", why]);
    }
    all.push(EXPANDABLE_SEGMENTS);
    all
}

/// Parts of a plan's layout and optimizer that Megatron cannot run; the model is not checked here.
pub(in super::super) fn lacks(view: &ExportView<'_>) -> Vec<Lack> {
    let layout = &view.layout;
    let mut lacks = Vec::new();
    let unnamed = |module: &RecomputeModule| {
        module.megatron_name().is_none() && *module != RecomputeModule::SharedExperts
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
    if !Abilities::graphs_work_with(layout.switches.cuda_graphs, layout.recompute) {
        lacks.push(Lack::new(
            "CUDA graphs of layers that are computed again whole",
            "`--cuda-graphs none`, or `--recompute norms`",
        ));
    }
    let stages = &view.stages;
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
            (view.num_prediction_modules() <= 1, "one module for multi-token prediction at most"),
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
    if view.training.bf16_moments && layout.zero_stage == ZeroStage::None {
        lacks.push(Lack::new("moments in bf16 without the distributed optimizer", "`--zero 1`"));
    }
    lacks
}
