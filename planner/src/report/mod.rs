//! What commands say, for programs and in words.

mod expectation;
mod schedule;
mod search;
mod simulation;

pub use expectation::{Expectation, ExpectedMemory};
pub use schedule::{Costs, ScheduleReport};
pub use search::{Answered, SearchReport};
pub use simulation::{JitterReport, SimulationReport, jittered};
