//! Operators of a graph split one by one over the GPUs of a step: the choice for each operator, and the resulting step.

pub mod costs;
pub mod graph;
mod plan;
pub mod program;
mod solve;
pub mod space;
mod step;

pub use plan::{OperatorPlan, SplitOperator};
pub use solve::{OperatorSearch, solve};
pub use step::OperatorStep;
