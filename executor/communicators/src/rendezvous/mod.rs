//! Rendezvous: processes of a launcher connect to each other, and exchange control messages.
//!
//! Rank 0 listens, all ranks connect to it, and it forwards their control messages: identifiers, shapes, failures.
//! Arrays do not use it. As with PyTorch's store, connections are not authenticated, so the port belongs on a private
//! network.

mod connection;
mod frame;
mod hub;
mod launch;

use std::time::{Duration, Instant};

pub use connection::{Channel, Connection, Shutdown};
use executor_kernels::clock::now;
pub use launch::{Launch, LaunchError};

/// Polling period.
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

    /// Remaining time, and at least [`POLL`].
    fn left(self) -> Duration {
        self.0.saturating_duration_since(now()).max(POLL)
    }
}
