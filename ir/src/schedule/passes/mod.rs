//! Passes that add communication, reductions and updates to a schedule of computation.

mod communication;
mod updates;

pub use communication::add_communication;
pub use updates::{add_optimizer_steps, add_reduction};
