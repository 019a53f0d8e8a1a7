//! What a tool cannot run of a plan, by the abilities of its framework: those that the search proposes by.

use ir::framework::JobFacts;
use ir::layout::{Offload, PartialLayout};
use ir::plan::Training;

use super::error::Lack;
use super::target::Target;
use ir::graph::CudaGraphs;
use ir::layout::LayoutSpec;

/// What the framework of a tool cannot run of a layout, and of how the model is trained.
pub(super) fn of_framework(
    target: Target,
    layout: &LayoutSpec,
    training: &Training,
    facts: JobFacts,
) -> Vec<Lack> {
    let abilities = target.framework().abilities;
    let (named, facts) = (named(layout, facts), facts.with_training(training));
    let mut lacks = abilities.lacks(&named, facts);
    lacks.extend(training.lacked_by(&abilities));
    let alone = |what| Lack { what, works: None, is_free: false };
    lacks.into_iter().map(alone).collect()
}

/// A layout with all that decides whether it can be run named, and nothing that it does without.
pub fn named(layout: &LayoutSpec, facts: JobFacts) -> PartialLayout {
    let has_pipeline = layout.pipeline_parallel > 1;
    let has_context = layout.context_parallel > 1;
    let switches = layout.switches;
    PartialLayout {
        tensor_parallel: Some(layout.tensor_parallel),
        sequence_parallel: (layout.tensor_parallel > 1).then_some(layout.sequence_parallel),
        context_parallel: has_context.then_some(layout.context_parallel),
        context_parallel_kind: has_context.then_some(layout.context_parallel_kind),
        expert_parallel: facts.has_experts.then_some(layout.expert_parallel),
        expert_tensor_parallel: facts.has_experts.then_some(layout.expert_tensor_parallel),
        pipeline_parallel: Some(layout.pipeline_parallel),
        // Which layers a stage has is asked of each tool.
        virtual_stages: None,
        data_parallel: Some(layout.data_parallel),
        zero_shard: Some(layout.zero_shard),
        zero_stage: Some(layout.zero_stage),
        micro_batch_size: Some(layout.micro_batch_size),
        recompute: Some(layout.recompute),
        offload: Some(layout.offload).filter(|it| *it != Offload::NONE),
        schedule: has_pipeline.then_some(layout.schedule),
        token_dispatcher: facts.has_experts.then_some(switches.token_dispatcher),
        expert_overlap: facts.has_experts.then_some(switches.expert_overlap),
        cuda_graphs: Some(switches.cuda_graphs).filter(|it| *it != CudaGraphs::None),
        ..PartialLayout::default()
    }
}
