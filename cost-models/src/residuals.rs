//! Distribution of measured over predicted step times and memory, from which the interval of a prediction follows. Each
//! step is predicted with its source left out of the fit.
//!
//! A step whose time depends on what differs most between machines is predicted less well. Its score is therefore the
//! logarithm of measured over predicted, divided by the standard deviation of the predicted time that follows from the
//! constants' spreads. For memory, this standard deviation is [`peak_deviation`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use ir::cluster::Architecture;
use ir::plan::MemoryUse;
use ir::units::Bytes;
use serde::{Deserialize, Serialize};

use crate::Hardware;
use crate::fitted::section;

/// Share of steps that an interval is to contain.
pub const SHARE: f64 = 0.8;

/// Standard deviation of the logarithmic error between two measured layouts of one problem, in addition to what the
/// [spreads](crate::constants::Constant::spread) of constants explain. 68 % of the pairs are within both combined.
///
/// # Source
///
/// 586 pairs of measured runs that differ in their layout alone, predicted with their source left out of the fit; runs
/// of vTrain are not among them. The weight of a group is its number of rows less one: `cost-models/fit/fit_pairs.py`.
/// 68 % lie within 7.0 %.
pub const PAIRED_REST: f64 = 0.066;

/// Standard deviation of the logarithm of measured over predicted peak memory, up to a factor that all peaks share, in
/// three parts: for the whole, for the share that a step saves and frees again, and for the bytes that do not grow with
/// the model, in GiB.
///
/// # Source
///
/// The likelihood of the peaks of the first half of the sources: `cost-models/fit/fit_peaks.py`.
const PEAK: [f64; 3] = [0.01, 0.08, 1.0];

/// Least number of sources from which an interval is derived.
pub const LEAST_SOURCES: usize = 3;

/// Evidence for a stack: a framework on a kind of GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// Steps of this stack were measured on the machine itself.
    Calibrated,
    /// Steps of this framework on this kind of GPU were measured by others.
    Measured,
    /// Nobody measured the two together: the error may be like that of any source.
    New,
    /// The framework is not known: any of them may run it.
    Unknown,
}

/// Quantity that a [`Spread`] describes, both measured and predicted for a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpreadOf {
    /// Time of the step.
    StepTimeSeconds,
    /// Peak memory of a rank.
    PeakMemoryBytes,
}

/// Scores of measured values, predicted without their source.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// Number of sources.
    pub sources: usize,
    /// Number of values that were compared.
    pub rows: usize,
    /// Lower bound of the score: a tenth of them is below, with each source weighted equally.
    pub low: f64,
    /// Upper bound of the score: a tenth of them is above.
    pub high: f64,
    /// Score below which nine tenths of the measured values lie, without the allowance for another source.
    pub ninth_decile: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StackSpreads {
    stacks: BTreeSet<String>,
    spreads: BTreeMap<Evidence, Spread>,
}

impl SpreadOf {
    /// Name of the stack for which steps were measured: for times, a framework on a kind of GPU; for memory, which does
    /// not depend on the GPU, the framework.
    pub fn stack(self, hardware: &Hardware) -> String {
        let (set, framework) = (&hardware.device.training_set, hardware.framework.measured_name());
        match self {
            // Rates of other architectures are scaled from those of NVIDIA GPUs, and no steps were measured on them.
            Self::StepTimeSeconds => match hardware.architecture {
                Architecture::Volta
                | Architecture::Ampere
                | Architecture::Hopper
                | Architecture::Blackwell
                | Architecture::Cdna3
                | Architecture::Cdna4 => format!("{framework} on {set}"),
                other => format!("{framework} on {other:?}"),
            },
            Self::PeakMemoryBytes => framework.to_owned(),
        }
    }

    /// True if steps, or peaks, with this framework, kind of GPU and precision were measured on the machine itself.
    fn is_calibrated(self, hardware: &Hardware) -> bool {
        hardware.framework.calibration.as_ref().is_some_and(|calibration| {
            let count = match self {
                Self::StepTimeSeconds => calibration.steps,
                Self::PeakMemoryBytes => calibration.peaks,
            };
            count > 0
                && calibration.gpu == hardware.device.training_set
                && calibration.precisions.contains(&hardware.precision)
        })
    }
}

