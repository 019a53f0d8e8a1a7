//! Search, evaluation and explanation of parallel layouts.
//!
//! Knows a model, a cluster, a framework and a layout as values; never a tool's file, a measured run, a terminal.

pub mod answers;
pub mod operators;
pub mod partition;
pub mod plan;
pub mod problem;
pub mod scheduling;
pub mod search;
pub mod step;
