//! JSON output of `search` and `evaluate`.

use std::collections::BTreeMap;
use std::time::Duration;

use ir::cluster::Cluster;
use ir::documents::Documents;
use ir::layout::LayoutSpec;
use ir::model::Model;
use ir::plan::{PlannedRank, Prediction, Training};
use ir::units::{Bytes, Seconds};
use serde::Serialize;

use super::expectation::Expectation;
use planner_core::plan::planned_ranks;
use planner_core::problem::Problem;
use planner_core::search::space::Rejection;
use planner_core::search::{
    Chosen, EvaluatedPlan, MemorySaving, OnNodes, Outcome, Quantiles, StopReason,
    utilization_with_every_pair,
};

/// Result of a search or an evaluation, with the plans to show.
#[derive(Debug)]
pub struct Answered {
    /// Outcome of the search.
    pub outcome: Outcome,
    /// Plans to show, in their order.
    pub shown: Vec<Chosen>,
    /// Duration of the search.
    pub elapsed: Duration,
    /// Smallest number of GPUs on which something fits, if nothing fits on the given number and such a number was
    /// found.
    pub least_gpus: Option<u32>,
    /// Options that free memory and with which something fits, if nothing fits without them.
    pub memory_saving: Option<MemorySaving>,
    /// True if the user named the layout.
    pub named: bool,
    /// The best plan, if the user named a layout.
    pub best: Option<OnNodes>,
    /// Features of a named layout that the framework does not support.
    pub lacks: Vec<String>,
    /// Memory of a GPU that must stay free.
    pub headroom: Bytes,
}

/// JSON report of a search or an evaluation.
#[derive(Debug, Serialize)]
pub struct SearchReport {
    model: ModelReport,
    num_gpus: u32,
    cluster: String,
    /// The framework that runs the step.
    framework: FrameworkReport,
    training: Training,
    /// Lengths of documents and their packing, if a sequence consists of several documents.
    #[serde(skip_serializing_if = "Option::is_none")]
    documents: Option<Documents>,
    /// Spread of tokens over experts by routers, if it is not even.
    #[serde(skip_serializing_if = "Option::is_none")]
    expert_load: Option<String>,
    /// True if stages were given by `--stages`; all plans then have these stages.
    stages_by_hand: bool,
    plans: Vec<PlanReport>,
    /// In an evaluation, the best plan without the user's constraints.
    #[serde(skip_serializing_if = "Option::is_none")]
    best: Option<PlanReport>,
    /// The fastest plan that fits only with less headroom, if its gain exceeds the resolution of predictions.
    #[serde(skip_serializing_if = "Option::is_none")]
    faster_with_less_headroom: Option<PlanReport>,
    search: SearchStatistics,
    #[serde(skip_serializing_if = "Option::is_none")]
    infeasible: Option<Infeasible>,
}

