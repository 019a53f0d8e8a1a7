//! Order in which plans are shown: plans that the model cannot tell apart are not ranked by time.

use std::collections::{BTreeMap, BTreeSet};

use ir::graph::{ContextParallelKind, CudaGraphs, ExpertOverlap, Recompute};
use ir::layout::{Layout, ZeroStage};

use super::ensemble::Ensemble;
use super::evaluated_plan::EvaluatedPlan;
use crate::problem::Problem;

/// Relative difference of times below which plans are not ranked: with the error of measured pairs of layouts, 7.0 %,
/// two plans that differ by this much are in the right order two times out of three.
pub const RESOLUTION: f64 = 0.03;

/// Share of the step time by which a simpler plan may be slower than the best and still stand first.
///
/// Chosen on 340 groups of measured runs that differ in their layout alone: with 1 % the first plan takes 1.4 % longer
/// than the fastest measured, with 3 % it takes 1.7 % longer, with 0.2 % 1.5 %.
pub const SIMPLICITY_TOLERANCE: f64 = 0.01;

/// Number of fastest plans among which the simplest is looked for, if fewer are shown.
pub const LOOKED_AT: usize = 32;

/// A plan, with its odds against the plans of other kinds.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// The plan.
    pub found: EvaluatedPlan,
    /// Share of the ensemble's draws in which the plan is the fastest, among the plans shown and the fastest of each
    /// other kind.
    pub likelihood: f64,
    /// True for the plan that is predicted to be the fastest of all.
    pub is_fastest: bool,
}

/// Kind of a plan: the options in which kinds differ. All other options are tuning within a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PlanKind {
    tensor: u32,
    context: u32,
    expert: u32,
    pipeline: u32,
    shards_parameters: bool,
}

impl PlanKind {
    fn of(layout: &Layout) -> Self {
        Self {
            tensor: layout.tensor_parallel,
            context: layout.context_parallel,
            expert: layout.expert_parallel,
            pipeline: layout.pipeline_parallel,
            shards_parameters: layout.zero_stage == ZeroStage::Parameters,
        }
    }
}

/// Longest sequence, in tokens, at which context parallelism is unusual: recipes use it only for longer ones.
const SHORT_SEQUENCE: u64 = 8192;

/// Complexity key of a plan, least for the simplest: first options used only out of need, then the number of kinds of
/// parallelism, recompute and switches, sharding (DDP before ZeRO before FSDP), uneven stages, degrees, and then
/// memory.
fn simplicity(problem: &Problem, found: &EvaluatedPlan) -> impl Ord + use<> {
    let layout = &found.layout;
    let domain = problem.hardware.domain;
    let replicas = layout.context_parallel * layout.data_parallel;
    let is_short = problem.training.sequence_length <= SHORT_SEQUENCE;
    let unusual = [
        layout.tensor_parallel > domain,
        layout.context_parallel > 1 && is_short,
        layout.zero_stage != ZeroStage::None && layout.zero_shard != replicas,
        layout.offload.is_some(),
        layout.expert_tensor_parallel != layout.tensor_parallel
            && layout.expert_tensor_parallel > 1,
    ];
    let axes = [
        layout.tensor_parallel > 1,
        layout.context_parallel > 1,
        layout.expert_parallel > 1,
        layout.pipeline_parallel > 1,
        layout.virtual_stages > 1,
        layout.zero_stage == ZeroStage::Parameters,
    ];
    let recompute = match layout.recompute {
        Recompute::None => 0,
        Recompute::Selective | Recompute::Modules(_) => 1,
        Recompute::FirstLayers(_) => 2,
        Recompute::Full => 3,
    };
    let switched = [
        layout.switches.expert_overlap != ExpertOverlap::None,
        layout.switches.cuda_graphs != CudaGraphs::None,
        layout.context_parallel > 1 && layout.context_parallel_kind != ContextParallelKind::Ring,
    ];
    let count = |which: &[bool]| which.iter().filter(|is_on| **is_on).count();
    // Embedding and head may count as one layer each.
    let blocks = problem.limits.num_blocks;
    let divides = |count: u64| count.is_multiple_of(u64::from(layout.num_stages()));
    let is_uneven = !divides(blocks) && !divides(blocks.saturating_sub(2));
    let degrees = layout.context_parallel * layout.pipeline_parallel * layout.virtual_stages;
    let memory = found.evaluation.memory.total();
    (
        [count(&unusual) + usize::from(layout.tensor_parallel > domain), count(&axes)],
        recompute + count(&switched),
        layout.zero_stage,
        is_uneven,
        degrees,
        memory,
        found.layout,
    )
}

