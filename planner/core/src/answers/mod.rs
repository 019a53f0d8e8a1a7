//! Answers to questions about a plan: its gain over another plan, why an option is not chosen, the longest sequence,
//! the best batch size, and the cost of a whole run.

mod difference;
mod front;
mod limits;
mod training_run;
mod why_not;

use serde::{Serialize, Serializer};

use crate::search::EvaluatedPlan;

pub use difference::depends_on;
pub use difference::{Difference, MemoryDifference, TermDifference};
pub use front::{FrontPoint, cheapest_number_of_gpus, front, least_memory};
pub use limits::{BatchPoint, batches, longest_sequence};
pub use training_run::{
    CheckpointBytes, CheckpointLinks, CheckpointTimes, CheckpointTo, Component, Failures, LostTime,
    OnFailure, Per, Prices, SmallerPlan, TrainingJob, TrainingRun, TrainingRunError, slowdown,
    smaller_plans,
};
pub use why_not::{WhyNot, why_not};

/// JSON of a plan in an answer: its layout.
fn layout_of<S: Serializer>(found: &EvaluatedPlan, serializer: S) -> Result<S::Ok, S::Error> {
    (*found.layout).serialize(serializer)
}
