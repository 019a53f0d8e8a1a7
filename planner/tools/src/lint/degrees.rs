//! Rules about degrees of parallelism: sharding over too many ranks, or across slow networks.

use ir::graph::TokenDispatcher;

use super::change::{Change, each};
use super::context::LintContext;
use super::evaluated::Variant;
use super::finding::{Cost, Finding};
use super::repair::below;
use super::rule::{Rule, Severity};
use crate::interchange::StatedStages;
use planner_core::search::RESOLUTION;

/// Finding of a layout that the tool cannot run.
pub(super) fn not_supported(context: &LintContext<'_>) -> Option<Finding> {
    let base = &context.base;
    let lacks = base.lacks();
    if lacks.is_empty() {
        return None;
    }
    let layout = &base.found.layout;
    let mut singles: Vec<Change> = ir::layout::ZeroStage::ALL.map(Change::Zero).to_vec();
    singles.extend([
        Change::Pipeline(1),
        Change::VirtualStages(1),
        Change::Context(1),
        Change::Expert(1),
        Change::TensorParallel(1),
        Change::SequenceParallel(true),
        Change::ExpertTensor(layout.tensor_parallel),
        Change::ExpertTensor(1),
        Change::Recompute(ir::graph::Recompute::Full),
        Change::Recompute(ir::graph::Recompute::None),
        Change::NoOffload,
        Change::OneShardGroup,
    ]);
    let variants = context.variants(&each(|it| it, singles)).into_iter();
    let is_able = |it: &Variant| it.case.lacks().is_empty() && it.case.fits();
    let variant = Variant::fastest(variants.filter(is_able));
    let framework = &base.problem.hardware.framework.name;
    let message = format!("{framework} has no {}", lacks.join(", no "));
    let cost = variant.as_ref().map(|it| (it, it.cost(base)));
    Some(context.finding(Rule::NotSupported, Severity::Error, message, cost, &[]))
}

/// Finding of tensor parallelism across nodes.
pub(super) fn across_nodes(context: &LintContext<'_>) -> Option<Finding> {
    let base = &context.base;
    let layout = &base.found.layout;
    let (tensor, domain) = (layout.tensor_parallel, base.problem.hardware.domain);
    if !base.crosses_nodes() {
        return None;
    }
    let mut all = Vec::new();
    for within in below(tensor).filter(|it| domain.is_multiple_of(*it)).take(4) {
        let change = Change::TensorParallel(within);
        all.push(vec![change.clone()]);
        let times = tensor / within;
        for times in [times, 2 * times, 2] {
            let pipeline = layout.pipeline_parallel.saturating_mul(times);
            all.push(vec![change.clone(), Change::Pipeline(pipeline)]);
        }
        all.push(vec![change, Change::Recompute(ir::graph::Recompute::Full)]);
    }
    let exposed = base.found.evaluation.breakdown.tensor_parallel_seconds
        / base.found.evaluation.step_time.get();
    let text = format!(
        "products are sharded over {tensor} GPUs, but {domain} share a fast network: {:.0} % of a step waits for their \
         collectives",
        exposed * 100.0
    );
    let Some(variant) = context.fastest(&all).filter(|it| it.saves > 0.0) else {
        let about = [Change::TensorParallel(tensor)];
        let severity = Severity::Note;
        return Some(context.finding(
            Rule::TensorParallelAcrossNodes,
            severity,
            text,
            None,
            &about,
        ));
    };
    let message = |cost: &str| format!("{text}; fewer, which {cost}");
    Some(context.waste(Rule::TensorParallelAcrossNodes, message, &variant))
}

/// Finding of more tensor parallelism than memory requires. Only large savings are reported, since many choose it for
/// other reasons.
pub(super) fn tensor_not_needed(context: &LintContext<'_>) -> Option<Finding> {
    let base = &context.base;
    let tensor = base.found.layout.tensor_parallel;
    let domain = base.problem.hardware.domain;
    if tensor == 1 || !domain.is_multiple_of(tensor) {
        return None;
    }
    let fewer = below(tensor).filter(|it| tensor.is_multiple_of(*it));
    let all = each(Change::TensorParallel, fewer);
    let variant = context.fastest(&all).filter(|it| it.case.fits_with_headroom())?;
    let message = |cost: &str| {
        format!(
            "products are sharded over {tensor} GPUs, but {} have room for the model: fewer {cost}",
            variant.case.found.layout.tensor_parallel
        )
    };
    let finding = context.waste(Rule::TensorParallelNotNeeded, message, &variant);
    finding.cost.is_some_and(Cost::is_sure).then_some(finding)
}

/// Finding of tensor parallelism without sequence parallelism: every rank saves and computes whole norms and residuals.
pub(super) fn sequence_parallel(context: &LintContext<'_>) -> Option<Finding> {
    let base = &context.base;
    let layout = &base.found.layout;
    if layout.tensor_parallel == 1 || layout.sequence_parallel {
        return None;
    }
    let variant = context.variant(&[Change::SequenceParallel(true)])?;
    let cost = variant.cost(base);
    let has_experts = base.problem.facts.has_experts;
    let tensor = layout.tensor_parallel;
    let text = format!(
        "each of {tensor} tensor-parallel ranks keeps and computes norms and residuals of the whole sequence; sharing \
         them {}",
        cost.describe()
    );
    let (severity, message) = if has_experts && context.is_megatron() {
        let message = format!(
            "Megatron trains experts with tensor parallelism {tensor} only with sequence parallelism"
        );
        (Severity::Error, message)
    } else if cost.is_certain() || gives_room(context, &variant) {
        (Severity::Warning, text)
    } else {
        (Severity::Note, text)
    };
    let rule = Rule::SequenceParallelMissing;
    Some(context.finding(rule, severity, message, Some((&variant, cost)), &[]))
}