/// Number of plans that decide which plan is first, even if `--top` shows fewer: the default of `--top`.
const USUAL_TOP: usize = 5;

/// Share of the likeliest plan's odds below which a plan is not shown first.
const LEAST_ODDS: f64 = 1.0 / 3.0;

/// The plans to show, at most `top`, best first. The first is the simplest of the plans that the best plan beats by no
/// more than [`SIMPLICITY_TOLERANCE`]. For each other kind, the simplest plan follows that the best of its kind beats
/// by no more than that. The fastest plan is among them if `top` is more than 1.
///
/// The first has at least a third of the odds of the likeliest plan shown. The odds of a plan are the share of draws in
/// which it is the fastest, among the plans shown and the fastest of each other kind, in one sample.
///
/// The best plan takes least time; where the framework stands for others, the best has the least mean regret over the
/// ensemble.
pub fn chosen(problem: &Problem, plans: &[EvaluatedPlan], top: usize) -> Vec<Chosen> {
    let Some(fastest) = plans.first() else { return Vec::new() };
    let mut draws = DrawCache::new(problem);
    let kinds = Kinds::of(&mut draws, plans);
    let mut ranked: Vec<(f64, &EvaluatedPlan)> =
        plans.iter().map(|it| (kinds.cost(it), it)).collect();
    ranked.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let least = ranked.first().map_or(0.0, |(cost, _)| *cost);
    let tied = ranked.iter().filter(|(cost, _)| *cost <= least * (1.0 + SIMPLICITY_TOLERANCE));
    let mut contenders: Vec<&EvaluatedPlan> = tied.map(|(_, found)| *found).collect();
    contenders.sort_by_cached_key(|found| simplicity(problem, found));
    let mut likeliest = fastest;
    // The plan shown first does not depend on the number of plans shown.
    let first = contenders.into_iter().find(|first| {
        let shown = kinds.shown(problem, &ranked, first, fastest, top.max(USUAL_TOP));
        let odds = draws.odds(&kinds.with_others(&shown));
        let most = odds[..shown.len()].iter().copied().fold(0.0, f64::max);
        likeliest =
            shown.iter().zip(&odds).find(|(_, it)| **it >= most).map_or(fastest, |it| *it.0);
        odds[0] >= most * LEAST_ODDS
    });
    let shown = kinds.shown(problem, &ranked, first.unwrap_or(likeliest), fastest, top);
    let odds = draws.odds(&kinds.with_others(&shown));
    let chosen = shown.iter().zip(odds).map(|(found, likelihood)| Chosen {
        found: (*found).clone(),
        likelihood,
        is_fastest: *found == fastest,
    });
    chosen.collect()
}

/// Cache of the draws of a problem's plans.
struct DrawCache<'a> {
    problem: &'a Problem,
    drawn: BTreeMap<(Layout, Vec<usize>), Vec<f64>>,
}

impl<'a> DrawCache<'a> {
    const fn new(problem: &'a Problem) -> Self {
        Self { problem, drawn: BTreeMap::new() }
    }

    /// The ensemble of some plans.
    fn of(&mut self, plans: &[&EvaluatedPlan]) -> Ensemble {
        let key = |found: &EvaluatedPlan| (found.layout, found.stage_ends.clone());
        let missing = plans.iter().filter(|it| !self.drawn.contains_key(&key(it)));
        let posed: Vec<_> = missing.map(|it| (self.problem, *it)).collect();
        let logs = Ensemble::of(&posed).into_logs();
        self.drawn.extend(posed.iter().map(|(_, it)| key(it)).zip(logs));
        let logs = plans.iter().map(|it| self.drawn[&key(it)].clone());
        Ensemble::from_logs(logs.collect())
    }

    /// Share of draws in which each of some plans is the fastest of them.
    fn odds(&mut self, plans: &[&EvaluatedPlan]) -> Vec<f64> {
        if plans.len() < 2 { vec![1.0; plans.len()] } else { self.of(plans).fastest() }
    }
}

