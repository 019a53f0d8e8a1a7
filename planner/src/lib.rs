//! Search, evaluation and explanation of parallel layouts.

pub mod evaluate;
pub mod expectation;
pub mod memory;
pub mod order;
pub mod partition;
pub mod pipeline;
pub mod plan_file;
pub mod planning;
pub mod problem;
pub mod program;
pub mod report;
pub mod schedule_report;
pub mod scheduling;
pub mod search;
pub mod simulated;
pub mod simulation_report;
pub mod space;
pub mod stages;
pub mod validation;
