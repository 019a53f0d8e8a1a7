//! Plans: made from what a search found, and read back.

mod make;
mod read;

pub use make::{make, sha256};
pub use read::name_timeline;
pub use read::{CheckedPlan, PlanError, read};
