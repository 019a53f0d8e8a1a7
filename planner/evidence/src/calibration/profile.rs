//! Calibration of a machine's constants on profiles of steps.
//!
//! Each operator with a recorded shape is compared with its own prediction: a matrix product with the rate of products,
//! attention with that of its library, memory-bound kernels with the bandwidth of kernels, and a collective with the
//! network's time multiplied by the factor of exchanges in steps. Equal operators count once, with the median of their
//! calls. Collectives count with the lower quartile, since longer calls wait for ranks that arrive late. The remaining
//! kernels of a step are compared with those of the plan as a sum, which determines the traffic of elementwise kernels;
//! the whole step is compared with the plan's step. The most likely constants follow from the model of the fit.

use std::collections::BTreeMap;
use std::fmt;

use cost_models::block::{TermWork, terms};
use cost_models::constants::CONSTANTS;
use cost_models::{Hardware, MatmulShape, SelfAttentionShape, StridedGroup};
use ir::collective::Collective;
use ir::framework::Calibration;
use ir::graph::{Kernel as Planned, Pass, Recompute};
use ir::units::Seconds;
use serde::{Serialize, Serializer};

use super::{
    Factors, Measured, WITHIN_A_SOURCE, above_predicted_time, linear, most_likely, moved, slopes,
};
use crate::measured::UnusableFile;
use crate::measured::profile::{Class, Phase, Profile, ProfiledCollective, ProfiledWork, Purpose};
use crate::validation::predict;
use crate::validation::setup::Setup;
use planner_core::step::ShapeKey;

/// Standard deviation of the logarithm of a kernel's time about its prediction, beyond what constants explain.
///
/// # Source
///
/// Fitted kernel times have mean errors of 3 to 8 % on products, attention and collectives that were measured alone
/// (`cost-models/tests/it/measured.rs`); the standard deviation of a normal error is 1.25 times that.
const OF_A_KERNEL: f64 = 0.10;

/// Seconds below which the time of an operator depends on its launch rather than on rates.
const LEAST_SECONDS: f64 = 1e-5;

/// Derivative below which a measurement does not inform a constant.
const LEAST_SLOPE: f64 = 0.05;

/// Result of a calibration on profiles.
#[derive(Clone, Debug, Serialize)]
pub struct Profiled {
    /// The constants that changed, with their previous values.
    pub calibration: Calibration,
    /// Each constant that a measurement informs.
    pub constants: Vec<Informed>,
    /// Measurements with their predictions.
    pub samples: Vec<CalibratedSample>,
    /// Reasons, in words, why parts of the profiles could not be used.
    pub notes: Vec<String>,
}

/// A constant, with the numbers of measurements behind its new value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Informed {
    /// Name of the constant.
    pub name: String,
    /// Value before the calibration.
    pub before: f64,
    /// Value after the calibration.
    pub value: f64,
    /// Standard deviation of the constant's logarithm after the calibration.
    pub spread: f64,
    /// Number of different measurements that inform it.
    pub samples: usize,
    /// Number of calls that all of these measurements comprise.
    pub calls: usize,
}

/// A measurement, with its prediction before and after the calibration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CalibratedSample {
    /// Measured work.
    #[serde(serialize_with = "as_text")]
    pub what: MeasuredWork,
    /// Number of times that the work ran.
    pub calls: usize,
    /// Measured time.
    #[serde(rename = "measured_seconds")]
    pub measured: Seconds,
    /// Predicted time before the calibration.
    #[serde(rename = "predicted_before_seconds")]
    pub predicted_before: Seconds,
    /// Predicted time.
    #[serde(rename = "predicted_seconds")]
    pub predicted: Seconds,
}

fn as_text<S: Serializer>(what: &MeasuredWork, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(what)
}

/// Work that was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MeasuredWork {
    /// An operator.
    Operator(ProfiledWork),
    /// All kernels of a class in a step for which no operator has a known shape.
    Kernels(Class),
    /// A whole step.
    Step,
}

