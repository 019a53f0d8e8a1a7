//! Search, evaluation and explanation of parallel layouts.

pub mod expectation;
pub mod plan_file;
pub mod planning;
pub mod problem;
pub mod report;
pub mod schedule_report;
pub mod scheduling;
pub mod search;
pub mod simulation_report;
pub mod step;
pub mod validation;
