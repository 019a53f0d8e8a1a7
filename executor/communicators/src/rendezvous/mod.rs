//! Rendezvous: how processes that a launcher started find each other, and control messages between them.
//!
//! Rank 0 listens, all ranks connect to it, and it hands on what they tell each other: identifiers,
//! shapes, that a rank has failed. Arrays do not go this way. As with PyTorch's store, whoever
//! reaches the port is believed, so it belongs on a network of one's own.

mod connection;
mod frame;
mod hub;
mod launch;

use std::time::{Duration, Instant};

pub use connection::{Channel, Connection, Shutdown};
use executor_kernels::clock::now;
pub use launch::{Launch, LaunchError};

/// Time between two looks whether something has changed.
const POLL: Duration = Duration::from_millis(20);

/// Failure of a rendezvous.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RendezvousError(String);

/// A point in time after which nothing is waited for.
#[derive(Clone, Copy)]
struct Deadline(Instant);

impl Deadline {
    fn after(limit: Duration) -> Self {
        Self(now() + limit)
    }

    fn is_over(self) -> bool {
        now() >= self.0
    }

    /// Time that is left, and a moment at least.
    fn left(self) -> Duration {
        self.0.saturating_duration_since(now()).max(POLL)
    }
}
