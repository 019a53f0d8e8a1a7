//! Better settings near those at hand: one or two changed, the rest as it is.

use ir::graph::{Recompute, RecomputeModule, RecomputeModules};
use ir::layout::ZeroStage;
use serde::Serialize;

use super::bench::Bench;
use super::case::Trial;
use super::change::Change;
use super::finding::{Cost, Fix};
use super::memory::pairs;
use crate::search::RESOLUTION;
use ir::layout::LayoutSpec;

/// Better settings, with what they save.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Nearby {
    /// What is changed.
    pub fix: Fix,
    /// What that saves.
    pub saves: Cost,
    /// The layout so changed.
    pub layout: LayoutSpec,
}

/// The best few settings that differ in one or two things, fit, and are faster by more than can be told apart.
pub(super) fn nearest(bench: &Bench<'_>, most: usize) -> Vec<Nearby> {
    if most == 0 {
        return Vec::new();
    }
    let singles = singles(bench);
    let mut all: Vec<Vec<Change>> = singles.iter().map(|it| vec![it.clone()]).collect();
    all.extend(pairs(&singles));
    let mut trials: Vec<Trial> = bench
        .trials(&all)
        .into_iter()
        .filter(|it| it.case.has_room() && it.saves > RESOLUTION)
        .filter(|it| bench.fix(it).is_some())
        .collect();
    trials.sort_by(|one, other| other.saves.total_cmp(&one.saves));
    let mut shown: Vec<Trial> = Vec::new();
    for trial in trials {
        // Two changes are worth it only where the second adds to the first.
        let is_less = shown.iter().any(|it| it.case.found.layout == trial.case.found.layout);
        if !is_less && shown.len() < most {
            shown.push(trial);
        }
    }
    let nearby = |trial: Trial| {
        let fix = bench.fix(&trial)?;
        let layout = *trial.case.found.layout;
        Some(Nearby { fix, saves: trial.cost(&bench.base), layout })
    };
    shown.into_iter().filter_map(nearby).collect()
}

/// The settings next to those at hand.
fn singles(bench: &Bench<'_>) -> Vec<Change> {
    let base = &bench.base;
    let layout = &base.found.layout;
    let facts = base.problem.model_facts();
    let mut all = Vec::new();
    let mut around = |of: fn(u32) -> Change, now: u32| {
        if now.is_multiple_of(2) {
            all.push(of(now / 2));
        }
        all.push(of(now.saturating_mul(2)));
    };
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
    let attention = RecomputeModules::new([RecomputeModule::Attention]).map(Recompute::Modules);
    let recompute = [Some(Recompute::None), attention, Some(Recompute::Full)];
    all.extend(
        recompute.into_iter().flatten().filter(|it| *it != layout.recompute).map(Change::Recompute),
    );
    let stages = [ZeroStage::OptimizerState, ZeroStage::Gradients];
    all.extend(stages.into_iter().filter(|it| *it != layout.zero_stage).map(Change::Zero));
    all.push(Change::CutAnew);
    all
}
