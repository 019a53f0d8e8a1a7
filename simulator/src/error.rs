//! Reasons why a step cannot be simulated.

use ir::schedule::Step;
use ir::units::Nanos;

/// Reason why a step cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SimulationError {
    /// Work of another number of stages or ranks than the schedule has.
    #[error("the schedule has {expected} {what}, but there is work for {found}")]
    Sizes {
        /// Stages or ranks.
        what: &'static str,
        /// As the schedule has it.
        expected: usize,
        /// As the work has it.
        found: usize,
    },
    /// A rank that waits forever, for a collective that another rank never comes to.
    #[error("rank {rank} waits forever{}, from {time} on", match step { Some(step) => format!(" at `{step}`"), None => String::new() })]
    Stuck {
        /// The rank.
        rank: usize,
        /// Where in its list.
        step: Option<Step>,
        /// Since when it does nothing any more.
        time: Nanos,
    },
}
