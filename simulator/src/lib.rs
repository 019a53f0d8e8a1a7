//! Simulation of a step: from a schedule and the work of its actions to a timeline.
//!
//! [`simulate`] runs a schedule with its messages, transfers and memory, and returns a timeline. [`Order`] is a
//! schedule prepared for a search that simulates many steps: [`step_time`] gives the end of the same timeline, and
//! [`lower_bound`] a time that it is never below. [`SharedWeights`] are for asynchronous replicas.

mod asynchronous;
mod bound;
mod cycle;
mod deviates;
mod durations;
mod earliest;
mod error;
mod memory;
mod order;
mod play;
mod record;
mod simulation;
mod straggler;
mod transfers;
mod work;

pub use asynchronous::{SharedUpdate, SharedWeights, SteadyState};
pub use bound::{MinPassTimes, StepTail, lower_bound};
pub use cycle::{Cycle, step_time};
pub use deviates::{normal_deviates, uniform_deviates};
pub use durations::{Durations, PassTimes};
pub use earliest::{Earliest, earliest};
pub use error::SimulationError;
pub use memory::{PassOrder, peak_memory};
pub use order::{Order, RankOp};
pub use play::{Played, RankTimes, played};
pub use simulation::{CriticalStep, ExchangeSpan, RunId, Simulation, simulate, simulate_in_detail};
pub use straggler::straggling_step;
pub use work::{
    ActivationBytes, GroupCollective, HostCopy, Messages, PassPart, PassParts, RankWork, Run,
    StageWork, StepWork, TimedMessage, Transfer,
};
