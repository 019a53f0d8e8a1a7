//! Communicators: messages and collectives between the ranks of a run.
//!
//! [`Communicator`] is the interface of a rank: messages to other ranks, and collectives of a [`Group`] of ranks, each
//! a [`CollectiveCall`]. A [`Transport`] carries single messages, and [`MessagePassing`] makes any transport a
//! communicator: the collectives are written once, on top of it. [`local`] connects the threads of a process; with the
//! feature `mpi`, `mpi` connects processes. [`nccl`] leaves collectives to a library, between processes that find each
//! other by [`rendezvous`].
//!
//! Calls belong to a stream, as on the timeline. On one stream, all members of a group call in the same order, one call
//! after the other; different streams are independent, so that a [`Queue`] for each stream communicates while its rank
//! computes.
//!
//! Knows ranks by their numbers and arrays by their shapes; never a plan, a layout or a model.

mod array_spec;
mod collective;
mod control;
mod error;
mod group;
mod group_communicator;
mod in_flight;
pub mod local;
mod mailbox;
mod message_passing;
#[cfg(feature = "mpi")]
pub mod mpi;
pub mod nccl;
mod queue;
pub mod rendezvous;
mod tag;
mod traffic;
mod transport;

use burn::tensor::backend::Backend;
use executor_kernels::array::Array;
use traces::timeline::Stream;

use error::Result;

pub use array_spec::ArraySpec;
pub use collective::{CollectiveCall, Reduction};
pub use error::{Cause, CommunicationError, RankFailure};
pub use group::Group;
pub use group_communicator::GroupCommunicator;
pub use in_flight::{DeviceWork, InFlight};
pub use message_passing::MessagePassing;
pub use queue::{JobHandle, Queue};
pub use tag::Tag;
pub use traffic::Traffic;
pub use transport::{Message, Transport};

/// The messages and collectives of a rank. Composed and blocking collectives are in [`GroupCommunicator`], which `on`
/// returns.
///
/// Collectives of [`Self::start`] do not wait for the device: see [`InFlight`]. Their input array must not be in flight
/// itself, except on the same stream.
///
/// It is a bug, and panics, to call a collective of a group that does not include the calling rank, or with a number of
/// parts that differs from the group's number of ranks.
///
/// # Errors
///
/// All calls: [`CommunicationError::Stopped`] once a rank has stopped the run, [`CommunicationError::Gone`] if a rank
/// that is needed has ended. Reductions: [`CommunicationError::Mismatch`] if ranks give different arrays.
pub trait Communicator<B: Backend>: Send + Sync {
    /// The rank's number.
    fn rank(&self) -> u32;

    /// Number of ranks.
    fn num_ranks(&self) -> u32;

    /// True if collectives run on the device after all computation that was started before them, overlapped with later
    /// computation. They must not be started from a separate thread: they could then wait for computation that needs
    /// their results.
    fn is_asynchronous(&self) -> bool {
        false
    }

    /// Marks the start of a step: all ranks that send and receive within steps call it, once they have received all
    /// messages of the step before. Under tags of messages and of the context stream, every step sends the same number
    /// of arrays, of the same shapes and in the same order. A step that differs is a bug, and panics.
    fn begin_step(&self) {}

    /// Sends an array to a rank. Does not wait for the receiver.
    ///
    /// # Errors
    ///
    /// See [`Communicator`].
    fn send(&self, to: u32, tag: Tag, array: Array<B>) -> Result<()>;

    /// The next array that `from` has sent here with this tag. Waits for it.
    ///
    /// # Errors
    ///
    /// See [`Communicator`].
    fn receive(&self, from: u32, tag: Tag) -> Result<Array<B>>;

    /// Starts a collective of a group that includes this rank, on a stream. Returns the arrays that the collective
    /// returns on this rank.
    ///
    /// # Errors
    ///
    /// See [`Communicator`].
    fn start(
        &self,
        group: &Group,
        stream: Stream,
        call: CollectiveCall<B>,
    ) -> Result<InFlight<Vec<Array<B>>>>;

    /// Bytes that this rank has sent so far.
    fn traffic(&self) -> Traffic;

    /// Stops all ranks: each waiting or later call fails with [`CommunicationError::Stopped`]. The first cause is kept.
    fn stop(&self, cause: &str);
}
