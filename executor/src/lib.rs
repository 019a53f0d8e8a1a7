//! Runs plans: each rank interprets its own list of the schedule's actions on tensors of a burn backend.

pub mod array;
pub mod checkpoint;
pub mod data;
