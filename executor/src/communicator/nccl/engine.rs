//! What the library that moves arrays is asked to do.

use std::sync::Arc;

use burn::tensor::DType;
use burn::tensor::backend::Backend;

use crate::array::Array;
use crate::communicator::{CommunicationError, Reduction};

/// Fails once a rank has stopped the run. Asked by those who wait for others.
pub type Watch = Arc<dyn Fn() -> Result<(), CommunicationError> + Send + Sync>;

/// A library of collectives, such as NCCL.
pub trait Engine<B: Backend>: Send + Sync {
    /// What a new clique is known by, which its first member tells the others.
    ///
    /// # Errors
    ///
    /// Those of the library.
    fn new_clique(&self) -> Result<Vec<u8>, CommunicationError>;

    /// Joins a clique of `len` members as the one at `position`. Waits for all of them.
    ///
    /// # Errors
    ///
    /// Those of the library, and what `watch` fails with.
    fn join(
        &self,
        id: &[u8],
        position: usize,
        len: usize,
        watch: Watch,
    ) -> Result<Box<dyn Clique<B>>, CommunicationError>;
}

/// A member of a group of ranks that call the library together. Members are named by their
/// positions.
pub trait Clique<B: Backend>: Send {
    /// Makes calls at once, as all members do, and waits for them. Each that leaves something here
    /// gives it.
    ///
    /// # Errors
    ///
    /// Those of the library, and what the member's watch fails with.
    fn call(&mut self, calls: Vec<Call<B>>) -> Result<Vec<Option<Array<B>>>, CommunicationError>;
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
        /// How they become one.
        reduction: Reduction,
    },
    /// Leaves all arrays, flat, one after the other.
    AllGather {
        /// The member's, as large as all others.
        array: Array<B>,
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
