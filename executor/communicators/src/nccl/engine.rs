//! Interface of a library of collectives.

use std::sync::Arc;

use burn::tensor::backend::Backend;
use executor_kernels::array::Array;
use executor_kernels::clock::Point;
use traces::timeline::Stream;

use crate::error::Result;
use crate::rendezvous::Connection;
use crate::{ArraySpec, InFlight, Reduction};

/// The members of a communicator of the library, for its errors.
#[derive(Clone, Debug)]
pub struct Membership {
    /// Position of this rank among them.
    pub position: usize,
    /// Ranks of the communicator.
    pub ranks: Vec<u32>,
    /// The stream of the members' collectives; none where one of two ranks sends to the other.
    pub stream: Option<Stream>,
}

/// A library of collectives, such as NCCL.
pub trait Engine<B: Backend>: Send + Sync {
    /// The identifier of a new communicator, which its first member sends to the others.
    ///
    /// # Errors
    ///
    /// Failures of the library.
    fn new_id(&self) -> Result<Vec<u8>>;

    /// Joins a communicator. Waits for all of its members. Calls of communicators of one stream run one after the
    /// other. While the library waits for other ranks, it checks through `run` whether one of them has stopped the run.
    /// The library may also stop the run itself.
    ///
    /// # Errors
    ///
    /// Failures of the library and of `run`.
    fn join(
        &self,
        id: &[u8],
        membership: Membership,
        run: Arc<Connection>,
    ) -> Result<Box<dyn LibraryCommunicator<B>>>;

    /// [`Communicator::is_asynchronous`](crate::Communicator::is_asynchronous).
    fn is_asynchronous(&self) -> bool {
        false
    }

    /// An array in the form that the library reads, and the point of computation after which the array has been
    /// written. A thread that sends it later must not wait for later computation, which may need the receiver's answer.
    ///
    /// # Errors
    ///
    /// Failures of the device.
    fn marked(&self, array: Array<B>) -> Result<(Array<B>, Option<Point>)> {
        Ok((array, None))
    }

    /// Waits until all started calls have ended.
    ///
    /// # Errors
    ///
    /// Failures of the library and of the run.
    fn finish(&self) -> Result<()> {
        Ok(())
    }

    /// Releases all communicators. It is called once all ranks have finished or the run was stopped, and waits for no
    /// rank.
    fn close(&self) {}
}

/// A communicator of the library: ranks that call it together. Members are identified by their positions.
pub trait LibraryCommunicator<B: Backend>: Send {
    /// Starts calls together, as all members do, and returns the results of the calls that have one on this member.
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
    /// The spec of the call's result on this member; none where it only sends.
    pub result: Option<ArraySpec>,
    /// Number of equal pieces of array and result. The pieces are consecutive, and each is a separate call.
    pub pieces: usize,
    /// Point of computation after which the array is read; if none, all computation before the call.
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
    /// Returns the reduction of all arrays on each member.
    AllReduce(Reduction),
    /// Returns the reduction of all arrays on the member `root`.
    Reduce {
        /// The member's position.
        root: usize,
        /// Reduction of the arrays.
        reduction: Reduction,
    },
    /// Cuts the reduction of all arrays into one equal part for each member, and returns each member its part.
    ReduceScatter(Reduction),
    /// Returns all arrays, one after the other, on each member.
    AllGather,
    /// Returns the array of the member `root` on each member.
    Broadcast {
        /// The member's position.
        root: usize,
    },
    /// Sends an array to another member.
    Send {
        /// The member's position.
        to: usize,
    },
    /// Returns the array that another member sends.
    Receive {
        /// The member's position.
        from: usize,
    },
}

impl LibraryFunction {
    /// The function's name in NCCL.
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
