//! Collectives on real ranks: who holds what before and after, whether that is right, and how long it
//! takes.
//!
//! What an operation must give is stated once, by [`traces::collectives::Operation`]: sets of pieces in
//! the slots of each rank's buffer. Ranks are given the pieces' numbers, and what they end with is held
//! against the numbers of the pieces that they must have.

mod call;
mod contents;
mod error;
mod fitting;
mod holdings;
mod timing;

pub use call::{Call, bus_factor, planned_bytes};
pub use contents::{Contents, Numbers};
pub use error::CollectiveError;
pub use fitting::{FittedLevel, KindError, fit_level};
pub use holdings::{Shown, show};
pub use timing::{SizeRange, TimedCollective, TimingPlan, groups, time};
