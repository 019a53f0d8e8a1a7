//! Checks that a schedule is complete, ordered and free of deadlock.

mod deadlock;
mod error;
mod structure;

pub use deadlock::{Sends, check};
pub(super) use deadlock::{ends, units};
pub use error::{Defect, ScheduleError, Wait};

use crate::schedule::{Schedule, ScheduleStep, StagePlacement};

impl Schedule {
    /// Checks and makes the schedule in which rank `r` takes the steps `ranks[r]`.
    ///
    /// A schedule with any send or receive must have all of them; the same holds for gathering and
    /// freeing parameters, for reductions and for optimizer steps. One optimizer step for each
    /// micro-batch and stage makes the schedule asynchronous.
    ///
    /// # Errors
    ///
    /// The first defect, with the part of the grid where it is.
    pub fn new(
        ranks: Vec<Vec<ScheduleStep>>,
        placement: StagePlacement,
        num_micro_batches: u32,
    ) -> Result<Self, ScheduleError> {
        let schedule = Self::unchecked(ranks, placement, num_micro_batches);
        let updates = structure::structure(&schedule)?;
        let schedule = schedule.updating(updates);
        check(&schedule, Sends::NonBlocking)?;
        Ok(schedule)
    }
}
