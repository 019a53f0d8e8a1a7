//! How measured steps, their times and their memory, lie about what is predicted without their source: the interval
//! that a prediction carries.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use ir::cluster::Architecture;
use serde::{Deserialize, Serialize};

use crate::Hardware;
use crate::fitted::section;

/// Share of steps that an interval is meant to contain.
pub const SHARE: f64 = 0.8;

/// By how much, in logarithms, the errors of two measured layouts of one problem differ beyond what
/// [spreads](crate::constants::Constant::spread) of constants explain: with both, 68 % of the pairs are within.
///
/// # Source
///
/// 586 pairs of measured runs that differ in their layout alone, predicted without their source, those of vTrain left
/// out, each group counting by its number of rows less one: `cost-models/fit/fit_pairs.py`. 68 % of them lie within 7.0 %.
pub const PAIRED_REST: f64 = 0.066;

/// Fewer sources than these say nothing of another.
pub const LEAST_SOURCES: usize = 3;

/// What is known of a stack, a framework on GPUs of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// Steps of this stack were measured on the machine itself.
    Calibrated,
    /// Others measured steps of this framework on such GPUs.
    Measured,
    /// Nobody else measured the two together: it may be like any source.
    New,
    /// What runs it is not known at all: any of them may.
    Unknown,
}

/// What a [`Spread`] is of: what was both measured and predicted of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpreadOf {
    /// Its time.
    StepTimeSeconds,
    /// Memory of a rank at its peak.
    PeakMemoryBytes,
}

/// What was measured of steps over what was predicted without their source.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// Of how many sources they were.
    pub sources: usize,
    /// How many were compared.
    pub rows: usize,
    /// The ratio that a tenth of them was below, each source counting as much.
    pub low: f64,
    /// The ratio that a tenth of them was above.
    pub high: f64,
    /// The ratio that nine tenths of those measured were below, of whom another is no part.
    pub ninth_decile: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StackSpreads {
    stacks: BTreeSet<String>,
    spreads: BTreeMap<Evidence, Spread>,
}

impl SpreadOf {
    /// What a stack is called of which steps were measured: for times, a framework on GPUs of a kind; for memory, which
    /// GPUs do not change, the framework.
    pub fn stack(self, hardware: &Hardware) -> String {
        let (set, framework) = (&hardware.device.training_set, hardware.framework.measured_name());
        match self {
            // On other machines than NVIDIA's, rates of these stand in; nobody measured steps.
            Self::StepTimeSeconds => match hardware.architecture {
                Architecture::Volta
                | Architecture::Ampere
                | Architecture::Hopper
                | Architecture::Blackwell => format!("{framework} on {set}"),
                other => format!("{framework} on {other:?}"),
            },
            Self::PeakMemoryBytes => framework.to_owned(),
        }
    }

    /// Whether steps, or peaks, on such GPUs in this precision were measured with this framework on the machine itself.
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
    /// That of ratios by source; none for fewer than [`LEAST_SOURCES`].
    ///
    /// Each source counts as much, however many steps it has: another is one more of them. The bounds lie where so much
    /// of all weights is below that one more source lies beyond with the wanted probability:
    ///
    /// ```text
    /// ((n + 1) (1 - share) / 2 - 1 / 2) / n from either end, of n sources
    /// ```
    ///
    /// # Source
    ///
    /// Vovk, Gammerman and Shafer 2005, *Algorithmic Learning in a Random World*: conformal prediction.
    pub fn of<'a>(by_source: impl IntoIterator<Item = &'a [f64]>) -> Option<Self> {
        let by_source: Vec<&[f64]> =
            by_source.into_iter().filter(|ratios| !ratios.is_empty()).collect();
        let sources = by_source.len();
        if sources < LEAST_SOURCES {
            return None;
        }
        let weighted = by_source.into_iter().flat_map(|ratios| {
            ratios.iter().map(move |ratio| (*ratio, 1.0 / (ratios.len() * sources) as f64))
        });
        let mut weighted: Vec<(f64, f64)> = weighted.collect();
        weighted.sort_by(|one, other| one.0.total_cmp(&other.0));
        let tail = (((sources + 1) as f64 * (1.0 - SHARE) / 2.0 - 0.5) / sources as f64).max(0.0);
        let [low, high] = [tail, 1.0 - tail].map(|share| quantile(&weighted, share));
        let ninth_decile = quantile(&weighted, 0.9);
        Some(Self { sources, rows: weighted.len(), low, high, ninth_decile })
    }

    /// That of the project's own reference for a stack, and what is known of it.
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

/// The ratio below which lies so much of all weights, which add up to 1, of ratios in order.
fn quantile(weighted: &[(f64, f64)], share: f64) -> f64 {
    let mut below = 0.0;
    let mut last: Option<(f64, f64)> = None;
    for (ratio, weight) in weighted {
        let at = below + weight / 2.0;
        if at >= share {
            return last.map_or(*ratio, |(before, ratio_before)| {
                let part = (share - before) / (at - before);
                ratio_before + part * (ratio - ratio_before)
            });
        }
        below += weight;
        last = Some((at, *ratio));
    }
    last.map_or(1.0, |(_, ratio)| ratio)
}
