//! From a schedule and the durations of its actions to when everything happens.
//!
//! [`simulate`] runs a schedule with its transfers, links and memory, event by event, and leaves a
//! timeline. [`earliest`] knows only how long actions and messages take, and is fast enough to search
//! with; where messages are mere delays, both say the same.

mod durations;
mod earliest;
mod engine;
mod jitter;
mod simulation;
mod work;

pub use durations::{Durations, PassTimes};
pub use earliest::{Earliest, RankUse, earliest};
pub use jitter::{Distribution, Jitter, Planned, Replicas, sample_steps};
pub use simulation::{CriticalStep, RankTimes, Simulation, SimulationError, simulate};
pub use work::{Messages, RankWork, Segment, StageWork, StepEnd, Transfer, Work};
