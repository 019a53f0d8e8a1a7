//! Finds the choice for each operator with which the step is shortest, within the memory of a GPU.

use std::sync::Mutex;

use ir::graph::{ByMeshAxis, SplitDim};
use ir::layout::{PartialLayout, ZeroStage};
use rayon::prelude::*;

use super::costs::{OnHardware, SplitChoice, SplitCosts};
use super::graph::Operators;
use super::plan::{OperatorPlan, SplitOperator, memory};
use super::space::{SplitSpace, TermWeights};
use super::step::OperatorStep;
use crate::problem::Problem;
use crate::search::{self, Go, Request, StopReason};

/// Plans found, and the proven bound on their times.
#[derive(Clone, Debug)]
pub struct OperatorSearch {
    /// Plans that fit, the fastest first; or, if none fits, the plan that exceeds the memory least.
    pub plans: Vec<OperatorPlan>,
    /// Lower bound, in seconds, of the time of any plan without stages and with the same number of micro-batches as the
    /// fastest of them; zero where the search was stopped.
    pub bound: f64,
    /// Number of ways of splitting the operators, over all meshes.
    pub candidates: u64,
    /// Number of steps that were simulated.
    pub evaluated: u64,
    /// Reason why the search ended.
    pub stop_reason: StopReason,
}

impl OperatorSearch {
    /// Largest share of the fastest plan's time by which another plan without stages could be faster; `None` where
    /// nothing fits or the search was stopped.
    pub fn gap(&self) -> Option<f64> {
        let fastest = self.plans.first().filter(|_| self.bound > 0.0)?.time();
        Some((1.0 - self.bound / fastest).max(0.0))
    }
}

/// ZeRO stages to try for the states of parameters that several ranks have. Gradients are sharded only together with
/// the parameters.
const STAGES: [ZeroStage; 3] = [ZeroStage::OptimizerState, ZeroStage::None, ZeroStage::Parameters];

/// Largest number of operators over all steps simulated to improve one plan, one changed operator at a time.
const MOST_PLAYED: u64 = 500_000;

/// Halvings of an interval of weights.
const HALVINGS: usize = 8;

/// Largest ratio of a plan's time to that of the fastest plan with which the plan is still improved.
const WORTH_IMPROVING: f64 = 1.05;

/// The least price of a byte of memory, in seconds, and the factor between the prices that are tried.
const LEAST_PRICE: f64 = 1e-13;
const PRICE_STEP: f64 = 30.0;

