//! Rules about memory: a peak above the GPU's memory, and recompute or offload that memory does not require.

use ir::graph::{Recompute, RecomputeModule, RecomputeModules};
use ir::layout::{Offload, ZeroStage};
use ir::units::Bytes;

use super::change::{Change, each};
use super::context::LintContext;
use super::evaluated::{EvaluatedConfig, Variant};
use super::finding::{Cost, Finding};
use super::rule::{Rule, Severity};

/// Ratio of predicted peak to GPU memory above which only one of 1,726 measured runs worked; a test checks that no more
/// do.
const HARDLY_ANY_RAN_BEYOND: f64 = 1.35;

/// Ratio of predicted peak to GPU memory above which 15 of these runs worked.
const FEW_RAN_BEYOND: f64 = 1.1;

/// Finding of peak memory that does not fit, or that fits without headroom, with a fix.
pub(super) fn headroom(context: &LintContext<'_>) -> Option<Finding> {
    let base = &context.base;
    let memory = &base.found.evaluation.memory;
    let (peak, capacity) = (base.peak(), base.of_fullest().hardware.memory);
    let gib = |bytes: Bytes| bytes.as_gib();
    let rank = base.found.evaluation.fullest_rank;
    let of_rank = if base.found.layout.pipeline_parallel > 1 {
        format!(" on pipeline rank {rank}")
    } else {
        String::new()
    };
    let about = [
        Change::MicroBatch(1),
        Change::Recompute(Recompute::None),
        Change::Zero(ZeroStage::None),
        Change::TensorParallel(1),
    ];
    if base.fits() {
        let headroom = base.problem.usual_headroom();
        if base.fits_with_headroom() {
            return None;
        }
        let message = format!(
            "{:.1} of {:.1} GiB are needed{of_rank}: it fits, but of comparable runs one in ten needed {:.1} GiB more \
             than predicted",
            gib(peak),
            gib(capacity),
            gib(headroom)
        );
        return Some(context.finding(Rule::MemoryTight, Severity::Note, message, None, &about));
    }
    let variant = smallest_change(context);
    let cost = variant.as_ref().map(|it| (it, it.cost(base)));
    if peak <= capacity {
        let message = format!(
            "{:.1} GiB of each GPU's share of its host are needed, which it does not have",
            gib(memory.host_bytes)
        );
        return Some(context.finding(Rule::OutOfMemory, Severity::Error, message, cost, &about));
    }
    let beyond = gib(peak) - gib(capacity);
    let mut lines = memory.lines();
    lines.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let largest = lines.iter().take(3).map(|(name, bytes)| format!("{name} {:.1}", gib(*bytes)));
    let largest = largest.collect::<Vec<_>>().join(", ");
    // The allocator frees its cache before it fails.
    let without_slack = peak.saturating_sub(memory.allocator_bytes);
    let ratio = peak.as_f64() / capacity.as_f64();
    let (rule, severity, how) = if ratio > HARDLY_ANY_RAN_BEYOND {
        (Rule::OutOfMemory, Severity::Error, "does not fit")
    } else if ratio > FEW_RAN_BEYOND {
        (Rule::OutOfMemory, Severity::Warning, "does not fit by prediction")
    } else if without_slack > capacity {
        (Rule::OutOfMemory, Severity::Note, "may fit, as predictions are off by that much")
    } else {
        let how = "fits only if the allocator gives back what it caches";
        (Rule::MemoryTight, Severity::Note, how)
    };
    let savers = savers_not_predicted(base);
    let severity = if savers.is_empty() { severity } else { severity.min(Severity::Warning) };
    let message = format!(
        "{:.1} GiB are needed{of_rank}{savers}, {beyond:.1} more than the {:.1} of a GPU: it {how} ({largest} GiB)",
        gib(peak),
        gib(capacity)
    );
    Some(context.finding(rule, severity, message, cost, &about))
}

/// Settings that save memory but are not part of the prediction, in words.
fn savers_not_predicted(base: &EvaluatedConfig) -> String {
    let saves = base.imported.unread.iter().filter(|it| it.saves_memory);
    let names: Vec<String> = saves.map(|it| format!("`{}`", it.option)).collect();
    if names.is_empty() { String::new() } else { format!(" without {}", names.join(" and ")) }
}

/// The fastest change that makes the settings fit, with as few settings changed as possible.
fn smallest_change(context: &LintContext<'_>) -> Option<Variant> {
    let singles = savers(context);
    let mut fitting = None;
    for number in 1..=3 {
        let all: Vec<Vec<Change>> = match number {
            1 => each(Clone::clone, &singles),
            2 => pairs(&singles),
            _ => pairs(&singles)
                .into_iter()
                .map(|pair| [pair, vec![Change::MicroBatch(1)]].concat())
                .collect(),
        };
        let variants = context.variants(&all);
        let can_be_told = |it: &&Variant| context.fix(it).is_some();
        let fastest = |with_headroom: bool| {
            let fits = variants.iter().filter(|it| {
                if with_headroom { it.case.fits_with_headroom() } else { it.case.fits() }
            });
            Variant::fastest(fits.filter(can_be_told).cloned())
        };
        if let Some(variant) = fastest(true) {
            return Some(variant);
        }
        fitting = fitting.or_else(|| fastest(false));
    }
    fitting
}

