//! Fitted times of collectives within one domain, by kind and group size.

use std::collections::BTreeMap;

use ir::collective::Collective;
use serde::Deserialize;

const FITTED: &str = include_str!("../../data/collectives.json");

/// Time over message size as a polyline in log-log space.
///
/// A polyline is the simplest curve that follows NCCL: flat where latency dominates, with steps where the protocol
/// changes, of slope one where bandwidth dominates.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Curve {
    /// Base-2 logarithms of the whole buffer's bytes, ascending.
    log2_bytes: Vec<f64>,
    /// Base-2 logarithms of the time in microseconds, not descending.
    log2_microseconds: Vec<f64>,
    /// Mean absolute relative error on the rows fitted, from 64 KiB up.
    #[serde(default)]
    #[allow(dead_code, reason = "for the reader of the data file")]
    mean_error: f64,
}

/// All curves that were fitted on one kind of network level.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CollectiveRates {
    /// Source of the measurements.
    #[allow(dead_code, reason = "for the reader of the data file")]
    source: String,
    /// Curves by kind, then by group size.
    curves: BTreeMap<String, BTreeMap<u32, Curve>>,
}

impl CollectiveRates {
    /// All built-in rates, by name.
    fn all() -> BTreeMap<String, Self> {
        serde_json::from_str(FITTED).expect("the fitted data is valid; a test reads it")
    }

    /// Names of all built-in rates.
    pub(crate) fn names() -> Vec<String> {
        Self::all().into_keys().collect()
    }

    /// The rates called `name`.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::all().remove(name)
    }

    /// Time of a collective within the level, in seconds; `None` where the kind was not measured.
    ///
    /// Between two measured group sizes the logarithm of the time is linear in that of the size.
    /// Beyond the largest, the volume per rank decides the transfer, and each doubling of the group
    /// adds the latency that the last measured doubling added, as in a tree.
    pub(crate) fn seconds(&self, kind: Collective, num_ranks: u32, bytes: f64) -> Option<f64> {
        let curves = self.curves.get(kind.name())?;
        let (&largest, last) = curves.last_key_value()?;
        if let Some(curve) = curves.get(&num_ranks) {
            return Some(curve.seconds(bytes));
        }
        if num_ranks > largest {
            let volume = kind.volume_factor(num_ranks) / kind.volume_factor(largest);
            let (_, before) = curves.range(..largest).next_back()?;
            let step = (last.latency() - before.latency()).max(0.0);
            let doublings = f64::from(num_ranks).log2() - f64::from(largest).log2();
            return Some(last.seconds(bytes * volume) + step * doublings);
        }
        let (&above, upper) = curves.range(num_ranks..).next()?;
        let Some((&below, lower)) = curves.range(..num_ranks).next_back() else {
            return Some(upper.seconds(bytes));
        };
        let share = (f64::from(num_ranks) / f64::from(below)).ln()
            / (f64::from(above) / f64::from(below)).ln();
        Some(lower.seconds(bytes).powf(1.0 - share) * upper.seconds(bytes).powf(share))
    }
}

impl Curve {
    fn seconds(&self, bytes: f64) -> f64 {
        let x = bytes.max(1.0).log2();
        let (xs, ys) = (&self.log2_bytes, &self.log2_microseconds);
        let last = xs.len() - 1;
        if x <= xs[0] {
            return microseconds(ys[0]);
        }
        if x >= xs[last] {
            // Beyond the largest message measured, time grows with the bytes.
            return microseconds(ys[last] + x - xs[last]);
        }
        let upper = xs.partition_point(|&knot| knot < x);
        let share = (x - xs[upper - 1]) / (xs[upper] - xs[upper - 1]);
        microseconds(ys[upper - 1] + share * (ys[upper] - ys[upper - 1]))
    }

    /// Seconds for the smallest message.
    fn latency(&self) -> f64 {
        microseconds(self.log2_microseconds[0])
    }
}

fn microseconds(log2: f64) -> f64 {
    log2.exp2() * 1e-6
}
