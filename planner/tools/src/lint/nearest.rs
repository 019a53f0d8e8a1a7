//! Faster settings near the given ones, one or two changes away.

use ir::graph::Recompute;
use ir::layout::ZeroStage;
use serde::Serialize;

use super::change::{Change, each};
use super::context::LintContext;
use super::evaluated::Variant;
use super::finding::{Cost, Fix};
use super::memory::{attention_alone, pairs};
use ir::layout::LayoutSpec;
use planner_core::search::RESOLUTION;

/// Faster settings, with their savings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Nearby {
    /// Changes to make.
    pub fix: Fix,
    /// Predicted savings.
    pub saves: Cost,
    /// Layout with these changes.
    pub layout: LayoutSpec,
}

/// Number of the fastest variants for which the interval of the saving is computed.
const LOOKED_AT: usize = 12;

/// The best `most` settings that differ in one or two changes, fit with headroom, and save more than [`RESOLUTION`].
pub(super) fn nearest(context: &LintContext<'_>, most: usize) -> Vec<Nearby> {
    if most == 0 {
        return Vec::new();
    }
    let singles = singles(context);
    let mut all = each(Clone::clone, &singles);
    all.extend(pairs(&singles));
    let mut variants: Vec<Variant> = context
        .variants(&all)
        .into_iter()
        .filter(|it| it.case.fits_with_headroom() && it.saves > RESOLUTION)
        .filter(|it| context.fix(it).is_some())
        .collect();
    variants.sort_by(|one, other| other.saves.total_cmp(&one.saves));
    // A pair of changes must save noticeably more than each of its changes alone.
    let alone: Vec<(Change, f64)> = variants
        .iter()
        .filter_map(|it| match it.changes.as_slice() {
            [change] => Some((change.clone(), it.saves)),
            _ => None,
        })
        .collect();
    variants.retain(|it| {
        let of_one = alone.iter().filter(|(change, _)| it.changes.contains(change));
        let most = of_one.map(|(_, saves)| *saves).fold(0.0, f64::max);
        it.changes.len() == 1 || it.saves - most > RESOLUTION / 2.0
    });
    let mut shown: Vec<Nearby> = Vec::new();
    for variant in variants.into_iter().take(LOOKED_AT) {
        if shown.len() == most {
            break;
        }
        let saves = variant.cost(&context.base);
        let is_likely = saves.interval.is_some_and(|[low, _]| low > -RESOLUTION);
        let Some(fix) = context.fix(&variant).filter(|_| is_likely) else { continue };
        let layout = *variant.case.found.layout;
        shown.push(Nearby { fix, saves, layout });
    }
    shown
}

/// Single changes to settings next to the given ones.
fn singles(context: &LintContext<'_>) -> Vec<Change> {
    let base = &context.base;
    let layout = &base.found.layout;
    let facts = base.problem.facts;
    let mut all = Vec::new();
    let mut around = |of: fn(u32) -> Change, now: u32| {
        if now.is_multiple_of(2) {
            all.push(of(now / 2));
        }
        all.push(of(now.saturating_mul(2)));
    };
    let domain = base.problem.hardware.domain;
    around(Change::TensorParallel, layout.tensor_parallel);
    around(Change::Pipeline, layout.pipeline_parallel);
    around(Change::MicroBatch, layout.micro_batch_size);
    if layout.context_parallel > 1 || base.problem.training.sequence_length >= 16_384 {
        around(Change::Context, layout.context_parallel);
    }
    if layout.pipeline_parallel > 1 {
        around(Change::VirtualStages, layout.virtual_stages);
    }
    if facts.has_experts {
        around(Change::Expert, layout.expert_parallel);
        if layout.expert_tensor_parallel > 1 {
            all.push(Change::ExpertTensor(1));
        }
    }
    if layout.tensor_parallel > 1 && !layout.sequence_parallel {
        all.push(Change::SequenceParallel(true));
    }
    let recompute = [Some(Recompute::None), attention_alone(), Some(Recompute::Full)];
    all.extend(
        recompute.into_iter().flatten().filter(|it| *it != layout.recompute).map(Change::Recompute),
    );
    let stages = [ZeroStage::OptimizerState, ZeroStage::Gradients];
    all.extend(stages.into_iter().filter(|it| *it != layout.zero_stage).map(Change::Zero));
    all.push(Change::RebalanceStages);
    // Tensor parallelism across nodes may be predicted to be faster, but is seldom worth trying first.
    all.retain(|it| !it.crosses(domain));
    all
}