impl fmt::Display for MeasuredWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Step => f.write_str("step"),
            Self::Kernels(class) => write!(f, "all {} of a step", class.describe()),
            Self::Operator(ProfiledWork::Product(MatmulShape { batch, m, n, k }, precision)) => {
                let batch = if batch > 1 { format!("{batch} x ") } else { String::new() };
                write!(f, "product {batch}[{m}, {k}] [{k}, {n}] in {precision}")
            }
            Self::Operator(ProfiledWork::AttentionForward(shape, precision)) => {
                write!(f, "attention {} in {precision}", attention(shape))
            }
            Self::Operator(ProfiledWork::AttentionBackward(shape, precision)) => {
                write!(f, "attention backward {} in {precision}", attention(shape))
            }
            Self::Operator(ProfiledWork::Memory(bytes)) => write!(f, "kernel that moves {bytes}"),
            Self::Operator(ProfiledWork::Collective(ProfiledCollective {
                collective,
                bytes,
                num_ranks,
                ..
            })) => {
                write!(f, "{collective} of {bytes} over {num_ranks} ranks")
            }
        }
    }
}

fn attention(shape: SelfAttentionShape) -> String {
    let SelfAttentionShape { batch, sequence, heads, kv_heads, head_dim, .. } = shape;
    let heads = if heads == kv_heads { heads.to_string() } else { format!("{heads}/{kv_heads}") };
    format!("[{batch}, {sequence}, {heads}, {head_dim}]")
}

/// Factor between measured and predicted time beyond which a step is assumed to belong to another plan.
///
/// # Source
///
/// Of 1,714 measured steps (`planner validate`), the fastest took 0.59 times as long as predicted. All but one took
/// less than 2.2 times as long as predicted; that one took 3.2 times as long.
const FOREIGN: f64 = 5.0;

/// The most likely constants of a machine, given profiles of a plan's steps.
///
/// # Errors
///
/// If the profiles contain nothing that can be compared with a prediction, or something that is not part of the plan.
pub fn calibrate(setup: &Setup, profiles: &[Profile]) -> Result<Profiled, UnusableFile> {
    let hardware = &setup.problem.hardware;
    let mut notes = Vec::new();
    let mut found = operators(setup, profiles);
    found.extend(whole_classes(setup, profiles, &found, &mut notes));
    let step = step(setup, profiles, &mut notes);
    if found.is_empty() && step.is_none() {
        let notes = notes.join("\n  ");
        return Err(UnusableFile(format!("nothing in the profile tells of a constant\n  {notes}")));
    }
    check_own(setup, &found, step.as_ref())?;
    let kernels: Vec<&Sampled> = found.iter().collect();
    let steps: Vec<Measured> = step.clone().into_iter().collect();
    let factors = most_likely(&CONSTANTS, hardware, |logs| {
        let mut rows = linear(&CONSTANTS, &steps, logs, above_predicted_time);
        rows.extend(kernels.iter().filter_map(|sampled| sampled.row(setup, logs)));
        rows
    });
    let calibration = Calibration {
        steps: steps.len() as u32,
        kernels: found.len() as u32,
        precisions: vec![setup.problem.training.precision],
        ..moved(hardware, &factors)
    };
    let after = super::calibrated(setup, &calibration);
    let constants = informed(setup, &found, &calibration, &factors);
    let whole = step.and_then(|step| {
        let calls = profiles.iter().map(|it| it.steady_steps().len()).sum();
        Some(Sampled { what: MeasuredWork::Step, calls, seconds: step.step_time_seconds? })
    });
    let samples = found.iter().chain(&whole).map(|sampled| CalibratedSample {
        what: sampled.what,
        calls: sampled.calls,
        measured: Seconds::new(sampled.seconds),
        predicted_before: sampled.predict(setup).unwrap_or(Seconds::ZERO),
        predicted: sampled.predict(&after).unwrap_or(Seconds::ZERO),
    });
    let samples = samples.collect();
    Ok(Profiled { calibration, constants, samples, notes })
}