/// Candidate changes that save memory.
fn savers(context: &LintContext<'_>) -> Vec<Change> {
    let base = &context.base;
    let layout = &base.found.layout;
    let mut all = Vec::new();
    if layout.zero_stage == ZeroStage::None {
        all.push(Change::Zero(ZeroStage::OptimizerState));
    }
    if layout.zero_stage < ZeroStage::Parameters {
        all.push(Change::Zero(ZeroStage::Parameters));
    }
    if layout.tensor_parallel > 1 && !layout.sequence_parallel {
        all.push(Change::SequenceParallel(true));
    }
    all.extend(heavier(base.found.layout.recompute, per_stage(context)).map(Change::Recompute));
    let micro = layout.micro_batch_size;
    all.extend(
        [micro / 2, micro / 4, 1]
            .into_iter()
            .filter(|it| *it >= 1 && *it < micro)
            .map(Change::MicroBatch),
    );
    for times in [2, 4] {
        all.push(Change::TensorParallel(layout.tensor_parallel.saturating_mul(times)));
        all.push(Change::Pipeline(layout.pipeline_parallel.saturating_mul(times)));
        all.push(Change::Context(layout.context_parallel.saturating_mul(times)));
        if base.problem.facts.has_experts {
            all.push(Change::Expert(layout.expert_parallel.saturating_mul(times)));
        }
    }
    if layout.virtual_stages > 1 {
        all.push(Change::VirtualStages(1));
    }
    let domain = base.problem.hardware.domain;
    all.retain(|it| !it.crosses(domain));
    let mut seen = Vec::new();
    all.retain(|it| {
        let is_new = !seen.contains(it);
        seen.push(it.clone());
        is_new
    });
    all
}

/// All pairs of changes of two different settings.
pub(super) fn pairs(singles: &[Change]) -> Vec<Vec<Change>> {
    let mut all = Vec::new();
    for (index, one) in singles.iter().enumerate() {
        for other in &singles[index + 1..] {
            if std::mem::discriminant(one) != std::mem::discriminant(other) {
                all.push(vec![one.clone(), other.clone()]);
            }
        }
    }
    all
}

fn per_stage(context: &LintContext<'_>) -> u32 {
    context.eval.num_layers() / context.base.found.layout.num_stages().max(1)
}

/// Recompute of attention only.
pub(super) fn attention_alone() -> Option<Recompute> {
    RecomputeModules::new([RecomputeModule::Attention]).map(Recompute::Modules)
}

/// Recompute of more than `now`, in ascending order.
fn heavier(now: Recompute, layers: u32) -> impl Iterator<Item = Recompute> {
    let some = [layers / 4, layers / 2, layers / 4 * 3].map(Recompute::FirstLayers);
    let all = attention_alone().into_iter().chain(some).chain([Recompute::Full]);
    let is_more = move |it: &Recompute| match (now, it) {
        (_, Recompute::FirstLayers(0)) | (Recompute::Full, _) => false,
        (Recompute::None, _) => true,
        (Recompute::FirstLayers(has), Recompute::FirstLayers(count)) => *count > has,
        (_, Recompute::Modules(_)) => false,
        _ => true,
    };
    all.filter(is_more)
}

/// Finding of recompute that memory does not require.
pub(super) fn recompute(context: &LintContext<'_>) -> Option<Finding> {
    let base = &context.base;
    if !base.recomputes() || !base.fits() {
        return None;
    }
    let now = base.found.layout.recompute;
    let layers = per_stage(context);
    let most = match now {
        Recompute::Full => layers,
        Recompute::FirstLayers(count) => count,
        _ => 0,
    };
    let mut lighter = vec![Recompute::None];
    if most > 0 {
        lighter.extend(attention_alone());
        lighter.extend([most / 4, most / 2, most / 4 * 3].map(Recompute::FirstLayers));
    }
    lighter.retain(|it| *it != now && *it != Recompute::FirstLayers(0));
    let variants = context.variants(&each(Change::Recompute, lighter)).into_iter();
    let fits_and_has_fix = |it: &Variant| it.case.fits_with_headroom() && context.fix(it).is_some();
    let variant = Variant::fastest(variants.filter(fits_and_has_fix))?;
    if variant.saves <= 0.0 {
        return None;
    }
    let new = variant.case.found.layout.recompute;
    let (had, would) = (base.peak().as_gib(), variant.case.peak().as_gib());
    let message = |cost: &str| {
        format!(
            "activations are computed again ({now}) though {} would fit: {had:.1} GiB are needed with, {would:.1} \
             without, of {:.1}; that {cost}",
            if new == Recompute::None { "all".to_owned() } else { format!("recompute of {new}") },
            base.of_fullest().hardware.memory.as_gib()
        )
    };
    let mut finding = context.waste(Rule::RecomputeNotNeeded, message, &variant);
    // A warning only if no whole layer needs to be recomputed and the saving is sure; otherwise the recompute may be an
    // intended margin.
    let is_dropped = most > 0 && new.first_layers().is_none();
    if !is_dropped || !finding.cost.is_some_and(Cost::is_sure) {
        finding.severity = Severity::Note;
    }
    Some(finding)
}

/// Finding of states or activations that are offloaded to the host although they fit on the GPU.
pub(super) fn offload(context: &LintContext<'_>) -> Option<Finding> {
    let base = &context.base;
    if base.found.layout.offload == Offload::NONE {
        return None;
    }
    let variant = context.fastest(&[vec![Change::NoOffload]])?;
    if !variant.case.fits_with_headroom() || variant.saves <= 0.0 {
        return None;
    }
    let message = |cost: &str| {
        format!(
            "{} lies on the host though it would fit on the GPU, which {cost}",
            base.found.layout.offload
        )
    };
    Some(context.waste(Rule::OffloadNotNeeded, message, &variant))
}