/// Splits the operators of `problem` over all its GPUs. `go` is asked after each mesh whether to go on.
pub fn solve(problem: &Problem, go: &mut (dyn FnMut() -> Go + Send)) -> OperatorSearch {
    let operators = Operators::new(&problem.graph);
    let batch = problem.training.global_batch_size;
    let mut found = OperatorSearch {
        plans: Vec::new(),
        bound: 0.0,
        candidates: 0,
        evaluated: 0,
        stop_reason: StopReason::Exhausted,
    };
    let meshes = meshes(problem.limits.num_gpus);
    let ways: Vec<_> = meshes.flat_map(|mesh| STAGES.map(|zero| (mesh, zero))).collect();
    let go = Mutex::new((go, StopReason::Exhausted));
    let goes_on = || go.lock().is_ok_and(|go| go.1 == StopReason::Exhausted);
    let ask = || {
        if let Ok(mut go) = go.lock()
            && let Go::Stop(reason) = (go.0)()
        {
            go.1 = reason;
        }
    };
    let misses = |plan: &OperatorPlan| plan.prediction.peak_memory_bytes;
    let mut closest: Option<OperatorPlan> = None;
    // Time of the fastest plan so far. Where memory limits it, a plan with more micro-batches may be faster.
    let mut fastest_fitting = f64::INFINITY;
    for num_micro_batches in (1..=batch).filter(|count| batch.is_multiple_of(*count)) {
        let costs = ways.iter().map(|&(mesh, zero)| {
            (mesh, OnHardware::new(problem, mesh, batch / num_micro_batches, zero))
        });
        let costs: Vec<_> = costs.collect();
        let searches = costs.par_iter().filter(|_| goes_on()).map(|(mesh, costs)| {
            let sizes = costs.setting().sizes;
            let space = SplitSpace::new(costs, &operators, *mesh, sizes, num_micro_batches);
            let mut search = Search::new(problem, costs, space);
            search.begin();
            ask();
            search
        });
        let mut searches: Vec<_> = searches.collect();
        let fastest = |searches: &[Search<'_, _>]| {
            let times = searches.iter().filter_map(Search::fastest);
            times.fold(f64::INFINITY, f64::min)
        };
        let best = fastest(&searches);
        searches.par_iter_mut().filter(|search| search.bound < best).for_each(|search| {
            if goes_on() {
                search.fit_memory();
                ask();
            }
        });
        let best = fastest(&searches) * WORTH_IMPROVING;
        let improved =
            searches.par_iter_mut().filter(|it| it.fastest().is_some_and(|it| it <= best));
        improved.for_each(|search| {
            if goes_on() {
                search.improve();
                ask();
            }
        });
        let mut bound = f64::INFINITY;
        let mut is_held_back = false;
        let num_plans = found.plans.len();
        for search in &searches {
            is_held_back |= search.weights.byte > 0.0;
            found.candidates += search.space.num_choices();
            found.evaluated += search.evaluated;
            bound = bound.min(search.bound);
            for (choices, played) in &search.found {
                let plan = search.plan(choices, *played);
                if problem.fits_with_headroom(&plan.prediction.memory) {
                    found.plans.push(plan);
                } else if closest.as_ref().is_none_or(|it| misses(&plan) < misses(it)) {
                    closest = Some(plan);
                }
            }
        }
        found.stop_reason = go.lock().map_or(StopReason::Interrupted, |go| go.1);
        if found.stop_reason != StopReason::Exhausted {
            found.bound = 0.0;
            break;
        }
        let new = found.plans[num_plans..].iter().map(OperatorPlan::time);
        let new = new.fold(f64::INFINITY, f64::min);
        if new < fastest_fitting {
            (fastest_fitting, found.bound) = (new, bound);
        }
        if !found.plans.is_empty() && (new > fastest_fitting || !is_held_back) {
            break;
        }
    }
    found.plans.extend(of_stages(problem, &operators));
    found.plans.sort_by(|a, b| a.time().total_cmp(&b.time()));
    found.plans.dedup_by(|a, b| a.operators == b.operators && a.layout == b.layout);
    if found.plans.is_empty() {
        found.plans.extend(closest);
    }
    found
}

/// The best plan of pipeline stages that split operators over the batch only, found by the search that serves all
/// graphs.
fn of_stages(problem: &Problem, operators: &Operators<'_>) -> Option<OperatorPlan> {
    let fixed = PartialLayout {
        tensor_parallel: 1.into(),
        context_parallel: 1.into(),
        expert_parallel: 1.into(),
        ..PartialLayout::default()
    };
    let request = Request { fixed, find_closest: false, ..Request::default() };
    let found = search::search(problem, &request, &mut |_| Go::On);
    found.plans.first().map(|found| OperatorPlan::of_stages(problem, operators, found))
}

/// Meshes of two axes over all ranks, starting with the mesh of one axis.
fn meshes(num_gpus: u32) -> impl Iterator<Item = ByMeshAxis<u32>> {
    let inner = (2..=num_gpus).rev().chain((num_gpus == 1).then_some(1));
    inner
        .filter(move |inner| num_gpus.is_multiple_of(*inner))
        .map(move |inner| [inner, num_gpus / inner])
}

/// A search over one mesh.
struct Search<'a, C> {
    problem: &'a Problem,
    costs: &'a C,
    space: SplitSpace<'a>,
    /// Lower bound of the time of a step that fits.
    bound: f64,
    /// Weights from which the price of memory is raised until a choice fits.
    weights: TermWeights,
    evaluated: u64,
    found: Vec<(Vec<usize>, OperatorStep)>,
}

