//! How measured steps, their times and their memory, lie about what is predicted: the interval that a
//! prediction carries.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::Hardware;

const SPREADS: &str = include_str!("../data/residuals.json");

/// Share of steps that an interval is meant to contain.
pub const SHARE: f64 = 0.8;

/// By how much, in logarithms, the errors of two measured layouts of one problem differ: 68 % of the pairs are within.
///
/// # Source
///
/// 597 pairs in 124 groups of measured runs that differ in their layout alone, those of vTrain left out, each group
/// counting by its number of rows less one; `planner validate` prints their order.
pub const PAIRED_ERROR: f64 = 0.071;

/// Fewer comparable steps than these say nothing.
pub const LEAST_ROWS: usize = 12;

/// Whose steps are comparable, the nearest first: of the framework on such GPUs, of the framework, of all.
/// Mixtures of experts are compared to mixtures.
pub fn comparable(hardware: &Hardware, has_experts: bool) -> [String; 3] {
    let what = if has_experts { " with experts" } else { "" };
    let (set, framework) = (&hardware.device.training_set, hardware.framework.measured_name());
    [format!("{framework}{what} on {set}"), format!("{framework}{what}"), "all".to_owned()]
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

/// What was measured of steps over what was predicted.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// How many were compared.
    pub rows: usize,
    /// The ratio that a tenth of them was below.
    pub low: f64,
    /// The ratio that a tenth of them was above.
    pub high: f64,
}

impl Spread {
    /// That of ratios; none for fewer than [`LEAST_ROWS`].
    ///
    /// The bounds are those ranks of n ratios between which one more of the same kind lies with the
    /// wanted probability: `(n + 1) (1 - share) / 2` from either end.
    ///
    /// # Source
    ///
    /// Vovk, Gammerman and Shafer 2005, *Algorithmic Learning in a Random World*: conformal prediction.
    pub fn of(mut ratios: Vec<f64>) -> Option<Self> {
        let rows = ratios.len();
        if rows < LEAST_ROWS {
            return None;
        }
        ratios.sort_by(f64::total_cmp);
        // Ranks count from one, and between two neighbours from the one to the other.
        let rank = |share: f64| (rows as f64 + 1.0) * share - 1.0;
        let at = |rank: f64| {
            let rank = rank.clamp(0.0, (rows - 1) as f64);
            let (below, above) = (ratios[rank.floor() as usize], ratios[rank.ceil() as usize]);
            below + (above - below) * rank.fract()
        };
        let tail = (1.0 - SHARE) / 2.0;
        Some(Self { rows, low: at(rank(tail)), high: at(rank(1.0 - tail)) })
    }

    /// That of the project's own reference, for the nearest steps that are comparable, and whose these are.
    pub fn shipped(of: SpreadOf, comparable: [String; 3]) -> (String, Self) {
        let mut shipped: BTreeMap<SpreadOf, BTreeMap<String, Self>> =
            serde_json::from_str(SPREADS).expect("the data that ships is valid; a test reads it");
        let mut all = shipped.remove(&of).expect("both are there; a test asks for them");
        let names = comparable.into_iter();
        let mut known = names.filter_map(|name| Some((all.remove(&name)?, name)));
        let (spread, name) = known.next().expect("`all` is there; a test asks for it");
        (name, spread)
    }
}
