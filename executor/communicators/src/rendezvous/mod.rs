//! Rendezvous: how processes that a launcher started find each other, and control messages between them.
//!
//! Rank 0 listens, all ranks connect to it, and it hands on what they tell each other: identifiers,
//! shapes, that a rank has failed. Arrays do not go this way. As with PyTorch's store, whoever
//! reaches the port is believed, so it belongs on a network of one's own.

mod connection;
mod frame;
mod hub;
mod launch;

use std::io;
use std::time::{Duration, Instant};

pub use connection::{Channel, Connection, Shutdown};
use executor_kernels::clock::now;
pub use launch::{Launch, LaunchError};

/// Time between two looks whether something has changed.
const POLL: Duration = Duration::from_millis(20);

/// Failure of a rendezvous.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RendezvousError {
    /// The host has no address.
    #[error("the host of rank 0, `{host}`, is not known here: {source}")]
    Host {
        /// The host.
        host: String,
        /// The system's error.
        source: io::Error,
    },
    /// Rank 0 cannot listen.
    #[error(
        "rank 0 cannot listen on port {port}: {source}\nhint: set `MASTER_PORT` to a free port"
    )]
    Listen {
        /// The port.
        port: u16,
        /// The system's error.
        source: io::Error,
    },
    /// Rank 0 cannot be reached.
    #[error(
        "rank {rank} cannot reach rank 0 at {address}, after {} s: {source}\nhint: rank 0 runs \
         on the host that `MASTER_ADDR` names, and listens on the port that `MASTER_PORT` names",
        limit.as_secs_f64()
    )]
    Unreachable {
        /// The rank that says so.
        rank: u32,
        /// Host and port.
        address: String,
        /// Time for which it was tried.
        limit: Duration,
        /// The system's last error.
        source: io::Error,
    },
    /// Rank 0 says that there will be no run.
    #[error("the ranks did not meet at {address}: {reason}")]
    Refused {
        /// Host and port.
        address: String,
        /// The reason.
        reason: String,
    },
    /// The system has no thread or socket to spare.
    #[error("rank {rank} cannot be connected: {source}")]
    System {
        /// The rank that says so.
        rank: u32,
        /// The system's error.
        source: io::Error,
    },
}

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
