//! Calibration of a machine's constants on a few steps measured on it.
//!
//! The model is that of the fit (`cost-models/fit/fit_steps.py`). The logarithm of a step's time is locally linear in
//! the logarithms of the constants. Each constant is normally distributed about its value without these steps, with its
//! spread between machines; each step is normally distributed about its prediction with standard deviation
//! [`WITHIN_A_SOURCE`]. The most likely constants are found by least squares, iterated about the new constants. One
//! step moves the constants on which it depends most; constants on which no step depends do not change.

pub mod held_out;
pub mod network;
pub mod profile;
mod solve;

use std::collections::{BTreeMap, BTreeSet};

use cost_models::Hardware;
use cost_models::constants::{self, CONSTANTS, Constant, OF_MEMORY};
use ir::cluster::Precision;
use ir::framework::{Calibration, Framework};
use ir::text::count_of;
use serde::Serialize;

use crate::validation::run::MeasuredMemory;
use crate::validation::setup::Setup;
use crate::validation::{Predicted, predict};
use planner_core::problem::{Problem, stacks};

/// Standard deviation of the logarithm of measured over predicted step time, beyond what constants explain.
///
/// # Source
///
/// With all sources in the fit, the mean error of steps, averaged over sources, is 7 %; the standard deviation of a
/// normal error is 1.25 times its mean absolute value. Calibrations on three steps of a source predict the others
/// equally well with .05 to .1. Among calibrations on one step, those that make the other predictions worse do so less
/// with a larger value.
pub const WITHIN_A_SOURCE: f64 = 0.08;

/// Number of least-squares iterations, each linearized about the constants of the one before.
const ITERATIONS: usize = 3;

/// Relative step of a constant for finite differences.
const STEP: f64 = 0.02;

/// Logarithmic change below which a constant counts as unchanged.
const LEAST_MOVE: f64 = 0.002;

/// A measured step.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Name in its source.
    pub id: String,
    /// Problem and layout of the step.
    pub setup: Setup,
    /// Step time in seconds, if measured.
    pub step_time_seconds: Option<f64>,
    /// Peak memory, if measured.
    pub memory: Option<MeasuredMemory>,
}

/// Reason why constants cannot be calibrated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CalibrationError {
    /// No steps, or none with a measured time or memory.
    #[error(
        "no step states a time (`step_time_s`) or a peak of memory (`peak_mem_gib`)\nhint: one to ten steps of your \
         own, as `planner validate` reads them"
    )]
    NoSteps,
    /// Steps measured on several machines.
    #[error(
        "the steps are of several kinds: {}\nhint: calibrate one framework on one kind of GPUs at a time", .0.join(", ")
    )]
    SeveralStacks(Vec<String>),
}

/// Result of a calibration.
#[derive(Clone, Debug, Serialize)]
pub struct Calibrated {
    /// If the framework is not known: the candidate frameworks with their probabilities given these steps, the
    /// likeliest first. The calibration is for the first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub like: Vec<(String, f64)>,
    /// The constants that changed, with their previous values.
    pub calibration: Calibration,
    /// Each step with its predictions before and after the calibration.
    pub steps: Vec<CheckedStep>,
}

/// A step of a calibration, with its predictions.
#[derive(Clone, Debug, Serialize)]
pub struct CheckedStep {
    /// Name in its source.
    pub id: String,
    /// Measured time in seconds.
    pub measured_seconds: f64,
    /// Predicted time in seconds before the calibration.
    pub predicted_before_seconds: f64,
    /// Predicted time in seconds.
    pub predicted_seconds: f64,
}

/// The most likely constants of a machine, given steps measured on it.
///
/// # Errors
///
/// [`CalibrationError`] for no steps, and for steps of several machines.
pub fn calibrate(steps: &[Measured]) -> Result<Calibrated, CalibrationError> {
    let stacks: BTreeSet<String> =
        steps.iter().map(|step| stack(&step.setup.problem.hardware)).collect();
    if stacks.len() > 1 {
        return Err(CalibrationError::SeveralStacks(stacks.into_iter().collect()));
    }
    let stated = |step: &&Measured| step.step_time_seconds.is_some() || step.memory.is_some();
    let Some(first) = steps.iter().find(stated) else { return Err(CalibrationError::NoSteps) };
    if !first.setup.problem.hardware.framework.stands_for.is_empty() {
        return calibrate_likeliest(steps);
    }
    let hardware = &first.setup.problem.hardware;
    let mut factors = most_likely(&CONSTANTS, hardware, |logs| {
        linear(&CONSTANTS, steps, logs, above_predicted_time)
    });
    factors.extend(most_likely(&OF_MEMORY, hardware, |logs| {
        linear(&OF_MEMORY, steps, logs, above_predicted_memory)
    }));
    let calibration = Calibration {
        steps: steps.iter().filter(|it| it.step_time_seconds.is_some()).count() as u32,
        peaks: steps.iter().filter(|it| it.memory.is_some()).count() as u32,
        precisions: precisions(steps),
        ..moved(hardware, &factors)
    };
    let checked = steps.iter().filter_map(|step| {
        let measured_seconds = step.step_time_seconds?;
        let after = calibrated(&step.setup, &calibration);
        Some(CheckedStep {
            id: step.id.clone(),
            measured_seconds,
            predicted_before_seconds: predict(&step.setup).step_time_seconds,
            predicted_seconds: predict(&after).step_time_seconds,
        })
    });
    Ok(Calibrated { like: Vec::new(), steps: checked.collect(), calibration })
}

