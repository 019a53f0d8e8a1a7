//! Which of the plans that a search found stand first: what the model cannot tell apart it does not rank.

use std::collections::BTreeSet;

use cost_models::residuals::PAIRED_ERROR;
use ir::graph::{CudaGraphs, ExpertOverlap, Recompute};
use ir::layout::{Layout, ZeroStage};
use ir::units::Seconds;

use super::found::Found;

/// Plans whose times differ by a smaller share are not ranked by them: at the [paired error](PAIRED_ERROR) of
/// measured layouts, two that differ by so much are in the right order two times of three.
pub const RESOLUTION: f64 = 0.03;

/// How many of the fastest plans are looked at for the simplest, where fewer are shown.
pub const LOOKED_AT: usize = 32;

/// A plan, and how it stands among those of other kinds.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// The plan.
    pub found: Found,
    /// How likely it is that no plan of another kind is faster, by the paired error of measured layouts.
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

/// The plans to show, at most `top` of those that were found, fastest first: the simplest of those that the model
/// cannot tell from the fastest, then one of each other kind, by time. The fastest is among them.
pub fn chosen(plans: &[Found], top: usize) -> Vec<Chosen> {
    let Some(fastest) = plans.first() else { return Vec::new() };
    let least = fastest.evaluation.step_time.get();
    let near =
        plans.iter().filter(|it| it.evaluation.step_time.get() <= least * (1.0 + RESOLUTION));
    let first = near.min_by_key(|found| simplicity(found)).unwrap_or(fastest);
    let mut shown = vec![first];
    let mut kinds = BTreeSet::from([Kind::of(&first.layout)]);
    if first != fastest && top > 1 {
        shown.push(fastest);
        kinds.insert(Kind::of(&fastest.layout));
    }
    for found in plans {
        if shown.len() < top && kinds.insert(Kind::of(&found.layout)) {
            shown.push(found);
        }
    }
    let likelihoods = likelihoods(plans);
    let chosen = shown.into_iter().map(|found| Chosen {
        found: found.clone(),
        likelihood: likelihoods
            .iter()
            .find(|(kind, _)| *kind == Kind::of(&found.layout))
            .map_or(0.0, |(_, likelihood)| *likelihood),
        is_fastest: found == fastest,
    });
    chosen.collect()
}

/// How likely each kind is to be the fastest: their errors are taken to be independent and normal, of such a width
/// that those of two differ by the paired error.
///
/// ```text
/// P(i) = integral of phi(x) prod over j of Phi((ln t_j - ln t_i) / s - x) dx,  s = paired error / sqrt 2
/// ```
fn likelihoods(plans: &[Found]) -> Vec<(Kind, f64)> {
    let mut fastest: Vec<(Kind, f64)> = Vec::new();
    for found in plans {
        let kind = Kind::of(&found.layout);
        if fastest.iter().all(|(known, _)| *known != kind) {
            fastest.push((kind, found.evaluation.step_time.get().ln()));
        }
    }
    let width = PAIRED_ERROR / std::f64::consts::SQRT_2;
    let of = |own: f64, place: usize| {
        let steps = -40..=40;
        let density = steps.map(|step| {
            let x = f64::from(step) * 0.1;
            let others = fastest.iter().enumerate().filter(|(other, _)| *other != place);
            let slower: f64 =
                others.map(|(_, (_, time))| below((time - own) / width - x)).product();
            0.1 * (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * slower
        });
        density.sum()
    };
    let kinds = fastest.iter().enumerate();
    kinds.map(|(place, (kind, time))| (*kind, of(*time, place))).collect()
}

/// How likely it is that a plan of the one predicted time is faster than one of the other, by the paired error of
/// measured layouts.
pub fn likelihood_of_less(one: Seconds, other: Seconds) -> f64 {
    below((other / one).ln() / PAIRED_ERROR)
}

/// The share of a normal distribution below `x`.
///
/// # Source
///
/// Abramowitz and Stegun 1964, 26.2.17: off by at most 7.5e-8.
fn below(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let factors = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let sum = factors.iter().rev().fold(0.0, |sum, factor| (sum + factor) * t);
    let above = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * sum;
    if x >= 0.0 { 1.0 - above } else { above }
}
