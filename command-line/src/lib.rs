//! What the commands do alike: how they read numbers, what they say of mistakes, how they print and write, and what they
//! offer to shells.
//!
//! It knows nothing of plans: whoever uses one command knows how the other behaves.

pub mod destination;
pub mod numbers;
pub mod said;
pub mod shell;
pub mod usage;
pub mod whole;
