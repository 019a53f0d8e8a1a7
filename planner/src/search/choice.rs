//! Which of the plans that a search found stand first: what the model cannot tell apart it does not rank.

use std::collections::BTreeSet;

use ir::graph::{CudaGraphs, ExpertOverlap, Recompute};
use ir::layout::{Layout, ZeroStage};

use super::ensemble::Ensemble;
use super::found::Found;
use crate::problem::Problem;

/// Plans whose times differ by a smaller share are not ranked by them: at the error of measured pairs of layouts, 7.0 %,
/// two that differ by so much are in the right order two times of three.
pub const RESOLUTION: f64 = 0.03;

/// How many of the fastest plans are looked at for the simplest, where fewer are shown.
pub const LOOKED_AT: usize = 32;

/// A plan, and how it stands among those of other kinds.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// The plan.
    pub found: Found,
    /// How likely it is that no plan of another kind is faster, in the draws of what the stack may be.
    pub likelihood: f64,
    /// Whether the model has it as the fastest of all.
    pub is_fastest: bool,
}

/// What plans differ in that are of different kinds: the rest is tuning within a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    tensor: u32,
    context: u32,
    expert: u32,
    pipeline: u32,
    shards_parameters: bool,
}

impl Kind {
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

/// What makes a plan simpler than another: fewer kinds of parallelism, less that is computed again, less that is
/// switched on, then more room and less time.
fn simplicity(found: &Found) -> impl Ord + use<> {
    let layout = &found.layout;
    let zero = layout.zero_stage;
    let axes = [
        layout.tensor_parallel > 1,
        layout.context_parallel > 1,
        layout.expert_parallel > 1,
        layout.pipeline_parallel > 1,
        layout.virtual_stages > 1,
        layout.offload.is_some(),
        zero == ZeroStage::Parameters,
    ];
    let recompute = match layout.recompute {
        Recompute::None => 0,
        Recompute::Selective | Recompute::Modules(_) => 1,
        Recompute::FirstLayers(_) => 2,
        Recompute::Full => 3,
    };
    let switched = [
        zero >= ZeroStage::Gradients,
        layout.switches.expert_overlap != ExpertOverlap::None,
        layout.switches.cuda_graphs != CudaGraphs::None,
        layout.zero_shard != layout.context_parallel * layout.data_parallel,
        layout.expert_tensor_parallel != layout.tensor_parallel
            && layout.expert_tensor_parallel > 1,
    ];
    let count = |which: &[bool]| which.iter().filter(|is_on| **is_on).count();
    let degrees = layout.context_parallel * layout.pipeline_parallel * layout.virtual_stages;
    let memory = found.evaluation.memory.total();
    (count(&axes), recompute + count(&switched), degrees, memory, found.layout)
}

/// The plans to show, at most `top` of those that were found, best first: the simplest of those that the model cannot
/// tell from the best, then of each other kind the simplest that it cannot tell from the best of its kind. The fastest
/// is among them.
///
/// What is best takes least time; where the framework stands for others, it loses least in the mean of what the stack
/// may be.
pub fn chosen(problem: &Problem, plans: &[Found], top: usize) -> Vec<Chosen> {
    let Some(fastest) = plans.first() else { return Vec::new() };
    let kinds = Kinds::of(problem, plans);
    let mut ranked: Vec<(f64, &Found)> = plans.iter().map(|it| (kinds.cost(it), it)).collect();
    ranked.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let simplest = |of: &dyn Fn(&Found) -> bool| {
        let those = || ranked.iter().filter(|(_, found)| of(found));
        let (least, best) = those().next()?;
        let near = those().filter(|(cost, _)| *cost <= least * (1.0 + RESOLUTION));
        let simplest = near.min_by_key(|(_, found)| simplicity(found));
        Some(simplest.map_or(*best, |(_, found)| *found))
    };
    let first = simplest(&|_| true).unwrap_or(fastest);
    let mut shown = vec![first];
    let mut seen = BTreeSet::from([Kind::of(&first.layout)]);
    if first != fastest && top > 1 {
        shown.push(fastest);
        seen.insert(Kind::of(&fastest.layout));
    }
    let last = shown.len();
    for (_, found) in &ranked {
        let kind = Kind::of(&found.layout);
        if shown.len() < top && seen.insert(kind) {
            shown.extend(simplest(&|it| Kind::of(&it.layout) == kind));
        }
    }
    shown[last..].sort_by(|one, other| kinds.cost(one).total_cmp(&kinds.cost(other)));
    let chosen = shown.into_iter().map(|found| Chosen {
        found: found.clone(),
        likelihood: kinds.likelihood(found),
        is_fastest: found == fastest,
    });
    chosen.collect()
}

/// The kinds of plans that were found, each by its fastest.
struct Kinds<'a> {
    fastest: Vec<&'a Found>,
    /// How likely each is the fastest.
    likelihoods: Vec<f64>,
    /// What each loses, where that is asked for.
    losses: Option<Vec<f64>>,
}

impl<'a> Kinds<'a> {
    fn of(problem: &Problem, plans: &'a [Found]) -> Self {
        let mut seen = BTreeSet::new();
        let fastest: Vec<&Found> =
            plans.iter().filter(|it| seen.insert(Kind::of(&it.layout))).collect();
        let stands_for_others = !problem.hardware.framework.stands_for.is_empty();
        if fastest.len() < 2 {
            return Self { likelihoods: vec![1.0; fastest.len()], fastest, losses: None };
        }
        let posed: Vec<(&Problem, &Found)> = fastest.iter().map(|it| (problem, *it)).collect();
        let ensemble = Ensemble::of(&posed);
        let losses = stands_for_others.then(|| ensemble.losses());
        Self { fastest, likelihoods: ensemble.fastest(), losses }
    }

    fn place(&self, found: &Found) -> usize {
        let kind = Kind::of(&found.layout);
        self.fastest.iter().position(|it| Kind::of(&it.layout) == kind).unwrap_or_default()
    }

    fn likelihood(&self, found: &Found) -> f64 {
        self.likelihoods[self.place(found)]
    }

    /// What plans are ranked by: time, or what is lost beyond that of the fastest.
    fn cost(&self, found: &Found) -> f64 {
        let time = found.evaluation.step_time;
        let Some(losses) = &self.losses else { return time.get() };
        let place = self.place(found);
        (1.0 + losses[place]) * (time / self.fastest[place].evaluation.step_time)
    }
}

/// How likely it is that the first of two plans is faster, each with its problem.
pub fn likelihood_first_is_faster(first: (&Problem, &Found), second: (&Problem, &Found)) -> f64 {
    Ensemble::of(&[first, second]).fastest()[0]
}

/// The share of the first plan's time that the second saves, each with its problem: the interval that holds `share` of
/// the draws of what the stack may be.
pub fn saving(first: (&Problem, &Found), second: (&Problem, &Found), share: f64) -> [f64; 2] {
    Ensemble::of(&[first, second]).saving(share)
}
