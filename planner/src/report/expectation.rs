//! Confidence in a prediction: its intervals of step time and memory, and the measurements behind them.

use cost_models::Basis;
use cost_models::block::terms;
use cost_models::residuals::{Evidence, SHARE, Spread, SpreadOf, peak_deviation};
use ir::units::{Bytes, Seconds};
use serde::Serialize;

use planner_core::problem::Problem;
use planner_core::search::EvaluatedPlan;
use planner_core::step::ShapeKey;

/// Intervals of a predicted step time and peak memory, derived from the residuals of measured steps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Expectation {
    /// Lower end of the step time's interval.
    pub low_seconds: f64,
    /// Upper end of the step time's interval.
    pub high_seconds: f64,
    /// Coverage of the intervals: the share of steps of held-out sources that lies within them, averaged over sources.
    pub share: f64,
    /// Level of evidence for the framework on GPUs of this kind.
    pub evidence: Evidence,
    /// Number of sources with this level of evidence; each was held out of the fit once.
    pub sources: usize,
    /// Number of measured steps of these sources.
    pub measured_steps: usize,
    /// Interval of the peak memory.
    pub peak_memory: ExpectedMemory,
    /// Share of the time of kernels and collectives that is interpolated between measurements at sizes around their
    /// own.
    pub interpolated: f64,
    /// Share of that time that is extrapolated from measurements at other sizes.
    pub extrapolated: f64,
    /// Share of that time that is based on data sheets.
    pub data_sheet: f64,
}

/// Interval of a predicted peak memory, derived from measured peaks. A source counts either allocated memory, reserved
/// memory or all memory of the process; it is compared with the same part of its prediction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExpectedMemory {
    /// Lower end of the interval.
    pub low_bytes: Bytes,
    /// Upper end of the interval.
    pub high_bytes: Bytes,
    /// Level of evidence for peaks of this kind.
    pub evidence: Evidence,
    /// Number of held-out sources with this level of evidence.
    pub sources: usize,
    /// Number of measured peaks of these sources.
    pub measured_peaks: usize,
}

impl ExpectedMemory {
    fn of(problem: &Problem, found: &EvaluatedPlan) -> Self {
        let (evidence, spread) = weakest(SpreadOf::PeakMemoryBytes, problem);
        let memory = &found.evaluation.memory;
        let peak = memory.total().as_f64();
        let ratios = spread.interval(peak_deviation(memory));
        let [low_bytes, high_bytes] = ratios.map(|ratio| Bytes::from_f64(peak * ratio));
        let Spread { sources, rows: measured_peaks, .. } = spread;
        Self { low_bytes, high_bytes, evidence, sources, measured_peaks }
    }
}

impl Expectation {
    /// The expectation for an evaluated plan.
    pub fn of(problem: &Problem, found: &EvaluatedPlan) -> Self {
        let (evidence, spread) = weakest(SpreadOf::StepTimeSeconds, problem);
        let step = found.evaluation.step_time.get();
        let [low, high] = spread.interval(found.log_deviation(problem));
        let [interpolated, extrapolated, data_sheet] = bases(problem, found);
        Self {
            low_seconds: step * low,
            high_seconds: step * high,
            share: SHARE,
            evidence,
            sources: spread.sources,
            measured_steps: spread.rows,
            peak_memory: ExpectedMemory::of(problem, found),
            interpolated,
            extrapolated,
            data_sheet,
        }
    }

    /// Text of the intervals of time and memory with their sources, one line each, and of the basis of the time.
    pub fn describe(&self) -> String {
        let [low, high] = [self.low_seconds, self.high_seconds].map(Seconds::new);
        let shares = [self.interpolated, self.extrapolated, self.data_sheet];
        let parts = Basis::ALL.into_iter().zip(shares).filter(|(_, share)| *share >= 0.005);
        let rests: Vec<String> = parts
            .map(|(basis, share)| format!("{} {:.0} %", basis.describe(), share * 100.0))
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

/// Text of a level of evidence.
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

/// The weakest level of evidence among all groups of GPUs, with its spread.
fn weakest(of: SpreadOf, problem: &Problem) -> (Evidence, Spread) {
    let of_groups = problem.all_hardware().map(|hardware| Spread::shipped(of, hardware));
    let weakest = of_groups.max_by_key(|(evidence, _)| *evidence);
    weakest.unwrap_or_else(|| Spread::shipped(of, &problem.hardware))
}

/// Shares of the time of all blocks by basis, in the order of [`Basis::ALL`]. GPUs of several kinds count as if each
/// kind had the same share of the blocks.
fn bases(problem: &Problem, found: &EvaluatedPlan) -> [f64; 3] {
    let key = ShapeKey::of(&found.layout, problem);
    let counts = problem.graph.class_counts();
    let mut times = [0.0; 3];
    for hardware in problem.all_hardware() {
        for (class, block) in problem.graph.classes() {
            let setting = key.setting(problem, class.0);
            for term in terms(block, &setting, &key.groups(), hardware) {
                times[term.basis as usize] += term.time.get() * f64::from(counts[class.0]);
            }
        }
    }
    let all: f64 = times.iter().sum();
    times.map(|time| if all > 0.0 { time / all } else { 0.0 })
}