/// Checks that the times of a step, and of all products of a step, are near enough to those of the plan.
fn check_own(
    setup: &Setup,
    found: &[Sampled],
    step: Option<&Measured>,
) -> Result<(), UnusableFile> {
    let of_step = step.and_then(|step| {
        let predicted = Seconds::new(predict(setup).step_time_seconds);
        Some(("a step", Seconds::new(step.step_time_seconds?), predicted))
    });
    let products = found.iter().filter(|it| it.what == MeasuredWork::Kernels(Class::Product));
    let of_products = products.filter_map(|it| {
        Some(("all products of a step", Seconds::new(it.seconds), it.predict(setup)?))
    });
    for (what, measured, predicted) in of_step.into_iter().chain(of_products) {
        let factor = measured.get() / predicted.get();
        if !(FOREIGN.recip()..FOREIGN).contains(&factor) {
            return Err(UnusableFile(format!(
                "the profile is of another run than the plan's: {what} took {:.4} s, {:.4} s are predicted\nhint: `--plan` \
                 takes the plan of what ran; `planner import` makes it from its settings",
                measured.get(),
                predicted.get()
            )));
        }
    }
    Ok(())
}

/// A measurement that is not yet compared with a prediction.
struct Sampled {
    what: MeasuredWork,
    calls: usize,
    seconds: f64,
}

impl Sampled {
    fn predict(&self, setup: &Setup) -> Option<Seconds> {
        match self.what {
            MeasuredWork::Operator(work) => alone(setup, work),
            MeasuredWork::Kernels(class) => planned(setup, class),
            MeasuredWork::Step => Some(Seconds::new(predict(setup).step_time_seconds)),
        }
    }

    /// Derivatives with respect to logarithms of constants, and logarithm of measured over predicted. Both are scaled
    /// so that the standard deviation is that of steps.
    fn row(&self, setup: &Setup, logs: &[f64]) -> Option<(Vec<f64>, f64)> {
        let weight = WITHIN_A_SOURCE / OF_A_KERNEL;
        slopes(&CONSTANTS, setup, logs, |it| {
            Some(weight * (self.seconds / self.predict(it)?.get()).ln())
        })
    }
}

/// Each operator that was recorded with its shape; equal ones count once.
fn operators(setup: &Setup, profiles: &[Profile]) -> Vec<Sampled> {
    let mut times: BTreeMap<ProfiledWork, Vec<f64>> = BTreeMap::new();
    for profile in profiles {
        let mut calls: BTreeMap<u64, (ProfiledWork, f64)> = BTreeMap::new();
        for kernel in steady(profile) {
            let Some(work) = kernel.work else { continue };
            calls.entry(kernel.call).or_insert((work, 0.0)).1 += kernel.duration().get();
        }
        for (work, seconds) in calls.into_values() {
            times.entry(work).or_default().push(seconds);
        }
    }
    let sampled = times.into_iter().map(|(work, mut times)| {
        times.sort_by(f64::total_cmp);
        let part = if matches!(work, ProfiledWork::Collective(_)) { 4 } else { 2 };
        let seconds = times[times.len() / part];
        Sampled { what: MeasuredWork::Operator(work), calls: times.len(), seconds }
    });
    sampled
        .filter(|it| it.seconds >= LEAST_SECONDS)
        .filter(|it| it.predict(setup).is_some_and(|time| time.get() >= LEAST_SECONDS))
        .collect()
}

/// Kernels of the steady steps; all kernels if steps are not marked.
fn steady(profile: &Profile) -> impl Iterator<Item = &crate::measured::profile::ProfiledKernel> {
    let first = profile.steady_steps().first().map(|[start, _]| *start);
    profile.kernels.iter().filter(move |kernel| first.is_none_or(|first| kernel.span[0] >= first))
}

