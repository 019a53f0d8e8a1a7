//! Plan files: written from the result of a search, and read.

mod make;
mod read;

pub use make::{make, planned_ranks, provenance};
pub use read::name_timeline;
pub use read::{CheckedPlan, PlanError, read};
