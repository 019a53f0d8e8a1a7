//! Predictions held against measured training steps.
//!
//! A file holds runs that others measured; each is mapped to a model, a cluster and a layout by the rules
//! in [`setup`], and what the planner predicts for it stands beside what was measured. What cannot be
//! mapped is reported with the reason, never left out.

pub mod accuracy;
mod description;
pub mod row;
pub mod setup;
mod vtrain;

use std::ffi::OsStr;
use std::path::Path;

use ir::plan::{Breakdown, MemoryUse};
use ir::units::Bytes;
use rayon::prelude::*;
use serde::Serialize;
use serde_json::Value;

use accuracy::Accuracy;
use row::{MeasuredMemory, Row, Unsupported};
use setup::Setup;

use crate::search::evaluate_stages;
use crate::simulated::simulated;

/// What is predicted and was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Time of a training step.
    StepTimeSeconds,
    /// Memory of the rank that needs most.
    PeakMemoryBytes,
}

/// What was predicted for a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predicted {
    /// Time of a step.
    pub step_time_seconds: f64,
    /// Where it goes.
    pub breakdown: Breakdown,
    /// What fills the fullest rank.
    pub memory: MemoryUse,
}

/// A run with its prediction, or why there is none.
#[derive(Clone, Debug)]
pub struct Validated {
    /// What its file calls it.
    pub id: String,
    /// What was measured, where it was.
    pub step_time_seconds: Result<Option<f64>, Unsupported>,
    /// What was measured, where it was.
    pub memory: Result<Option<MeasuredMemory>, Unsupported>,
    /// What was predicted.
    pub predicted: Result<Predicted, Unsupported>,
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
    },
    /// It cannot be mapped.
    Unsupported {
        /// What the file calls it.
        id: String,
        /// Why not.
        unsupported: String,
    },
}

/// Why a file is not one of measured runs.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// Not JSON.
    #[error("not JSON: {0}")]
    Json(String),
    /// JSON, but no list of runs.
    #[error("not a list of runs, each with an `id`, as in `[{{\"id\": .., \"n_layers\": ..}}]`")]
    NotRuns,
    /// A CSV with other columns.
    #[error("a CSV of other columns than those of known tables: `{0}`")]
    OtherColumns(String),
}

/// The runs of a file: JSON, or a CSV that is known by its columns.
///
/// # Errors
///
/// [`FileError`] where it holds something else.
pub fn read_rows(name: &str, text: &str) -> Result<Vec<Row>, FileError> {
    let is_csv = |ending: &OsStr| ending.eq_ignore_ascii_case("csv");
    if Path::new(name).extension().is_some_and(is_csv) {
        return vtrain::read(text);
    }
    let value: Value =
        serde_json::from_str(text).map_err(|error| FileError::Json(error.to_string()))?;
    let Value::Array(values) = value else { return Err(FileError::NotRuns) };
    let is_run = |value: &Value| value.get("id").is_some() && value.get("n_layers").is_some();
    if !values.iter().any(is_run) {
        return Err(FileError::NotRuns);
    }
    Ok(values.into_iter().enumerate().map(|(index, value)| Row::new(index, value)).collect())
}

/// What is predicted for each run.
pub fn validate(rows: &[Row]) -> Vec<Validated> {
    rows.par_iter()
        .map(|row| Validated {
            id: row.id.clone(),
            step_time_seconds: row.step_time_seconds(),
            memory: row.memory(),
            predicted: predict(row),
        })
        .collect()
}

fn predict(row: &Row) -> Result<Predicted, Unsupported> {
    let Setup { problem, layout, stage_ends } = Setup::of(row)?;
    let found = evaluate_stages(&problem, layout, stage_ends);
    let simulated = simulated(&problem, &found)
        .map_err(|error| Unsupported::new(format!("its schedule: {error}")))?;
    let evaluation = simulated.found.evaluation;
    Ok(Predicted {
        step_time_seconds: evaluation.step_time.get(),
        breakdown: evaluation.breakdown,
        memory: evaluation.memory,
    })
}

/// The rows of a file that state a quantity, and how well it is predicted; none if no row states it.
pub fn compare(file: &str, quantity: Quantity, validated: &[Validated]) -> Option<Comparison> {
    let rows: Vec<ComparedRow> =
        validated.iter().filter_map(|run| run.compared(quantity)).collect();
    let pairs: Vec<[f64; 2]> = rows
        .iter()
        .filter_map(|row| match row {
            ComparedRow::Predicted { measured, predicted, .. } => Some([*measured, *predicted]),
            ComparedRow::Unsupported { .. } => None,
        })
        .collect();
    (!rows.is_empty()).then(|| Comparison {
        file: file.to_owned(),
        quantity,
        accuracy: Accuracy::of(&pairs),
        rows,
    })
}

impl Validated {
    /// Measured and predicted, or why they cannot be compared; none if the source does not state it.
    fn compared(&self, quantity: Quantity) -> Option<ComparedRow> {
        let id = self.id.clone();
        let pair = match quantity {
            Quantity::StepTimeSeconds => match &self.step_time_seconds {
                Ok(measured) => Ok((*measured)?),
                Err(reason) => Err(reason),
            }
            .and_then(|measured| Ok([measured, self.predicted.as_ref()?.step_time_seconds])),
            Quantity::PeakMemoryBytes => match &self.memory {
                Ok(measured) => Ok((*measured)?),
                Err(reason) => Err(reason),
            }
            .and_then(|MeasuredMemory { bytes, kind }| {
                let predicted = kind.of(&self.predicted.as_ref()?.memory);
                Ok([bytes.get() as f64, predicted.get() as f64])
            }),
        };
        Some(match pair {
            Ok([measured, predicted]) => ComparedRow::Predicted { id, measured, predicted },
            Err(reason) => ComparedRow::Unsupported { id, unsupported: reason.to_string() },
        })
    }
}

/// What a measurement of memory counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// What the allocator has given out.
    Allocated,
    /// What it has taken from the device.
    Reserved,
    /// All that the process has on the device.
    Process,
}

impl MemoryKind {
    /// The part of a prediction that is counted so.
    pub fn of(self, memory: &MemoryUse) -> Bytes {
        let process = memory.total();
        let reserved = process.saturating_sub(memory.context_bytes);
        match self {
            Self::Process => process,
            Self::Reserved => reserved,
            Self::Allocated => reserved.saturating_sub(memory.allocator_bytes),
        }
    }
}
