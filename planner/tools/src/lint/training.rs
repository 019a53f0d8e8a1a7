//! Rules about optimizer states, communication of replicas, number formats and sizes.

use ir::cluster::{Architecture, Precision};
use ir::framework::WhenReduced;
use ir::graph::DimName;
use ir::layout::ZeroStage;

use super::change::{Change, each};
use super::context::LintContext;
use super::degrees::gives_room;
use super::finding::{Cost, Finding, OptionChange};
use super::rule::{Rule, Severity};
use planner_core::search::RESOLUTION;

fn replicas(context: &LintContext<'_>) -> u32 {
    let layout = &context.base.found.layout;
    layout.data_parallel.saturating_mul(layout.context_parallel)
}

/// Finding of optimizer states that every replica holds whole.
pub(super) fn optimizer_unused(context: &LintContext<'_>) -> Option<Finding> {
    let base = &context.base;
    if replicas(context) == 1 || base.found.layout.zero_stage != ZeroStage::None {
        return None;
    }
    let mut changes = vec![Change::Zero(ZeroStage::OptimizerState)];
    let is_hidden = base.imported.framework.gradients.reduced == WhenReduced::BesideBackward;
    if is_hidden && context.is_megatron() {
        changes.push(Change::ReplicasOverlap { gathers: true });
    }
    let variant = context.variant(&changes)?;
    let cost = variant.cost(base);
    let states = base.found.evaluation.memory.optimizer_bytes.as_gib();
    let message = format!(
        "each of {} replicas holds {states:.1} GiB of optimizer state whole; sharing it {}",
        replicas(context),
        cost.describe()
    );
    let is_short = gives_room(context, &variant);
    let severity = if is_short { Severity::Warning } else { Severity::Note };
    let rule = Rule::DistributedOptimizerUnused;
    Some(context.finding(rule, severity, message, Some((&variant, cost)), &[]))
}

/// Finding of ZeRO with one replica.
pub(super) fn zero_alone(context: &LintContext<'_>) -> Option<Finding> {
    let base = &context.base;
    let stage = base.found.layout.zero_stage;
    if replicas(context) > 1 || stage == ZeroStage::None {
        return None;
    }
    let message =
        format!("there is one replica: nobody to share what ZeRO {} shards", stage.number());
    let about = [Change::Zero(ZeroStage::None)];
    let variant = context.variant(&about);
    let cost = variant.as_ref().map(|it| (it, it.cost(base)));
    let rule = Rule::ZeroWithoutDataParallelism;
    Some(context.finding(rule, Severity::Note, message, cost, &about))
}

/// Finding of parameters that are gathered for every pass although they would fit whole.
pub(super) fn sharding_not_needed(context: &LintContext<'_>) -> Option<Finding> {
    let base = &context.base;
    if replicas(context) == 1 || base.found.layout.zero_stage != ZeroStage::Parameters {
        return None;
    }
    let all = each(Change::Zero, [ZeroStage::Gradients, ZeroStage::OptimizerState]);
    let variant =
        context.fastest(&all).filter(|it| it.case.fits_with_headroom() && it.saves > RESOLUTION)?;
    let message = |cost: &str| {
        format!(
            "parameters are gathered for every pass though there is room for them; kept, which {cost}"
        )
    };
    let mut finding = context.waste(Rule::ShardingNotNeeded, message, &variant);
    if !finding.cost.is_some_and(Cost::is_sure) {
        finding.severity = Severity::Note;
    }
    Some(finding)
}

/// Finding of gradient reduction that is not overlapped with backward.
pub(super) fn overlap_off(context: &LintContext<'_>) -> Option<Finding> {
    let base = &context.base;
    let is_off = base.imported.framework.gradients.reduced == WhenReduced::AfterBackward;
    let mut tables = context.tool().tables.iter();
    let has_option = tables.any(|it| !it.options_of("framework.gradients.reduced").is_empty());
    if replicas(context) == 1 || !is_off || !has_option {
        return None;
    }
    let gathers = base.found.layout.zero_stage != ZeroStage::None;
    let variant = context.variant(&[Change::ReplicasOverlap { gathers }])?;
    let exposed = base.found.evaluation.breakdown.data_parallel_seconds
        / base.found.evaluation.step_time.get();
    let message = |cost: &str| {
        format!(
            "gradients of {} replicas are reduced after backward, {:.0} % of a step; beside it, which {cost}",
            replicas(context),
            exposed * 100.0
        )
    };
    Some(context.waste(Rule::OverlapOff, message, &variant))
}

/// Share by which padding may increase the vocabulary before it counts as waste.
const PADDING: f64 = 0.05;

/// Multiple of vocabulary rows on a rank with which kernels run fast: 8 numbers of 16 bits are 16 bytes.
const ALIGNED: u64 = 8;

