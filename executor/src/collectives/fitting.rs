//! Fits of network levels to times of collectives.

use std::collections::BTreeMap;

use ir::cluster::{MeasuredCollective, NetworkLevel};
use ir::collective::Collective;
use ir::units::{BytesPerSecond, Seconds};
use traces::collectives::Operation;
use traces::statistics::{Fit, Sample, fit};

use super::timing::TimedCollective;

/// A level that is fitted to rows, with its errors.
#[derive(Clone, Debug, PartialEq)]
pub struct FittedLevel {
    /// The level.
    pub level: NetworkLevel,
    /// Mean errors of the fits, by collective.
    pub errors: Vec<KindError>,
}

/// Mean error of a collective's fit, over its rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KindError {
    /// The collective.
    pub collective: Collective,
    /// Number of rows.
    pub num_rows: usize,
    /// Error of the collective's own fit.
    pub own: f64,
}

/// The lowest and highest bandwidths of a cluster file, in bytes per second.
const SLOWEST: f64 = 1.0;
const FASTEST: f64 = 1e30;

/// The level that fits the times of collectives in `rows`; none where `rows` has none of the six collectives that plans
/// use.
///
/// ```text
/// t = start + steps latency + v S / W
/// ```
///
/// Steps and volumes are those of [`Collective`], as the planner counts them, so that its prediction for a measured
/// collective is the measured time. Each collective has its own three numbers; the level's are fitted to all
/// collectives together.
pub fn fit_level(name: &str, ranks: Option<u32>, rows: &[TimedCollective]) -> Option<FittedLevel> {
    let mut by_kind: BTreeMap<Collective, Vec<Sample<3>>> = BTreeMap::new();
    for row in rows {
        if let Operation::Collective(kind) = row.operation {
            by_kind.entry(kind).or_default().push(sample(kind, row));
        }
    }
    let all: Vec<Sample<3>> = by_kind.values().flatten().cloned().collect();
    if all.is_empty() {
        return None;
    }
    let mut measured = BTreeMap::new();
    let mut errors = Vec::new();
    for (kind, samples) in &by_kind {
        let own = fit(samples);
        errors.push(KindError { collective: *kind, num_rows: samples.len(), own: own.mean_error });
        let (start, latency, bandwidth) = numbers(&own);
        measured.insert(
            *kind,
            MeasuredCollective {
                start: Seconds::new(start),
                latency: Seconds::new(latency),
                bandwidth: bandwidth.map(BytesPerSecond::new),
                mean_error: own.mean_error,
                times: BTreeMap::new(),
            },
        );
    }
    let (start, latency, bandwidth) = numbers(&fit(&all));
    let level = NetworkLevel {
        name: name.to_owned(),
        ranks,
        bandwidth: BytesPerSecond::new(bandwidth.unwrap_or(FASTEST)),
        interfaces_per_node: None,
        wiring: None,
        latency: Seconds::new(latency),
        start: Some(Seconds::new(start)),
        collective_rates: None,
        measured,
    };
    Some(FittedLevel { level, errors })
}

fn sample(kind: Collective, row: &TimedCollective) -> Sample<3> {
    let (steps, volume) = (kind.steps(row.num_ranks), kind.volume_factor(row.num_ranks));
    Sample {
        quantities: [1.0, steps, volume * row.bytes.as_f64()],
        known: 0.0,
        time: row.quartile.get(),
    }
}

/// Start and latency in seconds, and bandwidth in bytes per second; none where time does not grow with bytes.
fn numbers(fit: &Fit<3>) -> (f64, f64, Option<f64>) {
    let [start, latency, each] = fit.costs;
    (start, latency, (each > 0.0).then(|| (1.0 / each).clamp(SLOWEST, FASTEST)))
}