#[derive(Debug, Serialize)]
pub(super) struct ModelReport {
    name: String,
    num_parameters: u64,
    /// Warnings about likely mistakes in the model's description.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

impl ModelReport {
    pub(super) fn new(problem: &Problem, model: &Model) -> Self {
        Self {
            name: model.name.clone(),
            num_parameters: problem.parameters().total,
            warnings: model.warnings.iter().map(ToString::to_string).collect(),
        }
    }
}

/// The framework for which a step is predicted.
#[derive(Debug, Serialize)]
struct FrameworkReport {
    name: String,
    /// True if plans run in an existing framework; false for `ideal`.
    is_real: bool,
    /// Features of the named layout that the framework does not support.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lacks: Vec<String>,
}

#[derive(Debug, Serialize)]
struct PlanReport {
    layout: LayoutSpec,
    /// The layout in short form, as `--layout` accepts it.
    layout_name: String,
    #[serde(flatten)]
    prediction: Prediction,
    /// MFU, where every query-key pair of a causal mask counts.
    mfu_every_pair: f64,
    /// True if the predicted peak memory fits.
    fits: bool,
    /// True if the predicted peak memory fits and leaves the headroom free.
    fits_with_headroom: bool,
    /// Memory of a GPU that must stay free.
    headroom_bytes: Bytes,
    /// Features of the layout that the framework does not support.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unsupported: Vec<String>,
    /// Names of the nodes in the order of their ranks, if known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hosts: Vec<String>,
    /// Probability that no plan of another kind is faster.
    #[serde(skip_serializing_if = "Option::is_none")]
    likelihood: Option<f64>,
    /// True for the plan with the shortest predicted step.
    #[serde(skip_serializing_if = "Option::is_none")]
    is_fastest: Option<bool>,
    stage_ends: Vec<usize>,
    /// Pipeline ranks with their GPUs, if GPUs are of several kinds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ranks: Vec<PlannedRank>,
    expectation: Expectation,
    /// Quantiles of the step time over random loads of experts and random documents.
    #[serde(skip_serializing_if = "Option::is_none")]
    step_time_quantiles_seconds: Option<Quantiles>,
    /// Quantiles of the memory of the fullest rank over the same draws.
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_memory_quantiles_bytes: Option<Quantiles>,
}

#[derive(Debug, Serialize)]
struct SearchStatistics {
    candidates: u64,
    evaluated: u64,
    pruned: u64,
    pruned_by: PrunedBy,
    open: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    least_left_seconds: Option<f64>,
    elapsed_seconds: f64,
    stop_reason: StopReason,
}

/// Number of candidates that were pruned by bounds, by the bounded quantity.
#[derive(Debug, Serialize)]
struct PrunedBy {
    time: u64,
    memory: u64,
}

/// Reasons why nothing fits, and the plan that exceeds memory by the least.
#[derive(Debug, Serialize)]
struct Infeasible {
    rejected: BTreeMap<Rejection, u64>,
    closest: Option<PlanReport>,
    missing_bytes: Option<u64>,
    least_gpus: Option<u32>,
    /// Options with which something fits on these GPUs.
    fits_with: Option<String>,
}

impl SearchReport {
    /// The report of an answer. A layout that the user named is reported even if it does not fit.
    pub fn new(problem: &Problem, model: &Model, cluster: &Cluster, answer: &Answered) -> Self {
        let Answered { outcome, shown, elapsed, named, best, lacks, headroom, .. } = answer;
        let report = |found: &EvaluatedPlan| PlanReport::new(problem, found, *headroom);
        let mut plans: Vec<PlanReport> =
            shown.iter().map(|chosen| PlanReport::chosen(problem, chosen, *headroom)).collect();
        if *named && plans.is_empty() {
            plans.extend(outcome.closest.iter().map(report));
        }
        for plan in &mut plans {
            plan.unsupported.clone_from(lacks);
            plan.hosts.clone_from(&cluster.hosts);
        }
        let less = outcome.with_less_headroom.as_ref();
        let infeasible = outcome.plans.is_empty().then(|| Infeasible {
            rejected: outcome.rejected.clone(),
            closest: outcome.closest.as_ref().map(report),
            missing_bytes: outcome.closest.as_ref().map(|found| {
                let rank = found.evaluation.fullest_rank;
                found.excess(problem.at_rank(&found.layout, rank).memory_budget).get()
            }),
            least_gpus: answer.least_gpus,
            fits_with: answer.memory_saving.map(|it| it.to_string()),
        });
        Self {
            model: ModelReport::new(problem, model),
            num_gpus: problem.limits.num_gpus,
            cluster: cluster.name.clone(),
            framework: FrameworkReport {
                name: problem.hardware.framework.name.clone(),
                is_real: !problem.hardware.framework.is_ideal(),
                lacks: lacks.clone(),
            },
            training: problem.training,
            documents: problem.sequences.as_ref().map(|it| it.documents.clone()),
            expert_load: Some(&problem.expert_load.load)
                .filter(|load| !load.is_balanced())
                .map(ToString::to_string),
            stages_by_hand: problem.stages.is_some(),
            plans,
            best: best.as_ref().and_then(|best| {
                let plan = best.outcome.plans.first()?;
                Some(PlanReport::new(&best.problem, plan, *headroom))
            }),
            faster_with_less_headroom: less
                .map(|it| PlanReport::new(problem, &it.found, it.headroom)),
            search: SearchStatistics {
                candidates: outcome.counts.candidates,
                evaluated: outcome.counts.evaluated(),
                pruned: outcome.counts.pruned(),
                pruned_by: PrunedBy {
                    time: outcome.counts.pruned_by_time,
                    memory: outcome.counts.pruned_by_memory,
                },
                open: outcome.counts.open,
                least_left_seconds: outcome.least_left.map(Seconds::get),
                elapsed_seconds: elapsed.as_secs_f64(),
                stop_reason: outcome.stop_reason,
            },
            infeasible,
        }
    }
}

impl PlanReport {
    fn chosen(problem: &Problem, chosen: &Chosen, headroom: Bytes) -> Self {
        Self {
            likelihood: Some(chosen.likelihood),
            is_fastest: Some(chosen.is_fastest),
            ..Self::new(problem, &chosen.found, headroom)
        }
    }

    fn new(problem: &Problem, found: &EvaluatedPlan, headroom: Bytes) -> Self {
        let prediction = found.prediction(problem);
        let tightest = problem.at_rank(&found.layout, found.evaluation.fullest_rank);
        let left = tightest.clone().with_headroom(headroom);
        let draws = found.over_draws(problem);
        Self {
            layout: *found.layout,
            layout_name: found.layout.to_string(),
            mfu_every_pair: utilization_with_every_pair(problem, found.evaluation.step_time),
            fits: tightest.fits(&prediction.memory),
            fits_with_headroom: left.fits_with_headroom(&prediction.memory),
            headroom_bytes: headroom,
            unsupported: Vec::new(),
            hosts: Vec::new(),
            likelihood: None,
            is_fastest: None,
            prediction,
            stage_ends: found.stage_ends.clone(),
            ranks: planned_ranks(problem, found),
            expectation: Expectation::of(problem, found),
            step_time_quantiles_seconds: draws.map(|it| it.step_time),
            peak_memory_quantiles_bytes: draws.map(|it| it.peak_memory),
        }
    }
}
