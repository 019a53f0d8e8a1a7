//! What the library that moves arrays is asked to do.

use std::sync::Arc;

use burn::tensor::DType;
use burn::tensor::backend::Backend;
use traces::timeline::Stream;

use crate::array::Array;
use crate::clock::Point;
use crate::communicator::rendezvous::Line;
use crate::communicator::{Arriving, CommunicationError, Reduction};

/// What a library is told of the run that it works for, and may tell.
pub trait Watch: Send + Sync {
    /// Fails once a rank has stopped the run. Asked by those who wait for others.
    ///
    /// # Errors
    ///
    /// What stopped it.
    fn check(&self) -> Result<(), CommunicationError>;

    /// Tells all ranks to stop. The first cause stays.
    fn stop(&self, cause: &str);
}

impl Watch for Line {
    fn check(&self) -> Result<(), CommunicationError> {
        Self::check(self)
    }

    fn stop(&self, cause: &str) {
        Self::stop(self, cause);
    }
}

/// Members of a clique, as its errors name it.
#[derive(Clone, Debug)]
pub struct Membership {
    /// Which of them this is.
    pub position: usize,
    /// Their ranks.
    pub ranks: Vec<u32>,
    /// The stream that their collectives are of; none where one of two sends to the other.
    pub stream: Option<Stream>,
}

/// A library of collectives, such as NCCL.
pub trait Engine<B: Backend>: Send + Sync {
    /// What a new clique is known by, which its first member tells the others.
    ///
    /// # Errors
    ///
    /// Those of the library.
    fn new_clique(&self) -> Result<Vec<u8>, CommunicationError>;

    /// Joins a clique. Waits for all of its members. What cliques of one stream start goes on one after the other.
    ///
    /// # Errors
    ///
    /// Those of the library, and what `watch` fails with.
    fn join(
        &self,
        id: &[u8],
        membership: Membership,
        watch: Arc<dyn Watch>,
    ) -> Result<Box<dyn Clique<B>>, CommunicationError>;

    /// [`Communicator::is_asynchronous`](crate::communicator::Communicator::is_asynchronous).
    fn is_asynchronous(&self) -> bool {
        false
    }

    /// An array as the library reads it, with how far the device has to compute before. A thread that sends it later
    /// must not wait for what is computed by then: that may be behind what the receiver sends in answer.
    ///
    /// # Errors
    ///
    /// Those of the device.
    fn marked(&self, array: Array<B>) -> Result<(Array<B>, Option<Point>), CommunicationError> {
        Ok((array, None))
    }

    /// Waits until all that was started has ended.
    ///
    /// # Errors
    ///
    /// Those of the library, and what a watch fails with.
    fn finish(&self) -> Result<(), CommunicationError> {
        Ok(())
    }

    /// Gives back what cliques hold, once all ranks have finished or the run was stopped: nobody is waited for.
    fn close(&self) {}
}

/// A member of a group of ranks that call the library together. Members are named by their
/// positions.
pub trait Clique<B: Backend>: Send {
    /// Starts calls at once, as all members do. Each that leaves something here gives it.
    ///
    /// # Errors
    ///
    /// Those of the library, and what the member's watch fails with.
    fn call(
        &mut self,
        calls: Vec<Call<B>>,
    ) -> Result<Arriving<Vec<Option<Array<B>>>>, CommunicationError>;
}

/// A call to the library. Arrays are not empty.
#[derive(Clone, Debug)]
pub enum Call<B: Backend> {
    /// Leaves all arrays as one on each member.
    AllReduce {
        /// The member's.
        array: Array<B>,
        /// How they become one.
        reduction: Reduction,
    },
    /// Leaves all arrays as one on one member.
    Reduce {
        /// That member.
        root: usize,
        /// The member's.
        array: Array<B>,
        /// How they become one.
        reduction: Reduction,
    },
    /// Leaves the member's own part, flat, of all arrays as one.
    ReduceScatter {
        /// As many equal parts as there are members, flat.
        array: Array<B>,
        /// Equal pieces of the array, one after the other, that are scattered each by itself; so are those of the
        /// result.
        pieces: usize,
        /// How they become one.
        reduction: Reduction,
    },
    /// Leaves all arrays, flat, one after the other.
    AllGather {
        /// The member's, as large as all others.
        array: Array<B>,
        /// Equal pieces of the array, one after the other, that are gathered each by itself; so are those of the result.
        pieces: usize,
    },
    /// Leaves the array of one member on each.
    Broadcast {
        /// That member.
        root: usize,
        /// What it gives.
        form: Form,
        /// On the root, what it gives.
        array: Option<Array<B>>,
    },
    /// Gives an array to another member, and leaves nothing.
    Send {
        /// That member.
        to: usize,
        /// The array.
        array: Array<B>,
        /// How far the device has to compute before it is read; what is computed by the call if none.
        after: Option<Point>,
    },
    /// Leaves what another member sends.
    Receive {
        /// That member.
        from: usize,
        /// What it sends.
        form: Form,
    },
}

/// What must be known of an array before it comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// What its elements are.
    pub element: DType,
    /// Sizes of its dimensions.
    pub shape: Vec<usize>,
}

impl Form {
    /// That of an array.
    pub fn of<B: Backend>(array: &Array<B>) -> Self {
        Self { element: array.dtype(), shape: array.shape() }
    }

    /// How many elements it has.
    pub fn num_elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// How many bytes its elements take.
    pub fn num_bytes(&self) -> u64 {
        (self.num_elements() * self.element.size()) as u64
    }
}
