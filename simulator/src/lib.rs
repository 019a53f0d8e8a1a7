//! From a schedule and the durations of its actions to when everything happens.

mod durations;
mod earliest;

pub use durations::{Durations, PassTimes};
pub use earliest::{Earliest, RankUse, earliest};
