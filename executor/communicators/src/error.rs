//! Errors of communication, and failures of ranks.

use std::any::Any;
use std::fmt;
use std::io;
use std::panic::{self, AssertUnwindSafe};

use executor_kernels::failure::DeviceFailure;

use super::array_spec::ArraySpec;
use super::tag::Tag;

/// A result of communication, where no other error is named.
pub(super) type Result<T, E = CommunicationError> = std::result::Result<T, E>;

/// Why a rank did not get what it waited for.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CommunicationError {
    /// A rank has told all to stop; the rest is a consequence.
    #[error("rank {rank} stopped the run: {cause}")]
    Stopped {
        /// The rank.
        rank: u32,
        /// Its message.
        cause: String,
    },
    /// A rank's process has gone without a word: it was killed, or cannot be reached any more.
    #[error("rank {rank} is lost: {}", LOST)]
    Lost {
        /// The rank.
        rank: u32,
    },
    /// A rank has ended before its part was done.
    #[error("rank {rank} has ended, but rank {waiting} still needs it for {tag}")]
    Gone {
        /// The rank.
        rank: u32,
        /// The rank that says so.
        waiting: u32,
        /// The message for which it was needed.
        tag: Tag,
    },
    /// Ranks reduce arrays that are not alike.
    #[error(
        "rank {rank} has an array of {:?} and shape {:?} to reduce, but rank {other} has one of {:?} and \
         shape {:?}",
        spec.element, spec.shape, other_spec.element, other_spec.shape
    )]
    Mismatch {
        /// The rank that says so.
        rank: u32,
        /// Its array.
        spec: ArraySpec,
        /// The other rank.
        other: u32,
        /// The other's array.
        other_spec: ArraySpec,
    },
    /// A job of a queue panicked.
    #[error("a job of queue `{queue}` panicked: {message}")]
    Panicked {
        /// The queue.
        queue: String,
        /// Its message.
        message: String,
    },
    /// Ranks do not call the same.
    #[error(
        "rank {rank} waits on {tag} for {expected}, but rank {from} sent {found}: their calls differ"
    )]
    Confused {
        /// The rank that says so.
        rank: u32,
        /// The messages for which it waited.
        tag: Tag,
        /// The kind of message that was next in its order.
        expected: &'static str,
        /// The sender.
        from: u32,
        /// The kind of message that came.
        found: &'static str,
    },
    /// The library that moves arrays between devices has failed.
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
        /// The function.
        call: &'static str,
        /// Whose call it is.
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
        /// Rank 0's.
        first: String,
        /// Another rank.
        rank: u32,
        /// Its own.
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
    /// The rank that ended the run, if that is the error.
    pub(super) fn ended_by(&self) -> Option<u32> {
        match self {
            Self::Stopped { rank, .. } | Self::Lost { rank } => Some(*rank),
            _ => None,
        }
    }
}

/// The failure that ended a run, of the rank that failed first.
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
    /// Its program returned an error.
    Error(E),
    /// Its program panicked, with this message.
    Panic(String),
    /// Its device has failed.
    Device(DeviceFailure),
    /// It told all ranks to stop, for this reason.
    Stopped(String),
    /// Its process has gone without a word.
    Lost,
    /// It could not be started: the system gave no thread.
    Start(io::Error),
}

impl<E> RankFailure<E> {
    /// The rank whose process tells of the failure: the one that failed, or if that is lost, the first of
    /// those that are left.
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

/// Outcome of a process's run, from that of its own rank and the error of the rank that ended the run for all.
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
    // What a panic has left half done is seen by nobody: all ranks end.
    match panic::catch_unwind(AssertUnwindSafe(program)) {
        Ok(outcome) => outcome.map_err(Cause::Error),
        Err(panic) => Err(match DeviceFailure::of(&*panic) {
            Some(failure) => Cause::Device(failure.clone()),
            None => Cause::Panic(panic_message(&*panic)),
        }),
    }
}

/// Message of a panic.
pub(super) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .or_else(|| DeviceFailure::of(panic).map(DeviceFailure::to_string))
        .unwrap_or_else(|| "no message".to_owned())
}
