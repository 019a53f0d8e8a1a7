//! Whether a schedule is complete, ordered and free of deadlock.

mod deadlock;
mod error;
mod structure;

pub use deadlock::{Sends, check};
pub use error::{Defect, ScheduleError, Wait};

pub(super) use structure::structure;