/// Predicted time of an operator within a step; `None` if no constant describes it, or its ranks are unknown.
fn alone(setup: &Setup, work: ProfiledWork) -> Option<Seconds> {
    let Hardware { device, network, framework, .. } = &setup.problem.hardware;
    let all = setup.problem.limits.num_gpus;
    Some(match work {
        ProfiledWork::Product(shape, precision) => {
            device.training_matmul(precision, shape, Pass::Forward, None, 1.0).time
        }
        ProfiledWork::AttentionForward(shape, precision) => {
            device.training_attention(precision, shape, Pass::Forward)
        }
        ProfiledWork::AttentionBackward(shape, precision) => {
            device.training_attention(precision, shape, Pass::InputGrad)
        }
        ProfiledWork::Memory(bytes) => {
            device.training_memory_bound(setup.problem.training.precision.activation(), bytes)
        }
        ProfiledWork::Collective(ProfiledCollective {
            collective,
            bytes,
            num_ranks,
            stride,
            purpose,
        }) => {
            // Messages between stages have their own constant.
            if collective == Collective::SendReceive || num_ranks > all {
                return None;
            }
            let stride = stride.or((num_ranks == all).then_some(1))?;
            let group = StridedGroup { size: num_ranks, stride };
            let tensor = setup.layout.tensor_parallel;
            let is_within = num_ranks == tensor && stride == 1;
            let by_size = if is_within { Purpose::WithinBlocks } else { Purpose::OverReplicas };
            let purpose = purpose.unwrap_or(by_size);
            network.time(collective, group, bytes)
                * match purpose {
                    Purpose::WithinBlocks => framework.exchanges.within_blocks,
                    Purpose::OverReplicas => framework.exchanges.over_replicas,
                }
        }
    })
}

/// Total time per step of all kernels of a class, for classes without recorded shapes.
fn whole_classes(
    setup: &Setup,
    profiles: &[Profile],
    known: &[Sampled],
    notes: &mut Vec<String>,
) -> Vec<Sampled> {
    let by_shape = |class: Class| {
        known.iter().any(|it| match it.what {
            MeasuredWork::Operator(ProfiledWork::Product(..)) => class == Class::Product,
            MeasuredWork::Operator(ProfiledWork::AttentionForward(..)) => {
                class == Class::AttentionForward
            }
            MeasuredWork::Operator(ProfiledWork::AttentionBackward(..)) => {
                class == Class::AttentionBackward
            }
            _ => false,
        })
    };
    if profiles.iter().any(|profile| !profile.has_shapes) {
        notes.push(
            "operators were recorded without shapes: kernels are held together against the plan's \
             (`record_shapes=True` tells them apart)"
                .to_owned(),
        );
    }
    if setup.layout.pipeline_parallel > 1 {
        notes.push("kernels without shapes say little: stages of a pipeline differ".to_owned());
        return Vec::new();
    }
    if repeats(setup).is_none() {
        notes.push(
            "kernels without shapes say little: parts of layers are computed again".to_owned(),
        );
        return Vec::new();
    }
    let steps: usize = profiles.iter().map(|profile| profile.steady_steps().len()).sum();
    let classes =
        [Class::Product, Class::AttentionForward, Class::AttentionBackward, Class::Memory];
    let sampled = classes.into_iter().filter(|class| steps > 0 && !by_shape(*class)).map(|class| {
        let of_class = profiles
            .iter()
            .flat_map(steady)
            .filter(|kernel| kernel.class == class && kernel.phase != Phase::Update);
        let times: Vec<f64> = of_class.map(|kernel| kernel.duration().get()).collect();
        let seconds = times.iter().sum::<f64>() / steps as f64;
        Sampled { what: MeasuredWork::Kernels(class), calls: times.len(), seconds }
    });
    sampled.filter(|it| it.seconds > LEAST_SECONDS && it.predict(setup).is_some()).collect()
}