/// Factor on each constant, and the standard deviation of the logarithm of the constant.
type Factors = BTreeMap<String, (f64, f64)>;

/// Calibration with the constants that these factors change; numbers of steps and kernels are not set.
fn moved(hardware: &Hardware, factors: &Factors) -> Calibration {
    let mut own = hardware.clone();
    let moved = constants::all().filter_map(|constant| {
        let (factor, _) = *factors.get(&constant.name_on_machine())?;
        let before = constant.of(&mut own);
        (factor.ln().abs() > LEAST_MOVE)
            .then(|| (constant.name_on_machine(), [before, rounded(before * factor)]))
    });
    Calibration {
        gpu: hardware.device.training_set.clone(),
        constants: moved.collect(),
        spreads: factors
            .iter()
            .map(|(name, (_, spread))| (name.clone(), rounded(*spread)))
            .collect(),
        steps: 0,
        peaks: 0,
        kernels: 0,
        precisions: Vec::new(),
    }
}

/// Calibration with the likeliest of the frameworks that the steps' framework stands for.
fn calibrate_likeliest(steps: &[Measured]) -> Result<Calibrated, CalibrationError> {
    let mut as_others: Vec<Vec<Measured>> = Vec::new();
    for step in steps {
        for (place, problem) in stacks(&step.setup.problem).into_iter().enumerate() {
            let of_stack =
                Measured { setup: Setup { problem, ..step.setup.clone() }, ..step.clone() };
            match as_others.get_mut(place) {
                Some(others) => others.push(of_stack),
                None => as_others.push(vec![of_stack]),
            }
        }
    }
    let name = |steps: &[Measured]| steps[0].setup.problem.hardware.framework.name.clone();
    let logs: Vec<f64> = as_others
        .iter()
        .map(|steps| {
            let time = log_evidence(&CONSTANTS, steps, above_predicted_time);
            time + log_evidence(&OF_MEMORY, steps, above_predicted_memory)
        })
        .collect();
    let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logs.iter().map(|log| (log - most).exp()).sum();
    let shares = logs.iter().map(|log| (log - most).exp() / sum);
    let mut like: Vec<(f64, Vec<Measured>)> = shares.zip(as_others).collect();
    like.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let found = calibrate(&like[0].1)?;
    Ok(Calibrated { like: like.iter().map(|(share, of)| (name(of), *share)).collect(), ..found })
}

/// Logarithm of a step's measured time over its predicted time.
fn above_predicted_time(step: &Measured, predicted: &Predicted) -> Option<f64> {
    Some(step.step_time_seconds?.ln() - predicted.step_time_seconds.ln())
}

fn above_predicted_memory(step: &Measured, predicted: &Predicted) -> Option<f64> {
    let MeasuredMemory { bytes, kind, of } = step.memory?;
    let known = kind.of(predicted.memory_of(of)).as_f64();
    Some(bytes.as_f64().ln() - known.ln())
}

/// The setup of a run with the constants of a calibration.
pub fn calibrated(setup: &Setup, calibration: &Calibration) -> Setup {
    let mut setup = setup.clone();
    let hardware = &mut setup.problem.hardware;
    hardware.framework.calibration = Some(calibration.clone());
    constants::calibrate(hardware);
    setup
}

/// A framework with a calibration, under its own name.
pub fn framework(name: &str, base: &Framework, calibration: Calibration) -> Framework {
    let mut framework = base.clone();
    framework.measured_as = Some(base.measured_name().to_owned());
    let Calibration { steps, peaks, kernels, .. } = calibration;
    let measured = match (steps, peaks) {
        (0, 0) => count_of(kernels, "kernel", "kernels"),
        (0, peaks) => count_of(peaks, "peak of memory", "peaks of memory"),
        (1, _) => "a step".to_owned(),
        (steps, _) => format!("{steps} steps"),
    };
    framework.description = format!(
        "{}, calibrated on {measured} of {}",
        base.description.trim_end_matches('.'),
        calibration.gpu,
    );
    name.clone_into(&mut framework.name);
    framework.calibration = Some(calibration);
    framework
}

