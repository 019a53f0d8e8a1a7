//! Predictions held against measured training steps.
//!
//! A file holds runs that others measured; each is mapped to a model, a cluster and a layout by the rules
//! in [`setup`], and what the planner predicts for it stands beside what was measured. What cannot be
//! mapped is reported with the reason, never left out.

pub mod accuracy;
pub mod choices;
mod comparison;
mod contradictions;
mod description;
mod error;
mod facts;
mod gpus;
mod habits;
pub mod intervals;
mod kernels;
pub mod left_out;
pub mod reference;
pub mod row;
pub mod setup;
mod vtrain;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::Path;

use cost_models::residuals::SpreadOf::{PeakMemoryBytes, StepTimeSeconds};
use ir::framework::Framework;
use ir::graph::Axis;
use ir::layout::Layout;
use ir::plan::{Breakdown, MemoryUse};
use ir::units::{Bytes, Nanos, Seconds};
use rayon::prelude::*;
use serde_json::Value;

pub use comparison::{ComparedRow, Comparison, Quantity};
use comparison::{Point, compared};
pub use error::FileError;
use facts::Facts;
use left_out::without_its_source;
use row::{MeasuredMemory, MemoryKind, MemoryOf, Row, Unsupported};
use setup::Setup;

use planner_core::problem::Problem;
use planner_core::search::simulated;
use planner_core::step::{ChainIndex, Shape, ShapeKey};

/// What was predicted for a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Predicted {
    /// Time of a step.
    pub step_time_seconds: f64,
    /// Where it goes.
    pub breakdown: Breakdown,
    /// What fills the fullest rank.
    pub memory: MemoryUse,
    /// What fills each pipeline rank; empty where the run is one layer alone.
    pub memory_by_rank: Vec<MemoryUse>,
    /// What it has.
    pub memory_capacity: Bytes,
}

impl Predicted {
    /// What fills the rank whose memory a source states.
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