/// Finding of a vocabulary that is padded too much, or to an unaligned size.
pub(super) fn vocabulary(context: &LintContext<'_>) -> Option<Finding> {
    let base = &context.base;
    let blocks = base.problem.graph.classes().flat_map(|(_, block)| block.nodes());
    let dims = blocks.flat_map(|node| &node.op.parameters).flat_map(|it| &it.dims);
    let mut rows = dims.filter(|dim| dim.name == DimName::Vocabulary);
    let size = rows.find_map(|dim| dim.extent.fixed())?;
    let tensor = u64::from(base.found.layout.tensor_parallel);
    let multiple = u64::from(base.imported.framework.tensor_parallel.vocabulary_multiple);
    let padded = |multiple: u64| size.next_multiple_of((multiple * tensor).max(1));
    let has = if multiple > 1 { padded(multiple) } else { size };
    let share = has as f64 / size as f64 - 1.0;
    let is_aligned = (has / tensor).is_multiple_of(ALIGNED);
    if share < PADDING && is_aligned {
        return None;
    }
    let better = [128, 64, 32, 16, 8].into_iter().filter(|it| u64::from(*it) != multiple);
    let mut variants = context.variants(&each(Change::VocabularyMultiple, better));
    // Among variants with equal times, the one with the least padding is preferred.
    variants.sort_by(|one, other| other.saves.total_cmp(&one.saves));
    let best = variants.first()?.saves;
    let variant = variants.into_iter().filter(|it| best - it.saves < 1e-3).min_by_key(|it| {
        let multiple = it.case.imported.framework.tensor_parallel.vocabulary_multiple;
        (padded(multiple.into()), std::cmp::Reverse(multiple))
    })?;
    let new = padded(variant.case.imported.framework.tensor_parallel.vocabulary_multiple.into());
    if new >= has && is_aligned {
        return None;
    }
    let message = |cost: &str| {
        if is_aligned {
            format!(
                "a vocabulary of {size} is padded to {has}, {:.0} % more; {new} would do, which {cost}",
                share * 100.0
            )
        } else {
            let is = match tensor {
                1 => "is".to_owned(),
                _ => {
                    format!("leaves each of {tensor} ranks {:.1} rows,", has as f64 / tensor as f64)
                }
            };
            format!(
                "a vocabulary of {has} {is} no multiple of {ALIGNED}, which kernels are slow with; {new}, which {cost}"
            )
        }
    };
    let mut finding = context.waste(Rule::VocabularyPadding, message, &variant);
    // Padding of this size wastes time and memory in any case.
    if share >= 2.0 * PADDING {
        finding.severity = Severity::Warning;
    }
    Some(finding)
}

/// Finding of a number format that is worse than bf16 on this GPU.
pub(super) fn number_format(context: &LintContext<'_>) -> Option<Finding> {
    let base = &context.base;
    let hardware = &base.problem.hardware;
    let precision = base.problem.training.precision;
    if !context.eval.cluster.gpu.peak.contains_key(&Precision::Bf16) {
        return None;
    }
    let about = [Change::Precision(Precision::Bf16)];
    let variant = context.variant(&about);
    match precision {
        Precision::Fp16 => {
            let cost = variant.as_ref().map(|it| (it, it.cost(base)));
            // Many runs trained successfully in fp16 on Ampere; on later GPUs there is no reason for fp16.
            let is_new =
                matches!(hardware.architecture, Architecture::Hopper | Architecture::Blackwell);
            let severity = if is_new { Severity::Warning } else { Severity::Note };
            let message = "fp16 overflows beyond 65,504, so losses are scaled and steps are skipped; this GPU has bf16, \
                 with the range of fp32, as fast"
                .to_owned();
            Some(context.finding(Rule::Fp16WhereBf16, severity, message, cost, &about))
        }
        Precision::Fp32 => {
            let variant = variant?;
            let message = |cost: &str| {
                format!(
                    "products are in 32 bits: neither 16 bits nor fewer are asked for; bf16 {cost}"
                )
            };
            Some(context.waste(Rule::Fp32WhereBf16, message, &variant))
        }
        _ => None,
    }
}

/// Finding of a sequence longer than the positions that the model was made for.
pub(super) fn long_sequence(context: &LintContext<'_>) -> Option<Finding> {
    let longest = context.longest_sequence?;
    let length = context.base.problem.training.sequence_length;
    if length <= longest {
        return None;
    }
    let message = format!(
        "a sequence of {length} is longer than the {longest} positions that the model was made for"
    );
    let rule = Rule::SequenceLongerThanModel;
    let about = [Change::Sequence(longest)];
    Some(context.finding(rule, Severity::Note, message, None, &about))
}

/// Finding of Megatron's `--sequence-parallel` without tensor parallelism, which has no effect.
pub(super) fn sequence_parallel_alone(context: &LintContext<'_>) -> Option<Finding> {
    let option = "--sequence-parallel";
    let is_given = context.is_megatron() && context.given.gives(option);
    if !is_given || context.base.found.layout.tensor_parallel > 1 {
        return None;
    }
    let message =
        "tensor parallelism is 1: there is no sequence to share, and Megatron switches it off";
    Some(of_option(context, Rule::SequenceParallelAlone, option, message))
}

/// Finding of virtual stages with one pipeline rank.
pub(super) fn interleaving_alone(context: &LintContext<'_>) -> Option<Finding> {
    let options =
        ["--num-virtual-stages-per-pipeline-rank", "--num-layers-per-virtual-pipeline-stage"];
    let has = |option: &&str| context.is_megatron() && context.given.gives(option);
    let option = options.into_iter().find(has)?;
    if context.base.found.layout.pipeline_parallel > 1 {
        return None;
    }
    let message =
        "stages of a rank are interleaved with those of others, but there is one pipeline rank";
    Some(of_option(context, Rule::InterleavingWithoutPipeline, option, message))
}

/// Finding with a fix that removes an option without an effect on the prediction.
fn of_option(context: &LintContext<'_>, rule: Rule, option: &str, message: &str) -> Finding {
    let mut finding = context.finding(rule, rule.most_severe(), message.to_owned(), None, &[]);
    finding.options = vec![context.given.place(option)];
    let own = context.given.own(vec![OptionChange::remove(option)]);
    finding.fix = own.map(|own| super::context::of_case(context.given, own, &context.base));
    finding
}