/// The kinds of the plans found, each with its fastest plan.
struct Kinds<'a> {
    fastest: Vec<&'a EvaluatedPlan>,
    /// Regret of each kind, where the framework stands for others.
    losses: Option<Vec<f64>>,
}

impl<'a> Kinds<'a> {
    fn of(draws: &mut DrawCache<'_>, plans: &'a [EvaluatedPlan]) -> Self {
        let mut seen = BTreeSet::new();
        let fastest: Vec<&EvaluatedPlan> =
            plans.iter().filter(|it| seen.insert(PlanKind::of(&it.layout))).collect();
        let stands_for_others = !draws.problem.hardware.framework.stands_for.is_empty();
        let losses = (stands_for_others && fastest.len() > 1).then(|| draws.of(&fastest).losses());
        Self { fastest, losses }
    }

    /// Key by which plans are ranked: step time, or regret.
    fn cost(&self, found: &EvaluatedPlan) -> f64 {
        let time = found.evaluation.step_time;
        let Some(losses) = &self.losses else { return time.get() };
        let kind = PlanKind::of(&found.layout);
        let place = self.fastest.iter().position(|it| PlanKind::of(&it.layout) == kind);
        let place = place.unwrap_or_default();
        (1.0 + losses[place]) * (time / self.fastest[place].evaluation.step_time)
    }

    /// The plans to show with `first` in front: the fastest, and the simplest of each other kind.
    fn shown(
        &self,
        problem: &Problem,
        ranked: &[(f64, &'a EvaluatedPlan)],
        first: &'a EvaluatedPlan,
        fastest: &'a EvaluatedPlan,
        top: usize,
    ) -> Vec<&'a EvaluatedPlan> {
        let mut shown = vec![first];
        if first != fastest && top > 1 {
            shown.push(fastest);
        }
        let mut seen: BTreeSet<PlanKind> =
            shown.iter().map(|it| PlanKind::of(&it.layout)).collect();
        let last = shown.len();
        for (least, found) in ranked {
            let kind = PlanKind::of(&found.layout);
            if shown.len() < top && seen.insert(kind) {
                let own = ranked.iter().filter(|(cost, it)| {
                    PlanKind::of(&it.layout) == kind
                        && *cost <= least * (1.0 + SIMPLICITY_TOLERANCE)
                });
                shown.extend(own.map(|(_, it)| *it).min_by_key(|it| simplicity(problem, it)));
            }
        }
        shown[last..].sort_by(|one, other| self.cost(one).total_cmp(&self.cost(other)));
        shown
    }

    /// Some plans, and the fastest plan of each kind that is not among their kinds.
    fn with_others<'b>(&self, shown: &[&'b EvaluatedPlan]) -> Vec<&'b EvaluatedPlan>
    where
        'a: 'b,
    {
        let seen: BTreeSet<PlanKind> = shown.iter().map(|it| PlanKind::of(&it.layout)).collect();
        let others = self.fastest.iter().filter(|it| !seen.contains(&PlanKind::of(&it.layout)));
        shown.iter().copied().chain(others.copied()).collect()
    }
}

/// True if two plans cannot be told apart: their times differ by little, and one is the faster in at least a third as
/// many draws as the other.
pub fn is_tie(share: f64, likelihood_first_is_faster: f64) -> bool {
    let less = likelihood_first_is_faster.min(1.0 - likelihood_first_is_faster);
    share.abs() < RESOLUTION && less >= (1.0 - less) * LEAST_ODDS
}

/// Probability that the first of two plans is the faster, each with its problem.
pub fn likelihood_first_is_faster(
    first: (&Problem, &EvaluatedPlan),
    second: (&Problem, &EvaluatedPlan),
) -> f64 {
    Ensemble::of(&[first, second]).fastest()[0]
}

/// Share of the first plan's time that the second saves, each with its problem: the interval that holds `share` of the
/// ensemble's draws.
pub fn saving(
    first: (&Problem, &EvaluatedPlan),
    second: (&Problem, &EvaluatedPlan),
    share: f64,
) -> [f64; 2] {
    Ensemble::of(&[first, second]).saving(share)
}
