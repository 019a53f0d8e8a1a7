//! Passes that add communication, sharding, reductions and updates to a schedule of computation.

mod communication;
mod sharding;

pub use communication::add_communication;
pub use sharding::{add_optimizer_steps, add_reduction, add_sharding};
