//! Reports of commands, as serializable data and as text.

mod expectation;
mod operators;
pub mod page;
mod schedule;
mod search;
mod simulation;
mod summary;
mod systems;

pub use expectation::{Expectation, ExpectedMemory};
pub use operators::OperatorReport;
pub use schedule::{Costs, ScheduleReport, timeline as schedule_timeline};
pub use search::{Answered, SearchReport};
pub use simulation::{SimulationReport, StragglerReport, straggling};
pub use summary::PlanSummary;
pub use systems::{System, systems};
