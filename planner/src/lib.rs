//! Search, evaluation and explanation of parallel layouts.

pub mod evaluate;
pub mod partition;
pub mod pipeline;
pub mod problem;
pub mod search;
pub mod space;
pub mod stages;
