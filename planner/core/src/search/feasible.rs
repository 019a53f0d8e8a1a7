//! Feasible parts of the space of layouts: by divisibility, and by what the framework can run.

use ir::cluster::Architecture;
use ir::framework::{Abilities, Feature};
use ir::graph::{
    Axis, ContextParallelKind, CudaGraphs, ExpertOverlap, Recompute, Sharding, Switches,
    TokenDispatcher,
};
use ir::layout::{LayoutError, LayoutSpec, PartialLayout, ZeroStage};

use crate::problem::Problem;
use crate::step::ShapeKey;

/// Kinds of context parallelism to try: the named one, or all that the framework has. With one rank the kind does not
/// matter, unless the degree was named too and the kind has to be refused.
pub(super) fn context_kinds(
    problem: &Problem,
    fixed: &PartialLayout,
    context: u32,
) -> Vec<ContextParallelKind> {
    let is_pointless = context == 1 && fixed.context_parallel.one().is_none();
    match fixed.context_parallel_kind.one() {
        Some(ContextParallelKind::AllToAll) if is_pointless => Vec::new(),
        Some(kind) => vec![kind],
        None if context == 1 => vec![ContextParallelKind::default()],
        None => {
            let kinds = &abilities(problem).context_parallel;
            if kinds.is_empty() { vec![ContextParallelKind::default()] } else { kinds.clone() }
        }
    }
}

/// Switches that are possible with this sharding of experts: the named ones; for those left open, the fastest
/// dispatcher, with and without overlap, and with and without CUDA graphs of layers.
pub(super) fn switches(
    problem: &Problem,
    fixed: &PartialLayout,
    sharding: &Sharding,
) -> Vec<Switches> {
    let able = abilities(problem);
    let is_mixture = !problem.limits.experts.is_empty();
    let mut graphs = match fixed.cuda_graphs.one() {
        Some(named) => vec![named],
        // Between dense layers the host launches ahead of the device, so graphs gain nothing.
        None if is_mixture => {
            let supports = |graphs: &CudaGraphs| able.supports_graphs(*graphs);
            CudaGraphs::ALL.into_iter().filter(supports).collect()
        }
        None => vec![CudaGraphs::None],
    };
    let has_exchanges = sharding.expert_parallel > 1;
    let usual = if has_exchanges {
        usual_dispatcher(problem, sharding)
    } else {
        TokenDispatcher::default()
    };
    let token_dispatcher = fixed.token_dispatcher.unwrap_or(usual);
    let overlaps = match fixed.expert_overlap.one() {
        Some(named) => vec![named],
        None if has_exchanges => ExpertOverlap::ALL.to_vec(),
        None => vec![ExpertOverlap::None],
    };
    // Overlap is checked for the most permissive stages and recompute.
    let supports =
        |overlap: &ExpertOverlap| able.supports_overlap(*overlap, [1, 1], Recompute::None);
    let is_named = !fixed.cuda_graphs.is_any();
    // A graph has the same sizes in every run, but experts receive varying numbers of tokens: a graph of the whole
    // iteration needs a dispatcher with buffers for all tokens, made for Blackwell. All known runs with it exchange
    // tokens within an NVLink domain.
    let experts = ShapeKey::groups_of(sharding).along(Axis::Expert);
    let keeps_sizes = token_dispatcher == TokenDispatcher::HybridEp
        && problem.all_hardware().all(|hardware| {
            hardware.architecture == Architecture::Blackwell
                && hardware.network.outermost_level(experts) == 0
        });
    graphs.retain(|it| *it != CudaGraphs::Iteration || keeps_sizes || is_named);
    let switches = |expert_overlap| {
        let with = move |cuda_graphs| Switches { token_dispatcher, expert_overlap, cuda_graphs };
        graphs.iter().copied().map(with)
    };
    overlaps.into_iter().filter(supports).flat_map(switches).collect()
}

/// The dispatcher that sends least, of those that the framework runs on these GPUs with this sharding of experts.
fn usual_dispatcher(problem: &Problem, sharding: &Sharding) -> TokenDispatcher {
    let (able, facts) = (abilities(problem), &problem.facts);
    let supports = |it: &TokenDispatcher| {
        let features = facts.features.and(facts.of_sharding(sharding));
        able.supports_dispatcher(*it)
            && able.combines(features.and(facts.of_dispatcher(*it, sharding)))
    };
    // DeepEP was made on Hopper, HybridEP for Blackwell and its larger domains; both send over NVLink within a node.
    let are_all = |made: &[Architecture]| {
        problem.all_hardware().all(|hardware| made.contains(&hardware.architecture))
    };
    let once = if facts.features.has(Feature::NoNvlink) {
        &[]
    } else if are_all(&[Architecture::Blackwell]) {
        &[TokenDispatcher::HybridEp, TokenDispatcher::DeepEp][..]
    } else if are_all(&[Architecture::Hopper, Architecture::Blackwell]) {
        &[TokenDispatcher::DeepEp, TokenDispatcher::HybridEp][..]
    } else {
        &[]
    };
    let plain = [TokenDispatcher::AllToAll, TokenDispatcher::AllGather];
    once.iter().chain(&plain).copied().find(supports).unwrap_or_default()
}

pub(super) fn abilities(problem: &Problem) -> &Abilities {
    &problem.hardware.framework.abilities
}

/// Checks that the framework can run the named options.
pub(super) fn check_framework(problem: &Problem, fixed: &PartialLayout) -> Result<(), LayoutError> {
    let lacks = problem.unsupported(fixed);
    if lacks.is_empty() {
        return Ok(());
    }
    Err(LayoutError::Framework { framework: problem.hardware.framework.name.clone(), lacks })
}

/// Checks that the named options are possible, whatever is chosen for the others.
pub(super) fn check_named(problem: &Problem, fixed: &PartialLayout) -> Result<(), LayoutError> {
    fixed.check()?;
    // Open model states are taken as fully sharded, so that offload is possible with some.
    let base = LayoutSpec { zero_stage: ZeroStage::Parameters, ..LayoutSpec::ONE_RANK };
    problem.limits.offload_is_possible(&fixed.or(base))?;
    check_recompute(problem, fixed)
}

/// Checks that no more layers are to be recomputed in each stage than the model has.
fn check_recompute(problem: &Problem, fixed: &PartialLayout) -> Result<(), LayoutError> {
    let Some(Recompute::FirstLayers(layers)) = fixed.recompute.one() else { return Ok(()) };
    let has = problem.limits.num_blocks.saturating_sub(2).max(1);
    if u64::from(layers) > has {
        return Err(LayoutError::RecomputedLayers { layers, has });
    }
    Ok(())
}
