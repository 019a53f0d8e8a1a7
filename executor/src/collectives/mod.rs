//! Collectives on real ranks: contents of buffers before and after, their correctness, and times.
//!
//! The result of an operation is defined once, by [`traces::collectives::Operation`]: sets of pieces in the slots of
//! each rank's buffer. Ranks begin with the numbers of their pieces, and their results are compared with the numbers of
//! the pieces that they must have in the end.

mod call;
mod contents;
mod error;
mod fitting;
mod shown;
mod timing;

pub use call::{GroupOperation, bus_factor, planned_bytes};
pub use contents::{Contents, Numbers};
pub use error::CollectiveError;
pub use fitting::{FittedLevel, KindError, fit_level};
pub use shown::{Shown, show};
pub use timing::{SizeRange, TimedCollective, TimingPlan, groups, time};
