//! What goes wrong between ranks.

use std::any::Any;
use std::fmt;
use std::io;
use std::panic::{self, AssertUnwindSafe};

use super::tag::Tag;
use crate::array::Element;

/// Why a rank did not get what it waited for.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CommunicationError {
    /// A rank has told all to stop; the rest is a consequence.
    #[error("rank {rank} stopped the run: {cause}")]
    Stopped {
        /// Which.
        rank: u32,
        /// What it said.
        cause: String,
    },
    /// A rank has ended before its part was done.
    #[error("rank {rank} has ended, but rank {waiting} still needs it for {tag}")]
    Gone {
        /// Which.
        rank: u32,
        /// The rank that says so.
        waiting: u32,
        /// What it was needed for.
        tag: Tag,
    },
    /// Ranks reduce arrays that are not alike.
    #[error(
        "rank {rank} has an array of {element:?} and shape {shape:?} to reduce, but rank {other} has one \
         of {other_element:?} and shape {other_shape:?}"
    )]
    Mismatch {
        /// The rank that says so.
        rank: u32,
        /// Its element type.
        element: Element,
        /// Its shape.
        shape: Vec<usize>,
        /// The other rank.
        other: u32,
        /// The other's element type.
        other_element: Element,
        /// The other's shape.
        other_shape: Vec<usize>,
    },
    /// A job of a queue panicked.
    #[error("a job of queue `{queue}` panicked: {message}")]
    Panicked {
        /// The queue.
        queue: String,
        /// What it said.
        message: String,
    },
    /// Ranks do not call the same.
    #[error(
        "rank {rank} waits on {tag} for {expected}, but rank {from} sent {found}: their calls differ"
    )]
    Confused {
        /// The rank that says so.
        rank: u32,
        /// What it waited for.
        tag: Tag,
        /// The kind of message that was next in its order.
        expected: &'static str,
        /// The sender.
        from: u32,
        /// The kind of message that came.
        found: &'static str,
    },
}

/// The failure that ended a run, of the rank that failed first.
#[derive(Debug)]
pub struct RankFailure<E> {
    /// The rank.
    pub rank: u32,
    /// What happened there.
    pub cause: Cause<E>,
}

/// Why a rank failed.
#[derive(Debug)]
pub enum Cause<E> {
    /// Its program returned an error.
    Error(E),
    /// Its program panicked, with this message.
    Panic(String),
    /// It told all ranks to stop, for this reason.
    Stopped(String),
    /// It could not be started: the system gave no thread.
    Start(io::Error),
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
            Self::Stopped(cause) => f.write_str(cause),
            Self::Start(error) => write!(f, "it cannot be started: {error}"),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for RankFailure<E> {}

/// What a rank's program returns, or why it failed.
pub(super) fn attempt<T, E>(program: impl FnOnce() -> Result<T, E>) -> Result<T, Cause<E>> {
    // What a panic has left half done is seen by nobody: all ranks end.
    match panic::catch_unwind(AssertUnwindSafe(program)) {
        Ok(outcome) => outcome.map_err(Cause::Error),
        Err(panic) => Err(Cause::Panic(panic_message(&*panic))),
    }
}

/// What a panic said.
pub(super) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
