//! Parts of a plan that a tool cannot run, from the abilities of its framework; the search uses the same abilities.

use ir::framework::JobFacts;
use ir::layout::{Choice, PartialLayout};
use ir::plan::Training;

use super::error::Lack;
use super::target::Target;
use ir::graph::CudaGraphs;
use ir::layout::LayoutSpec;

/// Parts of a layout and of its training that the framework of a tool cannot run.
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
    let alone = |what| Lack::without_remedy(what);
    lacks.into_iter().map(alone).collect()
}

/// A layout reduced to the parts that decide whether a framework can run it; all other parts are left open.
pub fn named(layout: &LayoutSpec, facts: JobFacts) -> PartialLayout {
    fn only_if<T>(has: bool, choice: Choice<T>) -> Choice<T> {
        if has { choice } else { Choice::Any }
    }
    let all = PartialLayout::from(layout);
    let has_context = layout.context_parallel > 1;
    let has_experts = facts.has_experts;
    PartialLayout {
        sequence_parallel: only_if(layout.tensor_parallel > 1, all.sequence_parallel),
        context_parallel: only_if(has_context, all.context_parallel),
        context_parallel_kind: only_if(has_context, all.context_parallel_kind),
        expert_parallel: only_if(has_experts, all.expert_parallel),
        expert_tensor_parallel: only_if(has_experts, all.expert_tensor_parallel),
        // Stages are checked by each tool's own code.
        virtual_stages: Choice::Any,
        offload: only_if(layout.offload.is_some(), all.offload),
        schedule: only_if(layout.pipeline_parallel > 1, all.schedule),
        token_dispatcher: only_if(has_experts, all.token_dispatcher),
        expert_overlap: only_if(has_experts, all.expert_overlap),
        cuda_graphs: only_if(layout.switches.cuda_graphs != CudaGraphs::None, all.cuda_graphs),
        ..all
    }
}
