//! Constants of a machine from what a profiler recorded of steps on it.
//!
//! Each operator whose shape was recorded is held against what is predicted of it alone: a product against the rate of
//! products, attention against that of its library, what moves data against the bandwidth of kernels, a collective
//! against the network's time of it times what exchanges take longer in steps. Equal ones count once, with the median
//! of their calls; of collectives the lower quartile, as calls that take longer wait for ranks that come late. All other
//! kernels of a step are held together against those of the plan, which tells how often elementwise kernels touch their
//! bytes; and the step against the plan's. What is most likely then follows by the model of the fit.

use std::collections::BTreeMap;

use cost_models::block::{TermWork, terms};
use cost_models::constants::CONSTANTS;
use cost_models::{Group, Hardware};
use ir::collective::Collective;
use ir::framework::Calibration;
use ir::graph::{Kernel as Planned, Pass, Recompute};
use ir::units::Seconds;

use super::{
    Factors, Measured, WITHIN_A_SOURCE, above_predicted_time, linear, most_likely, moved, slopes,
};
use crate::measured::profile::{Class, Exchange, Phase, Profile, Purpose, Work};
use crate::validation::predict;
use crate::validation::setup::Setup;
use planner_core::step::ShapeKey;

/// Standard deviation of the logarithm of a kernel's time about its prediction, beyond what constants explain.
///
/// # Source
///
/// Fits of kernels are off by 3 to 8 % in the mean on products, attention and collectives that were measured alone
/// (`cost-models/tests/it/measured.rs`), 1.25 times which is a normal error's deviation.
const OF_A_KERNEL: f64 = 0.10;

/// Operators that take less tell of launches, not of rates.
const LEAST_SECONDS: f64 = 1e-5;

/// A constant that moves a prediction by less than this share of its own move does not inform it.
const LEAST_SLOPE: f64 = 0.05;

/// What profiles say of a machine.
#[derive(Clone, Debug)]
pub struct Profiled {
    /// The constants that moved, with what they were.
    pub calibration: Calibration,
    /// Each constant that something was measured of.
    pub constants: Vec<Informed>,
    /// What was held against predictions.
    pub samples: Vec<Sample>,
    /// What could not be, in words.
    pub notes: Vec<String>,
}

/// A constant, and on what its new value rests.
#[derive(Clone, Debug, PartialEq)]
pub struct Informed {
    /// Its name.
    pub name: String,
    /// What it was, and what it is.
    pub values: [f64; 2],
    /// By how much its logarithm may still differ: a standard deviation.
    pub spread: f64,
    /// Different things that were measured of it, and how often all of them ran.
    pub samples: usize,
    /// Their calls.
    pub calls: usize,
}

/// Something that was measured, beside its prediction before and with the calibration.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// What.
    pub what: What,
    /// How often it ran.
    pub calls: usize,
    /// How long it took.
    pub measured: Seconds,
    /// How long it was predicted to take, and is.
    pub predicted: [Seconds; 2],
}

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    /// An operator.
    Operator(Work),
    /// All kernels of a class in a step that no operator of a shape that is known launched.
    Kernels(Class),
    /// A step.
    Step,
}

/// Why nothing can be calibrated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProfileError {
    /// Nothing that constants tell of.
    #[error("nothing in the profile tells of a constant\n  {}", .notes.join("\n  "))]
    Nothing {
        /// Why not.
        notes: Vec<String>,
    },
    /// What was recorded is not what the plan does.
    #[error(
        "the profile is of another run than the plan's: {what} took {:.4} s, {:.4} s are predicted\nhint: `--plan` \
         takes the plan of what ran; `planner import` makes it from its settings", .measured.get(), .predicted.get()
    )]
    Foreign {
        /// A step, or what of a step.
        what: &'static str,
        /// How long it took.
        measured: Seconds,
        /// How long the plan's takes.
        predicted: Seconds,
    },
}

/// A step that differs by more than this factor from its prediction is another one.
///
/// # Source
///
/// Of 1,250 measured steps (`planner validate`) the fastest took 0.66 of what is predicted, and all but one less than
/// 2.3 times as long; the one took 4.2 times.
const FOREIGN: f64 = 5.0;