/// Number of times that forward runs for each micro-batch; `None` if only parts of it are recomputed.
fn repeats(setup: &Setup) -> Option<f64> {
    match setup.layout.recompute {
        Recompute::None => Some(1.0),
        Recompute::Full => Some(2.0),
        _ => None,
    }
}

/// Predicted time of the kernels of a class in a step of a plan without pipelines.
fn planned(setup: &Setup, class: Class) -> Option<Seconds> {
    let problem = &setup.problem;
    let key = ShapeKey::of(&setup.layout, &setup.problem);
    let counts = problem.graph.class_counts();
    let repeats = repeats(setup)?;
    let mut sum = Seconds::ZERO;
    for (of_block, block) in problem.graph.classes() {
        let setting = key.setting(problem, of_block.0);
        for term in terms(block, &setting, &key.groups(), &problem.hardware) {
            let TermWork::Kernel(kernel, _) = &term.work else { continue };
            let is_forward = term.pass == Pass::Forward;
            let own = match (&kernel.kernel, is_forward) {
                (Planned::MatMul { .. }, _) => Class::Product,
                (Planned::Attention(_), true) => Class::AttentionForward,
                (Planned::Attention(_), false) => Class::AttentionBackward,
                (Planned::Memory, _) => Class::Memory,
            };
            if own == class {
                let times = if is_forward { repeats } else { 1.0 };
                sum += term.time * (times * f64::from(counts[of_block.0]));
            }
        }
    }
    let micro_batches = f64::from(setup.layout.num_micro_batches);
    (sum > Seconds::ZERO).then(|| sum * micro_batches)
}

/// The recorded steps as a single measured step, with their median time.
fn step(setup: &Setup, profiles: &[Profile], notes: &mut Vec<String>) -> Option<Measured> {
    let steps = profiles.iter().flat_map(Profile::steady_steps);
    let mut times: Vec<f64> =
        steps.map(|[start, end]| Seconds::from(*end - *start).get()).collect();
    times.sort_by(f64::total_cmp);
    let Some(middle) = times.get(times.len() / 2).copied() else {
        notes.push(
            "steps are not marked, so their time is not known (`prof.step()` after each marks them)"
                .to_owned(),
        );
        return None;
    };
    let (least, most) = (times[0], times[times.len() - 1]);
    if most > least * UNLIKE {
        notes.push(format!(
            "steps are unlike: of {} the shortest took {least:.4} s, the longest {most:.4} s; the median is taken",
            times.len()
        ));
    }
    let setup = setup.clone();
    let step_time_seconds = Some(middle);
    Some(Measured { id: "step".to_owned(), setup, step_time_seconds, memory: None })
}

/// Ratio between the times of recorded steps above which they are reported as different.
const UNLIKE: f64 = 1.25;

/// The constants that measurements inform, with the numbers of these measurements.
fn informed(
    setup: &Setup,
    found: &[Sampled],
    calibration: &Calibration,
    factors: &Factors,
) -> Vec<Informed> {
    let none = vec![0.0; CONSTANTS.len()];
    let rows: Vec<(Vec<f64>, usize)> = found
        .iter()
        .filter_map(|it| it.row(setup, &none).map(|(slopes, _)| (slopes, it.calls)))
        .collect();
    let of = |(place, constant): (usize, &cost_models::constants::Constant)| {
        let name = constant.name_on_machine();
        let own = rows.iter().filter(|(slopes, _)| slopes[place].abs() > LEAST_SLOPE);
        let (samples, calls) = own.fold((0, 0), |(n, calls), it| (n + 1, calls + it.1));
        let before = constant.of(&mut setup.problem.hardware.clone());
        let moved = calibration.constants.get(&name).copied();
        let (_, spread) = factors.get(&name).copied()?;
        let is_told = samples > 0 || moved.is_some();
        let [before, value] = moved.unwrap_or([before, before]);
        is_told.then_some(Informed { name, before, value, spread, samples, calls })
    };
    CONSTANTS.iter().enumerate().filter_map(of).collect()
}
