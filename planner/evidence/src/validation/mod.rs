//! Comparison of predictions with measured training steps.
//!
//! A [`MeasuredRun`] is a plan with measured numbers. Files contain such runs, or rows in the form that sources
//! publish, which `published` maps to runs. Each run is compared with the planner's prediction. Rows that cannot be
//! mapped are reported with the reason, never dropped.

pub mod accuracy;
pub mod choices;
mod columns;
mod comparison;
mod contradictions;
mod error;
mod gpus;
mod habits;
pub mod intervals;
mod kernels;
pub mod left_out;
mod prediction_spread;
mod published;
pub mod run;
pub mod setup;
mod vtrain;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::Path;

use cost_models::residuals::SpreadOf::{PeakMemoryBytes, StepTimeSeconds};
use cost_models::residuals::peak_deviation;
use ir::framework::Framework;
use ir::graph::Axis;
use ir::layout::Layout;
use ir::plan::{Breakdown, MemoryUse};
use ir::text::json;
use ir::units::{Bytes, Nanos, Seconds};
use rayon::prelude::*;
use serde::Deserialize;
use serde_json::Value;

pub use comparison::{ComparedRow, Comparison, Quantity};
use comparison::{Point, compared};
pub use error::FileError;
use left_out::without_its_source;
pub use prediction_spread::PredictionSpread;
use run::{MeasuredMemory, MeasuredRun, MemoryOf, Unsupported};
use setup::Setup;

use planner_core::problem::Problem;
use planner_core::search::{EvaluatedPlan, evaluated, log_deviation, simulated};
use planner_core::step::{ChainIndex, Shape, ShapeKey};

/// Prediction of a run.
#[derive(Clone, Debug)]
pub struct Predicted {
    /// Step time, in seconds.
    pub step_time_seconds: f64,
    /// Breakdown of the step time.
    pub breakdown: Breakdown,
    /// Memory of the fullest rank.
    pub memory: MemoryUse,
    /// Memory of each pipeline rank; empty if the run is a single layer.
    pub memory_by_rank: Vec<MemoryUse>,
    /// Memory of a GPU.
    pub memory_capacity: Bytes,
    /// The problem, and the plan that was simulated; `None` if the run is a single layer.
    pub plan: Option<(Problem, EvaluatedPlan)>,
}

impl Predicted {
    /// Memory of the rank for which a source states memory.
    pub fn memory_of(&self, whose: MemoryOf) -> &MemoryUse {
        let [first, .., last] = self.memory_by_rank.as_slice() else { return &self.memory };
        match whose {
            MemoryOf::FullestRank => &self.memory,
            MemoryOf::FirstRank => first,
            MemoryOf::LastRank => last,
            MemoryOf::FirstOrLastRank if last.total() > first.total() => last,
            MemoryOf::FirstOrLastRank => first,
        }
    }

    /// Terms of the prediction of a quantity; those that are zero are left out.
    fn terms(&self, quantity: Quantity, whose: MemoryOf) -> BTreeMap<&'static str, f64> {
        let terms: Vec<(&str, f64)> = match quantity {
            Quantity::StepTimeSeconds => self.breakdown.parts().to_vec(),
            Quantity::PeakMemoryBytes => {
                let lines = self.memory_of(whose).lines();
                lines.map(|(name, bytes)| (name, bytes.get() as f64)).to_vec()
            }
            Quantity::LatencySeconds => Vec::new(),
        };
        terms.into_iter().filter(|(_, size)| *size > 0.0).collect()
    }
}

/// A run with its prediction, or with the reason why there is none.
#[derive(Clone, Debug)]
pub struct Validated {
    /// The run. Its memory is unsupported if it exceeds the memory of the GPU to which the run is mapped.
    pub run: MeasuredRun,
    /// Prediction of the run.
    pub predicted: Result<Predicted, Unsupported>,
    /// Prediction with constants fitted without the run's source; `None` if the built-in constants are fitted without
    /// it.
    pub left_out: Option<Predicted>,
    /// Spreads of its time and of its memory; `None` if nothing was predicted.
    pub known: Option<[PredictionSpread; 2]>,
}

