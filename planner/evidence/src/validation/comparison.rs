//! Comparison of measurements with predictions.

use std::collections::BTreeMap;

use serde::Serialize;

use super::accuracy::Accuracy;
use super::prediction_spread::PredictionSpread;
use super::run::Unsupported;

/// Quantity that is both predicted and measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Time of a training step.
    StepTimeSeconds,
    /// Peak memory of the fullest rank.
    PeakMemoryBytes,
    /// Time of a kernel or a collective.
    LatencySeconds,
}

impl Quantity {
    /// The name, as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::StepTimeSeconds => "step_time_seconds",
            Self::PeakMemoryBytes => "peak_memory_bytes",
            Self::LatencySeconds => "latency_seconds",
        }
    }

    /// Description of the quantity, without the unit.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::StepTimeSeconds => "time of a step",
            Self::PeakMemoryBytes => "memory of a GPU",
            Self::LatencySeconds => "time of a kernel",
        }
    }
}

/// Rows of a file for one quantity, with the accuracy of their predictions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Name of the file.
    pub file: String,
    /// The quantity that is compared.
    pub quantity: Quantity,
    /// Accuracy over the rows with a prediction.
    #[serde(flatten)]
    pub accuracy: Accuracy,
    /// Accuracy with constants fitted without each row's source; for sources that are not in the fit, the built-in
    /// constants.
    pub left_out: Accuracy,
    /// Accuracy by group: by GPU and precision, or by kind and size of kernel.
    pub groups: BTreeMap<String, Accuracy>,
    /// All rows that state the quantity.
    pub rows: Vec<ComparedRow>,
}

/// A row of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ComparedRow {
    /// A row with measurement and prediction.
    Predicted {
        /// Name in its file.
        id: String,
        /// Measured value, in seconds or bytes.
        measured: f64,
        /// Predicted value, in the same unit.
        predicted: f64,
        /// Prediction with constants fitted without the row's source; absent for kernels, and for sources that are not
        /// in the fit.
        #[serde(skip_serializing_if = "Option::is_none")]
        left_out: Option<f64>,
        /// The shipped 80 % interval of the measured value; absent for a kernel.
        #[serde(skip_serializing_if = "Option::is_none")]
        interval: Option<[f64; 2]>,
        /// Standard deviation of the logarithm of measured over predicted, to which the interval's width is
        /// proportional; 1 for memory.
        #[serde(skip_serializing_if = "Option::is_none")]
        deviation: Option<f64>,
        /// Stack of the measurement: for time, a framework on a kind of GPU; for memory, a framework; empty for a
        /// kernel.
        #[serde(skip_serializing_if = "String::is_empty")]
        stack: String,
        /// Terms of the prediction, in the same unit; empty for a kernel.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        terms: BTreeMap<&'static str, f64>,
    },
    /// A row that cannot be mapped to a plan.
    Unsupported {
        /// Name in its file.
        id: String,
        /// Reason.
        unsupported: String,
    },
}

/// A row with its measured value, if the source states it, and its prediction.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) id: String,
    pub(super) group: String,
    pub(super) measured: Result<Option<f64>, Unsupported>,
    pub(super) predicted: Result<f64, Unsupported>,
    pub(super) terms: BTreeMap<&'static str, f64>,
    pub(super) left_out: Option<f64>,
    pub(super) known: Option<PredictionSpread>,
}

/// Comparison of the rows of a file that state a quantity; `None` if no row does.
pub(super) fn compared(
    file: &str,
    quantity: Quantity,
    points: impl Iterator<Item = Point>,
) -> Option<Comparison> {
    let mut all: Vec<[f64; 2]> = Vec::new();
    let mut without: Vec<[f64; 2]> = Vec::new();
    let mut by_group: BTreeMap<String, Vec<[f64; 2]>> = BTreeMap::new();
    let mut rows = Vec::new();
    for Point { id, group, measured, predicted, terms, left_out, known } in points {
        let measured = match measured {
            Ok(Some(measured)) => Ok(measured),
            Ok(None) => continue,
            Err(reason) => Err(reason),
        };
        rows.push(match measured.and_then(|measured| Ok([measured, predicted?])) {
            Ok([measured, predicted]) => {
                all.push([measured, predicted]);
                without.push([measured, left_out.unwrap_or(predicted)]);
                by_group.entry(group).or_default().push([measured, predicted]);
                let interval = known.as_ref().map(|it| it.interval.map(|it| it * predicted));
                let deviation = known.as_ref().map(|it| it.deviation);
                let stack = known.map(|it| it.stack).unwrap_or_default();
                ComparedRow::Predicted {
                    id,
                    measured,
                    predicted,
                    left_out,
                    interval,
                    deviation,
                    stack,
                    terms,
                }
            }
            Err(reason) => ComparedRow::Unsupported { id, unsupported: reason.to_string() },
        });
    }
    let groups = by_group.into_iter().map(|(group, pairs)| (group, Accuracy::of(&pairs)));
    (!rows.is_empty()).then(|| Comparison {
        file: file.to_owned(),
        quantity,
        accuracy: Accuracy::of(&all),
        left_out: Accuracy::of(&without),
        groups: groups.collect(),
        rows,
    })
}
