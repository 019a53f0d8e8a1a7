//! Search, evaluation and explanation of parallel layouts.

pub mod answers;
pub mod calibration;
pub mod file_kind;
pub mod interchange;
pub mod lint;
pub mod measured;
pub mod names;
pub mod partition;
pub mod plan;
pub mod problem;
pub mod report;
pub mod scheduling;
pub mod search;
pub mod step;
pub mod validation;
