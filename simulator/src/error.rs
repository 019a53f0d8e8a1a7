//! Reasons why a step cannot be simulated.

use ir::schedule::ScheduleStep;
use ir::units::Nanos;

/// Reason why a step cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SimulationError {
    /// The work has another number of stages or ranks than the schedule.
    #[error("the schedule has {expected} {what}, but there is work for {found}")]
    Sizes {
        /// The unit: stages or ranks.
        what: &'static str,
        /// Number in the schedule.
        expected: usize,
        /// Number in the work.
        found: usize,
    },
    /// A rank waits forever for a collective that another rank never joins.
    #[error("rank {rank} waits forever at `{step}`, from {time} on")]
    Stuck {
        /// The rank.
        rank: usize,
        /// The step at which it waits.
        step: ScheduleStep,
        /// Time from which it waits.
        time: Nanos,
    },
}