/// The constants of a machine that profiles of a plan's steps make most likely.
///
/// # Errors
///
/// Where nothing was recorded that a prediction can be held against, or something that is none of the plan.
pub fn calibrate(setup: &Setup, profiles: &[Profile]) -> Result<Profiled, ProfileError> {
    let hardware = &setup.problem.hardware;
    let mut notes = Vec::new();
    let mut found = operators(setup, profiles);
    found.extend(whole_classes(setup, profiles, &found, &mut notes));
    let step = step(setup, profiles, &mut notes);
    if found.is_empty() && step.is_none() {
        return Err(ProfileError::Nothing { notes });
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
    let sample = |sampled: &Sampled| {
        let predicted = [setup, &after].map(|it| sampled.predict(it).unwrap_or(Seconds::ZERO));
        let measured = Seconds::new(sampled.seconds);
        Sample { what: sampled.what, calls: sampled.calls, measured, predicted }
    };
    let mut samples: Vec<Sample> = found.iter().map(sample).collect();
    samples.extend(step.and_then(|step| {
        let measured = Seconds::new(step.step_time_seconds?);
        let predicted = [setup, &after].map(|it| Seconds::new(predict(it).step_time_seconds));
        let calls = profiles.iter().map(|it| it.steady_steps().len()).sum();
        Some(Sample { what: What::Step, calls, measured, predicted })
    }));
    Ok(Profiled { calibration, constants, samples, notes })
}

/// Fails if steps, or all products of one, take so long that they are none of the plan.
fn check_own(
    setup: &Setup,
    found: &[Sampled],
    step: Option<&Measured>,
) -> Result<(), ProfileError> {
    let of_step = step.and_then(|step| {
        let predicted = Seconds::new(predict(setup).step_time_seconds);
        Some(("a step", Seconds::new(step.step_time_seconds?), predicted))
    });
    let products = found.iter().filter(|it| it.what == What::Kernels(Class::Product));
    let of_products = products.filter_map(|it| {
        Some(("all products of a step", Seconds::new(it.seconds), it.predict(setup)?))
    });
    for (what, measured, predicted) in of_step.into_iter().chain(of_products) {
        let factor = measured.get() / predicted.get();
        if !(FOREIGN.recip()..FOREIGN).contains(&factor) {
            return Err(ProfileError::Foreign { what, measured, predicted });
        }
    }
    Ok(())
}

/// Something that was measured.
struct Sampled {
    what: What,
    calls: usize,
    seconds: f64,
}

impl Sampled {
    fn predict(&self, setup: &Setup) -> Option<Seconds> {
        match self.what {
            What::Operator(work) => alone(setup, work),
            What::Kernels(class) => planned(setup, class),
            What::Step => None,
        }
    }

    /// By how much it is above its prediction, and how that moves with each constant's logarithm, in deviations of steps.
    fn row(&self, setup: &Setup, logs: &[f64]) -> Option<(Vec<f64>, f64)> {
        let weight = WITHIN_A_SOURCE / OF_A_KERNEL;
        slopes(&CONSTANTS, setup, logs, |it| {
            Some(weight * (self.seconds / self.predict(it)?.get()).ln())
        })
    }
}

/// Each operator that was recorded with what it works on, once.
fn operators(setup: &Setup, profiles: &[Profile]) -> Vec<Sampled> {
    let mut times: BTreeMap<Work, Vec<f64>> = BTreeMap::new();
    for profile in profiles {
        let mut calls: BTreeMap<u64, (Work, f64)> = BTreeMap::new();
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
        let part = if matches!(work, Work::Collective(_)) { 4 } else { 2 };
        let seconds = times[times.len() / part];
        Sampled { what: What::Operator(work), calls: times.len(), seconds }
    });
    sampled
        .filter(|it| it.seconds >= LEAST_SECONDS)
        .filter(|it| it.predict(setup).is_some_and(|time| time.get() >= LEAST_SECONDS))
        .collect()
}

/// Kernels of the steps that count, or all where steps are not marked.
fn steady(profile: &Profile) -> impl Iterator<Item = &crate::measured::profile::Kernel> {
    let first = profile.steady_steps().first().map(|[start, _]| *start);
    profile.kernels.iter().filter(move |kernel| first.is_none_or(|first| kernel.span[0] >= first))
}

/// What an operator is predicted to take within a step; none where no constant tells of it, or the ranks are not known.
fn alone(setup: &Setup, work: Work) -> Option<Seconds> {
    let Hardware { device, network, framework, .. } = &setup.problem.hardware;
    let all = setup.problem.limits.num_gpus;
    Some(match work {
        Work::Product(shape, precision) => {
            device.training_matmul(precision, shape, Pass::Forward, None, 1.0).time
        }
        Work::AttentionForward(shape, precision) => {
            device.training_attention_forward(precision, shape)
        }
        Work::AttentionBackward(shape, precision) => device.attention_backward(precision, shape),
        Work::Memory(bytes) => {
            device.training_memory_bound(setup.problem.training.precision.activation(), bytes)
        }
        Work::Collective(Exchange { collective, bytes, num_ranks, stride, purpose }) => {
            // Messages between stages have a constant of their own.
            if collective == Collective::SendReceive || num_ranks > all {
                return None;
            }
            let stride = stride.or((num_ranks == all).then_some(1))?;
            let group = Group { size: num_ranks, stride };
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

/// Kernels of a class in a step, all together, that no shape tells of.
fn whole_classes(
    setup: &Setup,
    profiles: &[Profile],
    known: &[Sampled],
    notes: &mut Vec<String>,
) -> Vec<Sampled> {
    let by_shape = |class: Class| {
        known.iter().any(|it| match it.what {
            What::Operator(Work::Product(..)) => class == Class::Product,
            What::Operator(Work::AttentionForward(..)) => class == Class::AttentionForward,
            What::Operator(Work::AttentionBackward(..)) => class == Class::AttentionBackward,
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
        Sampled { what: What::Kernels(class), calls: times.len(), seconds }
    });
    sampled.filter(|it| it.seconds > LEAST_SECONDS && it.predict(setup).is_some()).collect()
}

/// How often forward runs for each micro-batch; none where parts of it run again.
fn repeats(setup: &Setup) -> Option<f64> {
    match setup.layout.recompute {
        Recompute::None => Some(1.0),
        Recompute::Full => Some(2.0),
        _ => None,
    }
}

/// What the kernels of a class take in a step of a plan without pipelines.
fn planned(setup: &Setup, class: Class) -> Option<Seconds> {
    let problem = &setup.problem;
    let key = ShapeKey::of(&setup.layout);
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

/// The steps that were recorded, as one that was measured.
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

/// Steps whose times differ by more than this factor are not the same step.
const UNLIKE: f64 = 1.25;

/// The constants that something was measured of, with its number.
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
        let values = moved.unwrap_or([before, before]);
        is_told.then_some(Informed { name, values, spread, samples, calls })
    };
    CONSTANTS.iter().enumerate().filter_map(of).collect()
}
