//! Passes: from computation to everything that a rank does.

mod communication;
mod sharding;

pub use communication::add_communication;
pub use sharding::{add_optimizer_steps, add_reduction, add_sharding};
