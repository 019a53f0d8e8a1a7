//! The library that moves arrays, as the communicator sees it.

use std::sync::Arc;

use burn::tensor::backend::Backend;
use executor_kernels::array::Array;
use executor_kernels::clock::Point;
use traces::timeline::Stream;

use crate::error::Result;
use crate::rendezvous::Connection;
use crate::{ArraySpec, InFlight, Reduction};

/// The state of the run, which a library asks for while it waits for others, and may end.
pub trait RunState: Send + Sync {
    /// Fails once a rank has stopped the run.
    ///
    /// # Errors
    ///
    /// The error of the rank that stopped it.
    fn check(&self) -> Result<()>;

    /// Tells all ranks to stop. The first cause stays.
    fn stop(&self, cause: &str);
}

impl RunState for Connection {
    fn check(&self) -> Result<()> {
        Self::check(self)
    }

    fn stop(&self, cause: &str) {
        Self::stop(self, cause);
    }
}

/// The members of a communicator of the library, as its errors name them.
#[derive(Clone, Debug)]
pub struct Membership {
    /// Position of this rank among them.
    pub position: usize,
    /// Their ranks.
    pub ranks: Vec<u32>,
    /// The stream that their collectives are of; none where one of two sends to the other.
    pub stream: Option<Stream>,
}

/// A library of collectives, such as NCCL.
pub trait Engine<B: Backend>: Send + Sync {
    /// The identifier of a new communicator, which its first member tells the others.
    ///
    /// # Errors
    ///
    /// Failures of the library.
    fn new_id(&self) -> Result<Vec<u8>>;

    /// Joins a communicator. Waits for all of its members. What communicators of one stream start runs one after the
    /// other.
    ///
    /// # Errors
    ///
    /// Failures of the library and of `run`.
    fn join(
        &self,
        id: &[u8],
        membership: Membership,
        run: Arc<dyn RunState>,
    ) -> Result<Box<dyn LibraryCommunicator<B>>>;

    /// [`Communicator::is_asynchronous`](crate::Communicator::is_asynchronous).
    fn is_asynchronous(&self) -> bool {
        false
    }

    /// An array as the library reads it, with how far the device has to compute before. A thread that sends it later
    /// must not wait for what is computed by then: that may be behind what the receiver sends in answer.
    ///
    /// # Errors
    ///
    /// Failures of the device.
    fn marked(&self, array: Array<B>) -> Result<(Array<B>, Option<Point>)> {
        Ok((array, None))
    }

    /// Waits until all that was started has ended.
    ///
    /// # Errors
    ///
    /// Failures of the library and of the run.
    fn finish(&self) -> Result<()> {
        Ok(())
    }

    /// Gives back what communicators hold, once all ranks have finished or the run was stopped: nobody is waited for.
    fn close(&self) {}
}

/// A communicator of the library: ranks that call it together. Members are named by their positions.
pub trait LibraryCommunicator<B: Backend>: Send {
    /// Starts calls at once, as all members do: the results of those that have one on this member.
    ///
    /// # Errors
    ///
    /// Failures of the library and of the run.
    fn start(&mut self, calls: Vec<LibraryCall<B>>) -> Result<InFlight<Vec<Array<B>>>>;
}

/// A call of the library. Arrays are not empty.
#[derive(Clone, Debug)]
pub struct LibraryCall<B: Backend> {
    /// The function.
    pub function: LibraryFunction,
    /// The array of this member; none where it only receives.
    pub array: Option<Array<B>>,
    /// The array that is left on this member; none where it only sends.
    pub result: Option<ArraySpec>,
    /// Equal pieces of array and result, one after the other, each of which is a call by itself.
    pub pieces: usize,
    /// Point that the device's computation has to pass before the array is read; if none, the time of the call.
    pub after: Option<Point>,
}

impl<B: Backend> LibraryCall<B> {
    /// A call in one piece.
    pub fn new(
        function: LibraryFunction,
        array: Option<Array<B>>,
        result: Option<ArraySpec>,
    ) -> Self {
        Self { function, array, result, pieces: 1, after: None }
    }
}

/// A function of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LibraryFunction {
    /// Leaves all arrays as one on each member.
    AllReduce(Reduction),
    /// Leaves all arrays as one on the member `root`.
    Reduce {
        /// The member's position.
        root: usize,
        /// The way in which arrays become one.
        reduction: Reduction,
    },
    /// Leaves each member one of as many equal parts of all arrays as one.
    ReduceScatter(Reduction),
    /// Leaves all arrays, one after the other, on each member.
    AllGather,
    /// Leaves the array of the member `root` on each.
    Broadcast {
        /// The member's position.
        root: usize,
    },
    /// Gives an array to another member.
    Send {
        /// The member's position.
        to: usize,
    },
    /// Leaves what another member sends.
    Receive {
        /// The member's position.
        from: usize,
    },
}

impl LibraryFunction {
    /// Its name in NCCL.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce(_) => "ncclAllReduce",
            Self::Reduce { .. } => "ncclReduce",
            Self::ReduceScatter(_) => "ncclReduceScatter",
            Self::AllGather => "ncclAllGather",
            Self::Broadcast { .. } => "ncclBroadcast",
            Self::Send { .. } => "ncclSend",
            Self::Receive { .. } => "ncclRecv",
        }
    }
}