/// Returns whether a variant has headroom where the settings have none.
pub(super) fn gives_room(context: &LintContext<'_>, variant: &Variant) -> bool {
    !context.base.fits_with_headroom() && variant.case.fits_with_headroom()
}

/// Share of a step above which a bubble is always a warning.
const LARGE_BUBBLE: f64 = 0.4;

/// Finding of fewer micro-batches than pipeline ranks.
pub(super) fn few_micro_batches(context: &LintContext<'_>) -> Option<Finding> {
    let base = &context.base;
    let layout = &base.found.layout;
    let (rounds, ranks) = (layout.num_micro_batches, layout.pipeline_parallel);
    if rounds >= ranks {
        return None;
    }
    let bubble = base.found.evaluation.breakdown.pipeline_bubble_seconds
        / base.found.evaluation.step_time.get();
    let text = format!(
        "{rounds} micro-batches of {} on {ranks} pipeline ranks: {:.0} % of a step is bubble",
        layout.micro_batch_size,
        bubble * 100.0
    );
    let micro = layout.micro_batch_size;
    let smaller = below(micro).filter(|it| micro.is_multiple_of(*it));
    let mut all = each(Change::MicroBatch, smaller);
    for times in [2, 4, 8] {
        if ranks.is_multiple_of(times) {
            let fewer = Change::Pipeline(ranks / times);
            let tensor = layout.tensor_parallel.saturating_mul(times);
            all.push(vec![fewer.clone()]);
            all.push(vec![fewer.clone(), Change::TensorParallel(tensor)]);
            all.push(vec![fewer, Change::MicroBatch(1)]);
        }
    }
    let same_batch = context.fastest(&all).filter(|it| it.saves > RESOLUTION);
    let each = u64::from(layout.data_parallel) * u64::from(micro);
    let full = each * u64::from(ranks);
    let variant = same_batch.or_else(|| context.fastest(&[vec![Change::GlobalBatch(full)]]));
    let Some(variant) = variant.filter(|it| it.saves > 0.0) else {
        let about = [Change::MicroBatch(micro), Change::GlobalBatch(full)];
        let rule = Rule::FewerMicroBatchesThanStages;
        return Some(context.finding(rule, Severity::Note, text, None, &about));
    };
    let message = |cost: &str| format!("{text}; a fuller pipeline {cost}");
    let mut finding = context.waste(Rule::FewerMicroBatchesThanStages, message, &variant);
    if bubble > LARGE_BUBBLE {
        finding.severity = Severity::Warning;
    }
    Some(finding)
}

/// Finding of a stage that is slower than the others.
pub(super) fn uneven_stages(context: &LintContext<'_>) -> Option<Finding> {
    let base = &context.base;
    if base.found.layout.pipeline_parallel == 1 || base.imported.stages == StatedStages::Balanced {
        return None;
    }
    let variant =
        context.fastest(&[vec![Change::RebalanceStages]]).filter(|it| it.saves > RESOLUTION)?;
    let counts = base.found.stage_blocks();
    let message = |cost: &str| {
        format!(
            "one stage holds up the others ({} blocks, embedding and head counted): layers cut by their times, which \
             {cost}",
            counts.iter().map(u32::to_string).collect::<Vec<_>>().join(" + ")
        )
    };
    Some(context.waste(Rule::StagesUneven, message, &variant))
}

/// Tokens per rank below which context parallelism is seldom worth it.
const SHORT: u64 = 4096;

/// Finding of context parallelism that is not needed.
pub(super) fn context_parallel(context: &LintContext<'_>) -> Option<Finding> {
    let base = &context.base;
    let layout = &base.found.layout;
    let degree = layout.context_parallel;
    if degree == 1 || !base.fits() {
        return None;
    }
    let fewer = below(degree).filter(|it| degree.is_multiple_of(*it));
    let mut all: Vec<Vec<Change>> = Vec::new();
    for fewer in fewer {
        all.push(vec![Change::Context(fewer)]);
        // The ranks become replicas. Each has micro-batches of its own, which may have to be smaller.
        if fewer == 1 && layout.micro_batch_size > 1 {
            all.push(vec![Change::Context(1), Change::MicroBatch(1)]);
        }
    }
    let variant = context.fastest(&all)?;
    let length = base.problem.training.sequence_length;
    let each = length / u64::from(degree);
    if variant.saves <= RESOLUTION && (each >= SHORT || variant.saves < 0.0) {
        return None;
    }
    let message = |cost: &str| {
        format!(
            "sequences of {length} tokens are shared by {degree} ranks, {each} each, though {} have room: that {cost}",
            variant.case.found.layout.context_parallel
        )
    };
    Some(context.waste(Rule::ContextParallelWithoutLongSequence, message, &variant))
}

/// Finding of a dispatcher that gathers all tokens on all expert-parallel ranks.
pub(super) fn dispatcher(context: &LintContext<'_>) -> Option<Finding> {
    let base = &context.base;
    let layout = &base.found.layout;
    let is_gathering = layout.switches.token_dispatcher == TokenDispatcher::AllGather;
    if layout.expert_parallel == 1 || !is_gathering {
        return None;
    }
    let change = Change::Dispatcher(TokenDispatcher::AllToAll);
    let variant = context.fastest(&[vec![change]]).filter(|it| it.saves > 0.0)?;
    let degree = layout.expert_parallel;
    let message = |cost: &str| {
        format!(
            "all tokens are gathered on each of {degree} expert-parallel ranks; sent to their experts alone, which {cost}"
        )
    };
    Some(context.waste(Rule::DispatcherGathers, message, &variant))
}