impl Calibrated {
    /// The setup of a run with the calibration applied; if the framework was not known, with the likeliest one.
    pub fn on(&self, setup: &Setup) -> Setup {
        let likeliest = |problem: &Problem| {
            let (name, _) = self.like.first()?;
            stacks(problem).into_iter().find(|it| it.hardware.framework.name == *name)
        };
        match likeliest(&setup.problem) {
            Some(problem) => calibrated(&Setup { problem, ..setup.clone() }, &self.calibration),
            None => calibrated(setup, &self.calibration),
        }
    }

    /// The steps with the largest and the smallest ratio of measured to predicted time, and the ratio of these two
    /// ratios; `None` for fewer than two steps.
    pub fn disagreement(&self) -> Option<(&str, &str, f64)> {
        let ratio = |step: &&CheckedStep| step.measured_seconds / step.predicted_seconds;
        let by_ratio = |a: &&CheckedStep, b: &&CheckedStep| ratio(a).total_cmp(&ratio(b));
        let (slow, fast) =
            (self.steps.iter().max_by(by_ratio)?, self.steps.iter().min_by(by_ratio)?);
        (self.steps.len() > 1)
            .then(|| (slow.id.as_str(), fast.id.as_str(), ratio(&slow) / ratio(&fast)))
    }
}

/// Name of a stack: framework and kind of GPU.
fn stack(hardware: &Hardware) -> String {
    format!("{} on {}", hardware.framework.name, hardware.device.training_set)
}

fn precisions(steps: &[Measured]) -> Vec<Precision> {
    let all: BTreeSet<Precision> =
        steps.iter().map(|step| step.setup.problem.training.precision).collect();
    all.into_iter().collect()
}

/// For each step, the derivatives of the logarithm of its prediction with respect to the logarithms of the constants,
/// and the logarithm of measured over predicted.
fn linear(
    constants: &[Constant],
    steps: &[Measured],
    logs: &[f64],
    above: impl Fn(&Measured, &Predicted) -> Option<f64>,
) -> Vec<(Vec<f64>, f64)> {
    let row = |step: &Measured| {
        slopes(constants, &step.setup, logs, |setup| above(step, &predict(setup)))
    };
    steps.iter().filter_map(row).collect()
}

/// Derivatives of the logarithm of a prediction with respect to the logarithms of the constants, at constants moved by
/// `logs`; and the logarithm of measured over predicted there, which `above` computes.
fn slopes(
    constants: &[Constant],
    setup: &Setup,
    logs: &[f64],
    above: impl Fn(&Setup) -> Option<f64>,
) -> Option<(Vec<f64>, f64)> {
    let mut setup = setup.clone();
    for (constant, log) in constants.iter().zip(logs) {
        constant.scale(&mut setup.problem.hardware, log.exp());
    }
    let left = above(&setup)?;
    let slopes = constants.iter().map(|constant| {
        let hardware = setup.problem.hardware.clone();
        constant.scale(&mut setup.problem.hardware, 1.0 + STEP);
        let other = above(&setup).unwrap_or(left);
        setup.problem.hardware = hardware;
        (left - other) / (1.0 + STEP).ln()
    });
    Some((slopes.collect(), left))
}

fn log_evidence(
    constants: &[Constant],
    steps: &[Measured],
    above: impl Fn(&Measured, &Predicted) -> Option<f64>,
) -> f64 {
    let rows = linear(constants, steps, &vec![0.0; constants.len()], above);
    let spreads: Vec<f64> = constants.iter().map(|constant| constant.spread).collect();
    solve::log_evidence(&rows, &spreads, WITHIN_A_SOURCE)
}

/// Most likely factor on each constant of a machine, and the standard deviation of its logarithm. `rows` returns
/// derivatives and residuals at given logarithms of the factors.
fn most_likely(
    constants: &[Constant],
    hardware: &Hardware,
    rows: impl Fn(&[f64]) -> Vec<(Vec<f64>, f64)>,
) -> Factors {
    let spreads: Vec<f64> = constants.iter().map(|constant| constant.spread).collect();
    let mut logs = vec![0.0; constants.len()];
    let mut left = spreads.clone();
    for _ in 0..ITERATIONS {
        let posterior = solve::posterior(&rows(&logs), &logs, &spreads, WITHIN_A_SOURCE);
        (logs, left) = (posterior.found, posterior.spreads);
        for (constant, log) in constants.iter().zip(&mut logs) {
            let value = constant.of(&mut hardware.clone());
            let [low, high] = constant.range;
            if value > 0.0 {
                *log = log.clamp((low / value).ln().min(0.0), (high / value).ln().max(0.0));
            }
        }
    }
    let of = |(log, spread): (f64, f64)| (log.exp(), spread);
    let found = logs.into_iter().zip(left).map(of);
    constants.iter().map(Constant::name_on_machine).zip(found).collect()
}

/// Rounds to three significant digits.
fn rounded(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}
