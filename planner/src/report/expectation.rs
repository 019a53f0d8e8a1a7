//! How far a prediction can be trusted: the interval that it carries, and what it rests on.

use cost_models::Basis;
use cost_models::block::terms;
use cost_models::residuals::{Evidence, SHARE, Spread, SpreadOf};
use ir::units::{Bytes, Seconds};
use serde::Serialize;

use planner_core::problem::Problem;
use planner_core::search::EvaluatedPlan;
use planner_core::step::ShapeKey;

/// What measured steps say of a predicted one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Expectation {
    /// The interval's lower end.
    pub low_seconds: f64,
    /// Its upper end.
    pub high_seconds: f64,
    /// Share of the measured steps of sources that were left out of the fit that lay within, in the mean of these.
    pub share: f64,
    /// What is known of the framework on such GPUs.
    pub evidence: Evidence,
    /// How many sources were left out, each once, of which as much was known.
    pub sources: usize,
    /// How many steps they have.
    pub measured_steps: usize,
    /// The same of its memory.
    pub peak_memory: ExpectedMemory,
    /// Of the time of kernels and collectives, the share that rests on measurements around its sizes.
    pub interpolated: f64,
    /// On measurements at other sizes.
    pub extrapolated: f64,
    /// On data sheets.
    pub data_sheet: f64,
}

/// What measured peaks of memory say of a predicted one: each as its source counted it, allocated, reserved or
/// all of the process, over as much of its prediction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExpectedMemory {
    /// The interval's lower end.
    pub low_bytes: Bytes,
    /// Its upper end.
    pub high_bytes: Bytes,
    /// What is known of such peaks.
    pub evidence: Evidence,
    /// How many sources were left out of which as much was known.
    pub sources: usize,
    /// How many peaks they have.
    pub measured_peaks: usize,
}

impl ExpectedMemory {
    fn of(problem: &Problem, found: &EvaluatedPlan) -> Self {
        let (evidence, Spread { sources, rows, low, high, .. }) =
            Spread::shipped(SpreadOf::PeakMemoryBytes, &problem.hardware);
        let peak = found.evaluation.memory.total().as_f64();
        Self {
            low_bytes: Bytes::from_f64(peak * low),
            high_bytes: Bytes::from_f64(peak * high),
            evidence,
            sources,
            measured_peaks: rows,
        }
    }
}

impl Expectation {
    /// That of a plan.
    pub fn of(problem: &Problem, found: &EvaluatedPlan) -> Self {
        let (evidence, Spread { sources, rows, low, high, .. }) =
            Spread::shipped(SpreadOf::StepTimeSeconds, &problem.hardware);
        let step = found.evaluation.step_time.get();
        let [interpolated, extrapolated, data_sheet] = bases(problem, found);
        Self {
            low_seconds: step * low,
            high_seconds: step * high,
            share: SHARE,
            evidence,
            sources,
            measured_steps: rows,
            peak_memory: ExpectedMemory::of(problem, found),
            interpolated,
            extrapolated,
            data_sheet,
        }
    }

    /// The intervals of time and memory with their sources, a line each; and what the time rests on.
    pub fn in_words(&self) -> String {
        let [low, high] = [self.low_seconds, self.high_seconds].map(Seconds::new);
        let shares = [self.interpolated, self.extrapolated, self.data_sheet];
        let parts = Basis::ALL.into_iter().zip(shares).filter(|(_, share)| *share >= 0.005);
        let rests: Vec<String> = parts
            .map(|(basis, share)| format!("{} {:.0} %", basis.in_words(), share * 100.0))
            .collect();
        let ExpectedMemory { low_bytes, high_bytes, .. } = self.peak_memory;
        format!(
            "expect: {low} to {high}, {share:.0} % interval from {} measured steps of {} sources left out of the fit\n        \
             {low_bytes} to {high_bytes}, {share:.0} % interval from {} measured peaks of {} sources\n        {}\nrests on: {}\n",
            self.measured_steps,
            self.sources,
            self.peak_memory.measured_peaks,
            self.peak_memory.sources,
            known(self.evidence),
            rests.join("; "),
            share = self.share * 100.0,
        )
    }
}

/// What is known of a stack, in words.
const fn known(evidence: Evidence) -> &'static str {
    match evidence {
        Evidence::Calibrated => "(calibrated: steps of this framework were measured on these GPUs)",
        Evidence::Measured => {
            "(others measured this framework on such GPUs; `planner calibrate` narrows it)"
        }
        Evidence::Unknown => {
            "(what runs it is not known: steps of all frameworks, read as this one; `planner calibrate` finds which it is like)"
        }
        Evidence::New => {
            "(nobody measured this framework on such GPUs; `planner calibrate` takes one to ten steps of yours)"
        }
    }
}

/// Shares of the time of all blocks by what it rests on, in the order of [`Basis::ALL`].
fn bases(problem: &Problem, found: &EvaluatedPlan) -> [f64; 3] {
    let key = ShapeKey::of(&found.layout);
    let counts = problem.graph.class_counts();
    let mut times = [0.0; 3];
    for (class, block) in problem.graph.classes() {
        let setting = key.setting(problem, class.0);
        for term in terms(block, &setting, &key.groups(), &problem.hardware) {
            times[term.basis as usize] += term.time.get() * f64::from(counts[class.0]);
        }
    }
    let all: f64 = times.iter().sum();
    times.map(|time| if all > 0.0 { time / all } else { 0.0 })
}