/// The runs of a file: JSON, or a CSV that is recognised by its columns.
///
/// # Errors
///
/// [`FileError`] if the file contains something else.
pub fn read_rows(name: &str, text: &str) -> Result<Vec<MeasuredRun>, FileError> {
    let is_csv = |ending: &OsStr| ending.eq_ignore_ascii_case("csv");
    if Path::new(name).extension().is_some_and(is_csv) {
        return vtrain::read(text);
    }
    let value: Value = json::read(text).map_err(FileError::Json)?;
    let values = match value {
        Value::Array(values) => values,
        run => vec![run],
    };
    let is_run = |value: &Value| {
        value.get("id").is_some() && ["n_layers", "plan"].iter().any(|it| value.get(it).is_some())
    };
    if !values.iter().any(is_run) {
        return Err(FileError::NotRuns);
    }
    Ok(values.into_iter().enumerate().map(|(index, value)| read_run(index, value)).collect())
}

/// Reads a run with a plan, or a published row.
fn read_run(index: usize, value: Value) -> MeasuredRun {
    if value.get("plan").is_none() {
        return published::run(index, value);
    }
    MeasuredRun::deserialize(&value).unwrap_or_else(|error| {
        let reason = Unsupported::new(error.to_string());
        let of_row = published::run(index, value);
        MeasuredRun { step_time_seconds: Err(reason.clone()), plan: Err(reason), ..of_row }
    })
}

/// Predictions of all runs of a file; with another framework, if one is given.
pub fn validate(file: &str, runs: &[MeasuredRun], framework: Option<&Framework>) -> Vec<Validated> {
    let mut named = BTreeSet::new();
    let named_twice: BTreeSet<&str> =
        runs.iter().map(|run| run.id.as_str()).filter(|id| !named.insert(*id)).collect();
    runs.par_iter()
        .map(|run| {
            let setup = if named_twice.contains(run.id.as_str()) {
                Err(Unsupported::new("several rows of the file have this `id`"))
            } else {
                Setup::with(run, framework)
            };
            let without = setup.as_ref().ok().filter(|_| framework.is_none());
            let without = without.and_then(|it| without_its_source(file, it));
            let peak_memory = memory_of(run, setup.as_ref().ok());
            let predicted = setup.as_ref().map(predict).map_err(Unsupported::clone);
            let whose = peak_memory
                .as_ref()
                .ok()
                .copied()
                .flatten()
                .map_or(MemoryOf::FullestRank, |it| it.of);
            let known = setup.as_ref().ok().zip(predicted.as_ref().ok()).map(|(setup, it)| {
                let hardware = &setup.problem.hardware;
                let deviation = deviation(setup, it.step_time_seconds);
                [
                    PredictionSpread::of(StepTimeSeconds, hardware, deviation),
                    PredictionSpread::of(
                        PeakMemoryBytes,
                        hardware,
                        peak_deviation(it.memory_of(whose)),
                    ),
                ]
            });
            Validated {
                run: MeasuredRun { peak_memory, ..run.clone() },
                predicted,
                left_out: without.as_ref().map(predict),
                known,
            }
        })
        .collect()
}

/// The measured memory of a run.
///
/// # Errors
///
/// The memory is not a number above zero, or exceeds the memory of the GPU to which the run is mapped.
pub fn memory_of(
    run: &MeasuredRun,
    setup: Option<&Setup>,
) -> Result<Option<MeasuredMemory>, Unsupported> {
    let memory = run.peak_memory.clone()?;
    if let (Some(memory), Some(setup)) = (memory, setup) {
        contradictions::check_memory(memory, setup.problem.hardware.memory)?;
    }
    Ok(memory)
}

/// Prediction of a mapped run.
pub fn predict(setup: &Setup) -> Predicted {
    let Setup { problem, layout, stage_ends, is_layer, .. } = setup;
    if *is_layer {
        return layer(problem, layout);
    }
    let (found, simulated) = simulated(problem, *layout, stage_ends);
    let evaluation = &found.evaluation;
    Predicted {
        step_time_seconds: evaluation.step_time.get(),
        breakdown: evaluation.breakdown,
        memory: evaluation.memory,
        memory_by_rank: simulated.memory_by_rank,
        memory_capacity: problem.hardware.memory,
        plan: Some((problem.clone(), found)),
    }
}

