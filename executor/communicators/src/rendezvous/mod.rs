//! Rendezvous: processes of a launcher connect to each other, and exchange control messages.
//!
//! Rank 0 listens, all ranks connect to it, and it forwards their control messages: identifiers, shapes, failures.
//! Arrays do not use it. As with PyTorch's store, connections are not authenticated, so the port belongs on a private
//! network.

mod connection;
mod frame;
mod hub;
mod launch;

use std::time::Duration;

pub use connection::{Channel, Connection, Shutdown};
pub use launch::{Launch, LaunchError};

/// Polling period.
const POLL: Duration = Duration::from_millis(20);

/// Failure of a rendezvous.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RendezvousError(String);
