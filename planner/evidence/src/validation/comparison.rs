//! Measurements beside predictions.

use std::collections::BTreeMap;

use serde::Serialize;

use super::accuracy::Accuracy;
use super::run::Unsupported;

/// What is predicted and was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Time of a training step.
    StepTimeSeconds,
    /// Memory of the rank that needs most.
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

    /// What it is, in words, without its unit.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::StepTimeSeconds => "time of a step",
            Self::PeakMemoryBytes => "memory of a GPU",
            Self::LatencySeconds => "time of a kernel",
        }
    }
}

/// A file's rows for one quantity, and how well they are predicted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The file's name.
    pub file: String,
    /// What is compared.
    pub quantity: Quantity,
    /// How well, over the rows that were predicted.
    #[serde(flatten)]
    pub accuracy: Accuracy,
    /// How well by constants that each row's source had no part in; those of the fit where it had none in these.
    pub left_out: Accuracy,
    /// How well by group: by GPU and precision, or by kind and size of kernels.
    pub groups: BTreeMap<String, Accuracy>,
    /// Each row that states the quantity.
    pub rows: Vec<ComparedRow>,
}

/// A row of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ComparedRow {
    /// Both are known.
    Predicted {
        /// What the file calls it.
        id: String,
        /// In seconds or bytes.
        measured: f64,
        /// In the same unit.
        predicted: f64,
        /// What is predicted by constants that its source had no part in; absent for a kernel, and where these are
        /// those that ship.
        #[serde(skip_serializing_if = "Option::is_none")]
        left_out: Option<f64>,
        /// What was measured: a framework on a kind of GPUs; of memory, a framework; empty for a kernel.
        #[serde(skip_serializing_if = "String::is_empty")]
        stack: String,
        /// What the prediction is made of, in the same unit; empty for a kernel.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        terms: BTreeMap<&'static str, f64>,
    },
    /// It cannot be mapped.
    Unsupported {
        /// What the file calls it.
        id: String,
        /// Why not.
        unsupported: String,
    },
}

/// A row with what was measured, if the source states it, and what is predicted.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) id: String,
    pub(super) group: String,
    pub(super) measured: Result<Option<f64>, Unsupported>,
    pub(super) predicted: Result<f64, Unsupported>,
    pub(super) terms: BTreeMap<&'static str, f64>,
    pub(super) left_out: Option<f64>,
    pub(super) stack: String,
}

/// The rows of a file that state a quantity, and how well it is predicted; none if no row states it.
pub(super) fn compared(
    file: &str,
    quantity: Quantity,
    points: impl Iterator<Item = Point>,
) -> Option<Comparison> {
    let mut all: Vec<[f64; 2]> = Vec::new();
    let mut without: Vec<[f64; 2]> = Vec::new();
    let mut by_group: BTreeMap<String, Vec<[f64; 2]>> = BTreeMap::new();
    let mut rows = Vec::new();
    for Point { id, group, measured, predicted, terms, left_out, stack } in points {
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
                ComparedRow::Predicted { id, measured, predicted, left_out, stack, terms }
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