/// Standard deviation of the logarithm of a run's measured over its predicted time.
fn deviation(setup: &Setup, seconds: f64) -> f64 {
    let Setup { layout, stage_ends, is_layer, .. } = setup;
    log_deviation(&setup.problem, seconds, |problem| {
        if *is_layer {
            return Some(layer(problem, layout).step_time_seconds);
        }
        let evaluation = evaluated(problem, *layout, stage_ends).ok()?;
        Some(evaluation.step_time.get())
    })
}

/// Prediction of one layer's forward and backward, which some sources measure instead of a step.
fn layer(problem: &Problem, layout: &Layout) -> Predicted {
    let shape = Shape::new(problem, &ChainIndex::new(problem), ShapeKey::of(layout, problem));
    // The first block is the embedding, the second a layer.
    let class = problem.graph.blocks().nth(1);
    let block = &shape.blocks[class.map_or(0, |class| class.0)];
    let passes = block.forward + block.backward;
    let recompute = block.recompute[layout.recompute.of_first_layers()];
    let seconds = |time: Nanos| Seconds::from(time).get();
    let breakdown = Breakdown {
        compute_seconds: seconds(passes.compute),
        recompute_seconds: seconds(recompute.total()),
        host_seconds: seconds(passes.host),
        tensor_parallel_seconds: seconds(
            passes.waits(Axis::Tensor) + passes.waits(Axis::ExpertTensor),
        ),
        context_parallel_seconds: seconds(passes.waits(Axis::Context)),
        expert_parallel_seconds: seconds(passes.waits(Axis::Expert)),
        ..Breakdown::default()
    };
    Predicted {
        step_time_seconds: breakdown.total(),
        breakdown,
        memory: MemoryUse::default(),
        memory_by_rank: Vec::new(),
        memory_capacity: problem.hardware.memory,
        plan: None,
    }
}

/// Comparison of the rows of a file that state a quantity; `None` if no row does.
pub fn compare(file: &str, quantity: Quantity, validated: &[Validated]) -> Option<Comparison> {
    compared(file, quantity, validated.iter().map(|run| run.of(quantity)))
}

/// Comparison of a table of measured kernels or collectives; `None` if it has no rows.
///
/// # Errors
///
/// [`FileError`] if the text is not such a table.
pub fn compare_kernels(name: &str, text: &str) -> Result<Option<Comparison>, FileError> {
    let rows = kernels::read(name, text)?;
    Ok(compared(name, Quantity::LatencySeconds, rows.into_iter()))
}

impl Validated {
    /// Measured and predicted value of a quantity.
    fn of(&self, quantity: Quantity) -> Point {
        let is_memory = quantity == Quantity::PeakMemoryBytes;
        let memory = self.run.peak_memory.clone();
        let stated = memory.as_ref().ok().copied().flatten().filter(|_| is_memory);
        let measured = if is_memory {
            memory.map(|it| it.map(|memory| memory.bytes.as_f64()))
        } else {
            self.run.step_time_seconds.clone()
        };
        let of = stated.map_or(MemoryOf::FullestRank, |memory| memory.of);
        let value = |predicted: &Predicted| {
            stated.map_or(predicted.step_time_seconds, |memory| {
                memory.kind.of(predicted.memory_of(memory.of)).as_f64()
            })
        };
        let predicted = self.predicted.as_ref().map_err(Unsupported::clone);
        Point {
            id: self.run.id.clone(),
            group: self.run.group.clone(),
            measured,
            predicted: predicted.clone().map(value),
            left_out: self.left_out.as_ref().map(value),
            known: self.known.as_ref().map(|known| known[usize::from(is_memory)].clone()),
            terms: predicted.map_or_else(|_| BTreeMap::new(), |it| it.terms(quantity, of)),
        }
    }
}