impl Spread {
    /// The interval of measured over predicted, for a prediction whose logarithm has this standard deviation.
    pub fn interval(&self, deviation: f64) -> [f64; 2] {
        [self.low, self.high].map(|score| (score * deviation).exp())
    }

    /// The spread of scores, given by source; `None` for fewer than [`LEAST_SOURCES`].
    ///
    /// Each source has the same weight, however many steps it has, as a new stack is one more source. The bounds are
    /// the quantiles beyond which one more source lies with the wanted probability:
    ///
    /// ```text
    /// ((n + 1) (1 - share) / 2 - 1 / 2) / n from either end, of n sources
    /// ```
    ///
    /// # Source
    ///
    /// Vovk, Gammerman and Shafer 2005, *Algorithmic Learning in a Random World*: conformal prediction, with scores
    /// normalised by the difficulty of each case.
    pub fn of<'a>(by_source: impl IntoIterator<Item = &'a [f64]>) -> Option<Self> {
        let by_source: Vec<&[f64]> =
            by_source.into_iter().filter(|scores| !scores.is_empty()).collect();
        let sources = by_source.len();
        if sources < LEAST_SOURCES {
            return None;
        }
        let weighted = by_source.into_iter().flat_map(|scores| {
            scores.iter().map(move |score| (*score, 1.0 / (scores.len() * sources) as f64))
        });
        let mut weighted: Vec<(f64, f64)> = weighted.collect();
        weighted.sort_by(|one, other| one.0.total_cmp(&other.0));
        let tail = (((sources + 1) as f64 * (1.0 - SHARE) / 2.0 - 0.5) / sources as f64).max(0.0);
        let [low, high] = [tail, 1.0 - tail].map(|share| quantile(&weighted, share));
        let ninth_decile = quantile(&weighted, 0.9);
        Some(Self { sources, rows: weighted.len(), low, high, ninth_decile })
    }

    /// The built-in spread for a stack, and the evidence for it.
    pub fn shipped(of: SpreadOf, hardware: &Hardware) -> (Evidence, Self) {
        static SHIPPED: LazyLock<BTreeMap<SpreadOf, StackSpreads>> =
            LazyLock::new(|| section("residuals"));
        let StackSpreads { stacks, spreads } = &SHIPPED[&of];
        let evidence = match () {
            () if of.is_calibrated(hardware) => Evidence::Calibrated,
            () if !hardware.framework.stands_for.is_empty() => Evidence::Unknown,
            () if stacks.contains(&of.stack(hardware)) => Evidence::Measured,
            () => Evidence::New,
        };
        (evidence, spreads[&evidence])
    }
}

/// Standard deviation of the logarithm of measured over predicted peak memory, up to a factor that all peaks share.
/// States are counted. The memory that a step saves and frees again is known less well, and the memory that libraries
/// hold matters most where little else is held.
pub fn peak_deviation(memory: &MemoryUse) -> f64 {
    let states = memory.parameters_bytes + memory.gradients_bytes + memory.optimizer_bytes;
    let peak = memory.total();
    let temporary = peak.saturating_sub(states + memory.context_bytes);
    deviation_of(peak, temporary.as_f64() / peak.as_f64().max(1.0))
}

/// [`peak_deviation`] of a full GPU, half of which holds states.
pub fn full_deviation(capacity: Bytes) -> f64 {
    deviation_of(capacity, 0.5)
}

/// [`peak_deviation`] of a peak with this share of temporary memory.
fn deviation_of(peak: Bytes, temporary: f64) -> f64 {
    let [of_whole, of_temporary, fixed_gib] = PEAK;
    let fixed = fixed_gib / peak.as_gib().max(f64::MIN_POSITIVE);
    let parts = [of_whole, of_temporary * temporary, fixed];
    parts.map(|part| part * part).iter().sum::<f64>().sqrt()
}

/// Weighted quantile of scores in ascending order, with weights that sum to 1.
fn quantile(weighted: &[(f64, f64)], share: f64) -> f64 {
    let mut below = 0.0;
    let mut last: Option<(f64, f64)> = None;
    for (score, weight) in weighted {
        let at = below + weight / 2.0;
        if at >= share {
            return last.map_or(*score, |(before, score_before)| {
                let part = (share - before) / (at - before);
                score_before + part * (score - score_before)
            });
        }
        below += weight;
        last = Some((at, *score));
    }
    last.map_or(0.0, |(_, score)| score)
}