impl<'a, C: SplitCosts> Search<'a, C> {
    const fn new(problem: &'a Problem, costs: &'a C, space: SplitSpace<'a>) -> Self {
        let weights = TermWeights::of_kernels(1.0, Vec::new());
        Self { problem, costs, space, bound: 0.0, weights, evaluated: 0, found: Vec::new() }
    }

    /// Chooses by batch alone, and by weights without a price of memory.
    fn begin(&mut self) {
        let by_batch = self.by_batch();
        let mut angles = self.angles(&by_batch);
        self.offer(by_batch);
        if self.space.least_memory() > self.most_additive() {
            // Nothing fits: the choice that takes least memory is closest to fitting.
            let by_memory = TermWeights { byte: 1.0, ..TermWeights::of_kernels(1.0, angles) };
            self.solved(&by_memory);
            self.bound = f64::INFINITY;
            return;
        }
        // The angles between device and host are those of the choice found before, so that the weighted sum becomes the
        // time of that choice.
        for _ in 0..2 {
            let choices = self.solved(&TermWeights::of_kernels(1.0, angles));
            angles = self.angles(&choices);
        }
        self.weights = TermWeights::of_kernels(1.0, angles);
        self.balance_network();
    }

    /// Time of the fastest choices found that fit.
    fn fastest(&self) -> Option<f64> {
        let fitting = self.found.iter().filter(|(_, played)| self.fits(played));
        fitting.map(|(_, played)| played.time()).min_by(f64::total_cmp)
    }

    fn slowdown(&self) -> f64 {
        self.problem.hardware.communication_slowdown
    }

    fn play(&mut self, choices: &[usize]) -> OperatorStep {
        self.evaluated += 1;
        self.space.played(self.costs, choices, self.slowdown())
    }

    fn offer(&mut self, choices: Vec<usize>) -> OperatorStep {
        let played = self.play(&choices);
        self.found.push((choices, played));
        played
    }

    /// Chooses by weights, and keeps the bound where the weights allow for one.
    fn solved(&mut self, weights: &TermWeights) -> Vec<usize> {
        let solution = self.space.program(weights).least();
        let allowed = weights.byte * self.most_additive();
        let bound = solution.bound + self.costs.between_steps().get() - allowed;
        self.bound = self.bound.max(bound);
        let choices: Vec<usize> = solution.choices[..self.space.choices.len()].to_vec();
        self.offer(choices.clone());
        choices
    }

    /// Exchanges of parameters cost nothing while kernels hide them. Where they take longer than the kernels, the best
    /// weights lie between kernels and exchanges.
    fn balance_network(&mut self) {
        let angles = self.weights.angles.clone();
        let is_hidden = |search: &mut Self, kernels: f64| {
            search.weights = TermWeights::of_kernels(kernels, angles.clone());
            let choices = search.solved(&search.weights.clone());
            let played = search.play(&choices);
            let replication = played.communication - played.waits;
            replication <= played.kernels + played.host
        };
        if is_hidden(self, 1.0) {
            // Exchanges that remain at the end are not hidden, so they count a little.
            for kernels in [0.99, 0.9, 0.5] {
                self.solved(&TermWeights::of_kernels(kernels, angles.clone()));
            }
            return;
        }
        let [mut low, mut high] = [0.0, 1.0];
        for _ in 0..HALVINGS {
            let kernels = f64::midpoint(low, high);
            if is_hidden(self, kernels) { low = kernels } else { high = kernels }
        }
    }

    /// Raises the price of memory until the choice fits.
    fn fit_memory(&mut self) {
        if self.fits_best() {
            return;
        }
        let weights = self.weights.clone();
        let fits = |search: &mut Self, byte: f64| {
            let choices = search.solved(&TermWeights { byte, ..weights.clone() });
            let played = search.play(&choices);
            search.fits(&played)
        };
        let mut high = LEAST_PRICE;
        while high < 1.0 && !fits(self, high) {
            high *= PRICE_STEP;
        }
        let mut low = high / PRICE_STEP;
        for _ in 0..HALVINGS {
            let byte = (low * high).sqrt();
            if fits(self, byte) { high = byte } else { low = byte }
        }
    }

