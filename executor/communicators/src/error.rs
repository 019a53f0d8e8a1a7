//! Errors of communication, and failures of ranks.

use std::fmt;
use std::io;
use std::panic::{self, AssertUnwindSafe};

use executor_kernels::failure::{DeviceFailure, panic_message};

use super::array_spec::ArraySpec;
use super::tag::Tag;

/// The result of a communication.
pub(super) type Result<T, E = CommunicationError> = std::result::Result<T, E>;

/// Reason why a communication failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CommunicationError {
    /// A rank has stopped the run; the other ranks' errors are consequences.
    #[error("rank {rank} stopped the run: {cause}")]
    Stopped {
        /// The rank.
        rank: u32,
        /// Message of the rank.
        cause: String,
    },
    /// A rank's process disappeared without a message: it was killed, or its connection was cut.
    #[error("rank {rank} is lost: {}", LOST)]
    Lost {
        /// The rank.
        rank: u32,
    },
    /// A rank has ended before it sent or received all messages.
    #[error("rank {rank} has ended, but rank {waiting} still needs it for {tag}")]
    Gone {
        /// The rank.
        rank: u32,
        /// The rank that reports it.
        waiting: u32,
        /// The message that it did not send or receive.
        tag: Tag,
    },
    /// Ranks reduce arrays of different types or shapes.
    #[error(
        "rank {rank} has an array of {:?} and shape {:?} to reduce, but rank {other} has one of {:?} and \
         shape {:?}",
        spec.element, spec.shape, other_spec.element, other_spec.shape
    )]
    Mismatch {
        /// The rank that reports it.
        rank: u32,
        /// Shape and type of the rank's array.
        spec: ArraySpec,
        /// The other rank.
        other: u32,
        /// The other rank's array.
        other_spec: ArraySpec,
    },
    /// A job of a queue panicked.
    #[error("a job of queue `{queue}` panicked: {message}")]
    Panicked {
        /// The queue.
        queue: String,
        /// Message of the panic.
        message: String,
    },
    /// Ranks make different calls.
    #[error(
        "rank {rank} waits on {tag} for {expected}, but rank {from} sent {found}: their calls differ"
    )]
    Confused {
        /// The rank that reports it.
        rank: u32,
        /// The tag of the message that it waited for.
        tag: Tag,
        /// The kind of message that was expected next.
        expected: &'static str,
        /// The sender.
        from: u32,
        /// The kind of message that came.
        found: &'static str,
    },
    /// The library of collectives has failed.
    #[error("`{call}` failed: {message}")]
    Library {
        /// The function.
        call: &'static str,
        /// The library's message.
        message: String,
    },
    /// A call to the library does not end.
    #[error(
        "`{call}` of {communicator} has not ended after {seconds} s: a rank does not come, or its links stall\nhint: the \
         log of the rank that is missing says why; `--communication-timeout` sets the limit"
    )]
    Stalled {
        /// The function of the call.
        call: &'static str,
        /// The communicator of the call.
        communicator: String,
        /// The limit.
        seconds: f64,
    },
    /// Ranks have libraries of different versions.
    #[error(
        "rank 0 has NCCL {first}, rank {rank} {other}\nhint: install the same on all nodes, or name one by \
         `LD_LIBRARY_PATH`"
    )]
    Versions {
        /// Rank 0's version.
        first: String,
        /// Another rank.
        rank: u32,
        /// Version of that rank.
        other: String,
    },
    /// Two ranks have the same device.
    #[error(
        "ranks {first} and {second} are on one GPU\nhint: NCCL needs a GPU for each rank; start as \
         many ranks on a node as it has GPUs"
    )]
    SharedDevice {
        /// One rank.
        first: u32,
        /// The other.
        second: u32,
    },
}

const LOST: &str = "its process was killed, or its connection to the others was cut";

impl CommunicationError {
    /// The rank that ended the run, if the error says so.
    pub(super) fn ended_by(&self) -> Option<u32> {
        match self {
            Self::Stopped { rank, .. } | Self::Lost { rank } => Some(*rank),
            _ => None,
        }
    }
}

/// The failure that ended a run, of the first rank that failed.
#[derive(Debug)]
pub struct RankFailure<E> {
    /// The rank.
    pub rank: u32,
    /// The reason of its failure.
    pub cause: Cause<E>,
}

/// Why a rank failed.
#[derive(Debug)]
pub enum Cause<E> {
    /// The rank's program returned an error.
    Error(E),
    /// The rank's program panicked, with this message.
    Panic(String),
    /// The rank's device has failed.
    Device(DeviceFailure),
    /// The rank stopped the run, for this reason.
    Stopped(String),
    /// The rank's process disappeared without a message.
    Lost,
    /// The rank's threads could not be started.
    Start(io::Error),
}

impl<E> RankFailure<E> {
    /// The rank whose process reports the failure: the rank that failed, or if its process is lost, the first of the
    /// other ranks.
    pub fn teller(&self) -> u32 {
        match self.cause {
            Cause::Lost => u32::from(self.rank == 0),
            _ => self.rank,
        }
    }
}

impl<E: fmt::Display> fmt::Display for RankFailure<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} failed: {}", self.rank, self.cause)
    }
}

impl<E: fmt::Display> fmt::Display for Cause<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => write!(f, "{error:#}"),
            Self::Panic(message) => write!(f, "it panicked: {message}"),
            Self::Device(failure) => failure.fmt(f),
            Self::Stopped(cause) => f.write_str(cause),
            Self::Lost => f.write_str(LOST),
            Self::Start(error) => write!(f, "it cannot be started: {error}"),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for RankFailure<E> {}

/// Outcome of a process's run, from its own rank's outcome and the error of the rank that ended the run.
pub(super) fn conclude<T, E>(
    own: u32,
    ended: Option<CommunicationError>,
    outcome: Result<T, Cause<E>>,
) -> Result<T, RankFailure<E>> {
    let (rank, heard) = match ended {
        Some(CommunicationError::Stopped { rank, cause }) => (rank, Cause::Stopped(cause)),
        Some(CommunicationError::Lost { rank }) => (rank, Cause::Lost),
        _ => return outcome.map_err(|cause| RankFailure { rank: own, cause }),
    };
    let own_cause = outcome.err().filter(|_| rank == own);
    Err(RankFailure { rank, cause: own_cause.unwrap_or(heard) })
}

/// Result of a rank's program, or the cause of its failure.
pub(super) fn attempt<T, E>(program: impl FnOnce() -> Result<T, E>) -> Result<T, Cause<E>> {
    // State that a panic left half changed is never read: all ranks end.
    match panic::catch_unwind(AssertUnwindSafe(program)) {
        Ok(outcome) => outcome.map_err(Cause::Error),
        Err(panic) => Err(match DeviceFailure::of(&*panic) {
            Some(failure) => Cause::Device(failure.clone()),
            None => Cause::Panic(panic_message(&*panic)),
        }),
    }
}
