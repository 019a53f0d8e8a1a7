//! What of a space can be, and what of that the framework can run.

use ir::cluster::Architecture;
use ir::framework::Abilities;
use ir::graph::{
    Axis, ContextParallelKind, CudaGraphs, ExpertOverlap, Recompute, Sharding, Switches,
    TokenDispatcher,
};
use ir::layout::{LayoutError, PartialLayout, ZeroStage};
use ir::schedule::ScheduleKind;

use crate::problem::Problem;
use crate::step::ShapeKey;

/// The kind of context parallelism to try: the one that is named, or a ring; none where one rank has all
/// positions, and no degree was decided that would have to be refused.
pub(super) fn context_kind(
    problem: &Problem,
    fixed: &PartialLayout,
    context: u32,
) -> Option<ContextParallelKind> {
    let is_pointless = context == 1 && fixed.context_parallel.is_none();
    match fixed.context_parallel_kind {
        Some(ContextParallelKind::AllToAll) if is_pointless => None,
        Some(kind) => Some(kind),
        None if context == 1 => Some(ContextParallelKind::default()),
        None => Some(abilities(problem).usual_context().unwrap_or_default()),
    }
}

/// What can be switched on with experts that are sharded so: what is named, else the dispatcher that takes least
/// time, with and without what hides it, and with and without graphs of layers.
pub(super) fn switches(
    problem: &Problem,
    fixed: &PartialLayout,
    sharding: &Sharding,
) -> Vec<Switches> {
    let able = abilities(problem);
    let is_mixture = !problem.limits.experts.is_empty();
    let mut graphs = match fixed.cuda_graphs {
        Some(named) => vec![named],
        // Of dense layers the host has launched the next before the device needs it.
        None if is_mixture => {
            let takes = |graphs: &CudaGraphs| able.takes_graphs(*graphs);
            CudaGraphs::ALL.into_iter().filter(takes).collect()
        }
        None => vec![CudaGraphs::None],
    };
    let has_exchanges = sharding.expert_parallel > 1;
    let usual = if has_exchanges { usual_dispatcher(problem) } else { TokenDispatcher::default() };
    let token_dispatcher = fixed.token_dispatcher.unwrap_or(usual);
    let overlaps = match fixed.expert_overlap {
        Some(named) => vec![named],
        None if has_exchanges => ExpertOverlap::ALL.to_vec(),
        None => vec![ExpertOverlap::None],
    };
    // Some number of stages, and some recompute, will do.
    let takes = |overlap: &ExpertOverlap| able.takes_overlap(*overlap, [1, 1], Recompute::None);
    let is_named = fixed.cuda_graphs.is_some();
    // A graph has the same sizes every time, and experts get other numbers of tokens: one of the whole iteration
    // takes a dispatcher that leaves room for all of them, made for Blackwell. All runs with it that are known
    // exchange tokens within an NVLink domain.
    let experts = ShapeKey::groups_of(sharding).along(Axis::Expert);
    let keeps_sizes = problem.hardware.architecture == Architecture::Blackwell
        && token_dispatcher == TokenDispatcher::HybridEp
        && problem.hardware.network.outermost_level(experts) == 0;
    graphs.retain(|it| *it != CudaGraphs::Iteration || keeps_sizes || is_named);
    let switches = |expert_overlap| {
        let with = move |cuda_graphs| Switches { token_dispatcher, expert_overlap, cuda_graphs };
        graphs.iter().copied().map(with)
    };
    overlaps.into_iter().filter(takes).flat_map(switches).collect()
}

/// The dispatcher that sends least, of those that the framework has: one that sends a token once to each node is
/// made for NVIDIA's GPUs since Hopper.
fn usual_dispatcher(problem: &Problem) -> TokenDispatcher {
    let hardware = &problem.hardware;
    let is_new = matches!(hardware.architecture, Architecture::Hopper | Architecture::Blackwell);
    let able = abilities(problem);
    // The one was made on Hopper, the other for Blackwell and its larger domains.
    let by_size = if hardware.architecture == Architecture::Blackwell {
        [TokenDispatcher::HybridEp, TokenDispatcher::DeepEp]
    } else {
        [TokenDispatcher::DeepEp, TokenDispatcher::HybridEp]
    };
    let once = by_size.into_iter().find(|it| is_new && able.takes_dispatcher(*it));
    let plain = [TokenDispatcher::AllToAll, TokenDispatcher::AllGather];
    once.or_else(|| plain.into_iter().find(|it| able.takes_dispatcher(*it))).unwrap_or_default()
}

pub(super) fn abilities(problem: &Problem) -> &Abilities {
    &problem.hardware.framework.abilities
}

/// Whether the framework can run what is named.
pub(super) fn check_framework(problem: &Problem, fixed: &PartialLayout) -> Result<(), LayoutError> {
    let framework = &problem.hardware.framework;
    let mut lacks = framework.abilities.lacks(fixed, problem.model_facts());
    lacks.extend(problem.training.lacked_by(&framework.abilities));
    if lacks.is_empty() {
        return Ok(());
    }
    Err(LayoutError::Framework { framework: framework.name.clone(), lacks })
}

/// Whether what is named can be, whatever is chosen besides.
pub(super) fn check_named(problem: &Problem, fixed: &PartialLayout) -> Result<(), LayoutError> {
    fixed.check()?;
    check_offload(problem, fixed)?;
    check_recompute(problem, fixed)
}

/// Whether what is to lie on the host can, beside what else is fixed.
fn check_offload(problem: &Problem, fixed: &PartialLayout) -> Result<(), LayoutError> {
    let offload = fixed.offload.unwrap_or_default();
    let zero_stage = fixed.zero_stage.unwrap_or(ZeroStage::Parameters);
    let schedule = fixed.schedule.unwrap_or(ScheduleKind::OneFOneB);
    problem.limits.check_offload(offload, zero_stage, schedule)
}

/// Whether no more layers of each stage are to be computed again than the model has.
fn check_recompute(problem: &Problem, fixed: &PartialLayout) -> Result<(), LayoutError> {
    let Some(Recompute::FirstLayers(layers)) = fixed.recompute else { return Ok(()) };
    let has = problem.limits.num_blocks.saturating_sub(2).max(1);
    if u64::from(layers) > has {
        return Err(LayoutError::RecomputedLayers { layers, has });
    }
    Ok(())
}