    /// What a quantity is made of; terms of nothing left out.
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

/// A run with its prediction, or why there is none.
#[derive(Clone, Debug)]
pub struct Validated {
    /// What its file calls it.
    pub id: String,
    /// GPU and precision.
    pub group: String,
    /// What was measured, where it was.
    pub step_time_seconds: Result<Option<f64>, Unsupported>,
    /// What was measured, where it was.
    pub memory: Result<Option<MeasuredMemory>, Unsupported>,
    /// What was predicted.
    pub predicted: Result<Predicted, Unsupported>,
    /// What is predicted by constants that its source had no part in; none where those that ship are such.
    pub left_out: Option<Predicted>,
    /// What its time and its memory are of, as [`cost_models::residuals::SpreadOf::stack`] has it; empty if nothing was predicted.
    pub stacks: [String; 2],
    /// Whether the run ended for lack of memory.
    pub ran_out_of_memory: bool,
    /// All that decides its time but the layout: rows that have it in common differ in their layout alone.
    pub problem: String,
    /// Its layout, as its source states it.
    pub layout: String,
    /// Whether linear layers run in fewer than 16 bits.
    pub few_bits: bool,
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
    let value: Value = serde_json::from_str(text).map_err(|error| FileError::json(text, &error))?;
    let values = match value {
        Value::Array(values) => values,
        run => vec![run],
    };
    let is_run = |value: &Value| value.get("id").is_some() && value.get("n_layers").is_some();
    if !values.iter().any(is_run) {
        return Err(FileError::NotRuns);
    }
    Ok(values.into_iter().enumerate().map(|(index, value)| Row::new(index, value)).collect())
}

/// What is predicted for each run of a file, as another framework would have run it if one is named.
pub fn validate(file: &str, rows: &[Row], framework: Option<&Framework>) -> Vec<Validated> {
    let mut named = BTreeSet::new();
    let named_twice: BTreeSet<&str> =
        rows.iter().map(|row| row.id.as_str()).filter(|id| !named.insert(*id)).collect();
    rows.par_iter()
        .map(|row| {
            let setup = if named_twice.contains(row.id.as_str()) {
                Err(Unsupported::new("several rows of the file have this `id`"))
            } else {
                Setup::with(row, framework)
            };
            let stacks = setup.as_ref().map_or_else(
                |_| Default::default(),
                |it| [StepTimeSeconds, PeakMemoryBytes].map(|of| of.stack(&it.problem.hardware)),
            );
            let without = setup.as_ref().ok().filter(|_| framework.is_none());
            let without = without.and_then(|it| without_its_source(file, it));
            Validated {
                id: row.id.clone(),
                group: format!("{}, {}", row.text("gpu"), row.text("precision")),
                step_time_seconds: row.step_time_seconds(),
                memory: memory_of(row, setup.as_ref().ok()),
                predicted: setup.map(|setup| predict(&setup)),
                left_out: without.as_ref().map(predict),
                stacks,
                ran_out_of_memory: row.ran_out_of_memory(),
                problem: row.problem(),
                layout: row.layout(),
                few_bits: row.has_few_bits(),
            }
        })
        .collect()
}

/// The memory that a row states; of the fullest rank, unless it or its source says otherwise.
///
/// # Errors
///
/// It is no number above zero, or more than the GPU has on which the run is mapped.
pub fn memory_of(row: &Row, setup: Option<&Setup>) -> Result<Option<MeasuredMemory>, Unsupported> {
    let facts = Facts::of(row)?;
    let kind = facts.memory_kind.unwrap_or(MemoryKind::Allocated);
    let memory = row.memory((kind, facts.memory_of.unwrap_or(MemoryOf::FullestRank)))?;
    if let (Some(memory), Some(setup)) = (memory, setup) {
        contradictions::check_memory(memory, setup.problem.hardware.memory)?;
    }
    Ok(memory)
}

/// What is predicted for a run that was mapped.
pub fn predict(setup: &Setup) -> Predicted {
    let Setup { problem, layout, stage_ends, is_layer, .. } = setup;
    if *is_layer {
        return layer(problem, layout);
    }
    let (found, simulated) = simulated(problem, *layout, stage_ends);
    let evaluation = found.evaluation;
    Predicted {
        step_time_seconds: evaluation.step_time.get(),
        breakdown: evaluation.breakdown,
        memory: evaluation.memory,
        memory_by_rank: simulated.memory_by_rank,
        memory_capacity: problem.hardware.memory,
    }
}

/// One layer's forward and backward on its own: what some sources time in place of a step.
fn layer(problem: &Problem, layout: &Layout) -> Predicted {
    let shape = Shape::new(problem, &ChainIndex::new(problem), ShapeKey::of(layout));
    // The embedding is before it.
    let class = problem.graph.blocks().nth(1);
    let block = &shape.blocks[class.map_or(0, |class| class.0)];
    let passes = block.forward + block.backward;
    let again = block.recompute[layout.recompute.of_first_layers()];
    let seconds = |time: Nanos| Seconds::from(time).get();
    let breakdown = Breakdown {
        compute_seconds: seconds(passes.compute),
        recompute_seconds: seconds(again.total()),
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
    }
}

/// The rows of a file that state a quantity, and how well it is predicted; none if no row states it.
pub fn compare(file: &str, quantity: Quantity, validated: &[Validated]) -> Option<Comparison> {
    compared(file, quantity, validated.iter().map(|run| run.of(quantity)))
}

/// A table of measured kernels or collectives, and how well it is predicted; none if it has no rows.
///
/// # Errors
///
/// [`FileError`] where it is something else.
pub fn compare_kernels(name: &str, text: &str) -> Result<Option<Comparison>, FileError> {
    let rows = kernels::read(name, text)?;
    Ok(compared(name, Quantity::LatencySeconds, rows.into_iter()))
}

impl Validated {
    /// What was measured of a quantity, and what was predicted.
    fn of(&self, quantity: Quantity) -> Point {
        let measured = match (quantity, &self.memory) {
            (Quantity::PeakMemoryBytes, Ok(memory)) => {
                Ok(memory.map(|memory| memory.bytes.get() as f64))
            }
            (Quantity::PeakMemoryBytes, Err(reason)) => Err(reason.clone()),
            _ => self.step_time_seconds.clone(),
        };
        let value = |predicted: &Predicted| match (quantity, &self.memory) {
            (Quantity::PeakMemoryBytes, Ok(Some(MeasuredMemory { kind, whose, .. }))) => {
                kind.of(predicted.memory_of(*whose)).get() as f64
            }
            _ => predicted.step_time_seconds,
        };
        let whose = match &self.memory {
            Ok(Some(memory)) => memory.whose,
            _ => MemoryOf::FullestRank,
        };
        Point {
            id: self.id.clone(),
            group: self.group.clone(),
            measured,
            predicted: self.predicted.as_ref().map(value).map_err(Unsupported::clone),
            left_out: self.left_out.as_ref().map(value),
            stack: self.stacks[usize::from(quantity == Quantity::PeakMemoryBytes)].clone(),
            terms: self
                .predicted
                .as_ref()
                .map_or_else(|_| BTreeMap::new(), |it| it.terms(quantity, whose)),
        }
    }
}