    /// True if the fastest choice found fits.
    fn fits_best(&self) -> bool {
        let fastest = self.found.iter().min_by(|a, b| a.1.time().total_cmp(&b.1.time()));
        fastest.is_some_and(|(_, played)| self.fits(played))
    }

    /// Changes one operator's choice at a time, as long as that makes the step faster.
    fn improve(&mut self) {
        let fitting = self.found.iter().filter(|(_, played)| self.fits(played));
        let fastest = fitting.min_by(|a, b| a.1.time().total_cmp(&b.1.time()));
        let Some((mut choices, played)) = fastest.cloned() else { return };
        let mut best = played.time();
        let mut left = MOST_PLAYED / choices.len().max(1) as u64;
        loop {
            let before = best;
            for operator in 0..choices.len() {
                for choice in 0..self.space.choices[operator].len() {
                    let old = std::mem::replace(&mut choices[operator], choice);
                    if old == choice || left == 0 {
                        choices[operator] = old;
                        continue;
                    }
                    left -= 1;
                    let played = self.play(&choices);
                    if played.time() < best && self.fits(&played) {
                        best = played.time();
                    } else {
                        choices[operator] = old;
                    }
                }
            }
            if best >= before || left == 0 {
                break;
            }
        }
        self.offer(choices);
    }

    /// The choices that split every operator over the batch, where that is possible.
    fn by_batch(&self) -> Vec<usize> {
        let of = |choices: &[SplitChoice]| {
            let is_batch = |split: &Option<SplitDim>| *split == Some(SplitDim::Batch);
            let along = |choice: &SplitChoice| {
                choice.split.splits.iter().filter(|split| is_batch(split)).count()
            };
            let others = |choice: &SplitChoice| {
                choice.split.splits.iter().flatten().filter(|dim| **dim != SplitDim::Batch).count()
            };
            let best = (0..choices.len())
                .max_by_key(|at| (along(&choices[*at]), std::cmp::Reverse(others(&choices[*at]))));
            best.unwrap_or(0)
        };
        self.space.choices.iter().map(|choices| of(choices)).collect()
    }

    /// Cosine and sine of the angle between the times of device and host, by block and pass.
    fn angles(&self, chosen: &[usize]) -> Vec<[[f64; 2]; 2]> {
        let blocks = self.space.operators.all.last().map_or(0, |last| last.block + 1);
        let mut sums = vec![[[0.0; 2]; 2]; blocks];
        for ((operator, choices), chosen) in
            self.space.operators.all.iter().zip(&self.space.choices).zip(chosen)
        {
            let kernels = &choices[*chosen].kernels;
            for (pass, sum) in sums[operator.block].iter_mut().enumerate() {
                sum[0] += kernels.device[pass].get();
                sum[1] += kernels.host[pass].get();
            }
        }
        let unit = |[device, host]: [f64; 2]| {
            let length = device.hypot(host);
            if length > 0.0 { [device / length, host / length] } else { [1.0, 0.0] }
        };
        sums.into_iter().map(|passes| passes.map(unit)).collect()
    }

    /// Largest number of bytes of states and saved activations with which a plan fits.
    fn most_additive(&self) -> f64 {
        let least = memory(self.problem, self.costs.zero(), &OperatorStep::default()).total();
        self.problem.memory_budget.saturating_sub(least).as_f64()
    }

    fn fits(&self, played: &OperatorStep) -> bool {
        self.problem.fits_with_headroom(&memory(self.problem, self.costs.zero(), played))
    }

    fn plan(&self, choices: &[usize], played: OperatorStep) -> OperatorPlan {
        let chosen = self.space.choices.iter().zip(choices).map(|(all, choice)| &all[*choice]);
        let operators = self.space.operators.all.iter().zip(chosen).map(|(operator, choice)| {
            let degree = |dim: SplitDim| (dim, choice.split.degree(dim, self.space.mesh));
            let splits = SplitDim::ALL.into_iter().map(degree).filter(|(_, ranks)| *ranks > 1);
            SplitOperator { name: operator.name.clone(), splits: splits.collect() }
        });
        let way = (self.space.mesh, self.space.num_micro_batches, self.costs.zero());
        OperatorPlan::without_stages(self.problem, operators.collect(), way, &played)
    }
}
