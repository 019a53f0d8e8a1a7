//! Communicators: what the ranks of a run say to each other.
//!
//! [`Communicator`] is what a rank sees: messages to other ranks, and the collectives of a
//! [`Group`] of them. A [`Transport`] carries single messages, and [`Collectives`] makes a
//! communicator of any: the collectives are written once above it. [`local`] connects the threads
//! of a process; with the feature `mpi`, `mpi` connects processes. [`nccl`] leaves collectives to a
//! library, between processes that find each other by [`rendezvous`].
//!
//! Calls belong to a stream, as on the timeline. On one stream, all members of a group call in the
//! same order, one call after the other; different streams do not disturb each other, so that a
//! [`Queue`] for each of them communicates while its rank computes.

mod arriving;
mod collectives;
mod error;
mod group;
pub mod local;
mod mailbox;
#[cfg(feature = "mpi")]
pub mod mpi;
pub mod nccl;
mod queue;
pub mod rendezvous;
mod tag;
mod traffic;
mod transport;

use burn::tensor::backend::Backend;
use traces::timeline::Stream;

use crate::array::Array;

pub use arriving::{Arriving, Underway};
pub use collectives::Collectives;
pub use error::{Cause, CommunicationError, RankFailure};
pub use group::Group;
pub use queue::{Pending, Queue, Timed};
pub use tag::Tag;
pub use traffic::Traffic;
pub use transport::{Message, Transport};

/// How the arrays of a group become one, element by element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// Their product.
    Product,
    /// The largest.
    Max,
    /// The smallest.
    Min,
}

impl Reduction {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Sum, Self::Product, Self::Max, Self::Min];

    /// Two arrays as one, rounded to their element type.
    pub fn combine<B: Backend>(self, left: Array<B>, right: Array<B>) -> Array<B> {
        match self {
            Self::Sum => left + right,
            Self::Product => left * right,
            Self::Max => left.maximum(right),
            Self::Min => left.minimum(right),
        }
    }
}

/// What a rank sends to others and receives from them.
///
/// `S` in the volumes below is the size of the whole buffer, as `ir::collective` has it, and `n`
/// the size of the group. A group of one rank sends nothing. Reductions combine in the order of the
/// group, from its first rank to its last, so a result does not depend on how a buffer was cut, bit
/// for bit.
///
/// What starts with `start` does not wait for the device: see [`Arriving`]. What it is given must not be on its
/// way itself, but on the same stream.
///
/// A rank that calls a collective of a group to which it does not belong, or gives it another
/// number of parts than the group has ranks, is a bug, and panics.
///
/// # Errors
///
/// All calls: [`CommunicationError::Stopped`] once a rank has stopped the run,
/// [`CommunicationError::Gone`] if one that is needed has ended. Reductions:
/// [`CommunicationError::Mismatch`] if ranks give different arrays.
pub trait Communicator<B: Backend>: Send + Sync {
    /// Which rank this is.
    fn rank(&self) -> u32;

    /// How many ranks there are.
    fn num_ranks(&self) -> u32;

    /// Whether what is started goes on beside computation by itself, after all that was asked of computation before it.
    /// A thread of its own that starts it would so have it wait for more, by chance, and even for what comes of it.
    fn is_asynchronous(&self) -> bool {
        false
    }

    /// Says that a step begins: all ranks that send and receive within steps say so, once they have received all that
    /// the step before sent them. Under tags of messages, and of the context stream, every step sends the same number
    /// of arrays, of the same shapes and in the same order: one that does not is a bug, and panics.
    fn begin_step(&self) {}

    /// Sends an array to a rank. Does not wait for the receiver.
    ///
    /// # Errors
    ///
    /// See [`Communicator`].
    fn send(&self, to: u32, tag: Tag, array: Array<B>) -> Result<(), CommunicationError>;

    /// The next array that `from` has sent here with this tag. Waits for it.
    ///
    /// # Errors
    ///
    /// See [`Communicator`].
    fn receive(&self, from: u32, tag: Tag) -> Result<Array<B>, CommunicationError>;

    /// The array of rank `root`, which alone gives one.
    ///
    /// Goes down a binomial tree: the root sends `S` to at most `log2 n` ranks, rounded up, and all
    /// ranks together send `(n - 1) S`.
    ///
    /// # Errors
    ///
    /// See [`Communicator`].
    fn broadcast(
        &self,
        group: &Group,
        stream: Stream,
        root: u32,
        array: Option<Array<B>>,
    ) -> Result<Array<B>, CommunicationError>;

    /// On rank `root` all arrays as one, elsewhere none.
    ///
    /// A reduce-scatter, whose parts go to the root: the root sends `(n - 1) / n S`, each other
    /// rank `S`.
    ///
    /// # Errors
    ///
    /// See [`Communicator`].
    fn reduce(
        &self,
        group: &Group,
        stream: Stream,
        root: u32,
        array: Array<B>,
        reduction: Reduction,
    ) -> Result<Option<Array<B>>, CommunicationError>;

    /// All arrays as one, on each rank.
    ///
    /// A reduce-scatter and an all-gather of the array cut as evenly as its elements allow: each
    /// rank sends `2 (n - 1) / n S`.
    ///
    /// # Errors
    ///
    /// See [`Communicator`].
    fn all_reduce(
        &self,
        group: &Group,
        stream: Stream,
        array: Array<B>,
        reduction: Reduction,
    ) -> Result<Array<B>, CommunicationError>;

    /// On rank `root` the arrays of all, in the order of the group, elsewhere none. Sizes may
    /// differ.
    ///
    /// Each rank but the root sends its array to the root: `S / n`.
    ///
    /// # Errors
    ///
    /// See [`Communicator`].
    fn gather(
        &self,
        group: &Group,
        stream: Stream,
        root: u32,
        array: Array<B>,
    ) -> Result<Option<Vec<Array<B>>>, CommunicationError>;

    /// The arrays of all, in the order of the group. Sizes may differ.
    ///
    /// Each rank sends its array to each other: `(n - 1) / n S`.
    ///
    /// # Errors
    ///
    /// See [`Communicator`].
    fn all_gather(
        &self,
        group: &Group,
        stream: Stream,
        array: Array<B>,
    ) -> Result<Vec<Array<B>>, CommunicationError>;

    /// Starts what leaves the arrays of all, joined along a dimension. They are of one shape.
    ///
    /// As [`Self::all_gather`].
    ///
    /// # Errors
    ///
    /// See [`Communicator`].
    fn start_all_gather_along(
        &self,
        group: &Group,
        stream: Stream,
        array: Array<B>,
        dim: usize,
    ) -> Result<Arriving<Array<B>>, CommunicationError> {
        let arrays = self.all_gather(group, stream, array)?;
        let is_like_first = |other: &Array<B>| other.shape() == arrays[0].shape();
        debug_assert!(arrays.iter().all(is_like_first), "arrays of one shape are joined");
        Ok(Arriving::here(Array::concat(arrays, dim)))
    }

    /// Starts what leaves this rank's part along a dimension, which is cut evenly, of the arrays of all as one. They are
    /// of one shape.
    ///
    /// As [`Self::reduce_scatter`].
    ///
    /// # Errors
    ///
    /// See [`Communicator`].
    fn start_reduce_scatter_along(
        &self,
        group: &Group,
        stream: Stream,
        array: Array<B>,
        dim: usize,
        reduction: Reduction,
    ) -> Result<Arriving<Array<B>>, CommunicationError> {
        let part = array.size(dim) / group.len();
        let parts = array.split(dim, &vec![part; group.len()]);
        Ok(Arriving::here(self.reduce_scatter(group, stream, parts, reduction)?))
    }

    /// Starts what leaves the arrays of all, flat and one after the other in the order of the group. They are
    /// equally large and of one type.
    ///
    /// Each rank sends its array to each other: `(n - 1) / n S`.
    ///
    /// # Errors
    ///
    /// See [`Communicator`].
    fn start_all_gather(
        &self,
        group: &Group,
        stream: Stream,
        array: Array<B>,
    ) -> Result<Arriving<Array<B>>, CommunicationError> {
        let arrays = self.all_gather(group, stream, array.flatten())?;
        Ok(Arriving::here(Array::concat(arrays, 0)))
    }

    /// Starts what leaves this rank's part, flat, of the arrays of all as one. They are equally large, of one type,
    /// and as many equal parts as there are ranks.
    ///
    /// Each rank sends each part to the rank where it is combined: `(n - 1) / n S`.
    ///
    /// # Errors
    ///
    /// See [`Communicator`].
    fn start_reduce_scatter(
        &self,
        group: &Group,
        stream: Stream,
        array: Array<B>,
        reduction: Reduction,
    ) -> Result<Arriving<Array<B>>, CommunicationError> {
        let part = array.num_elements() / group.len();
        let parts = array.flatten().split(0, &vec![part; group.len()]);
        Ok(Arriving::here(self.reduce_scatter(group, stream, parts, reduction)?))
    }

    /// Starts what leaves all arrays as one, on each rank.
    ///
    /// As [`Self::all_reduce`].
    ///
    /// # Errors
    ///
    /// See [`Communicator`].
    fn start_all_reduce(
        &self,
        group: &Group,
        stream: Stream,
        array: Array<B>,
        reduction: Reduction,
    ) -> Result<Arriving<Array<B>>, CommunicationError> {
        Ok(Arriving::here(self.all_reduce(group, stream, array, reduction)?))
    }

    /// The rank's own of the parts that `root`, which alone gives them, has for each rank in the
    /// order of the group. Sizes may differ.
    ///
    /// The root sends `(n - 1) / n S`.
    ///
    /// # Errors
    ///
    /// See [`Communicator`].
    fn scatter(
        &self,
        group: &Group,
        stream: Stream,
        root: u32,
        parts: Option<Vec<Array<B>>>,
    ) -> Result<Array<B>, CommunicationError>;

    /// The `i`-th parts of all ranks as one, on the group's `i`-th rank. Sizes of a rank's parts
    /// may differ.
    ///
    /// Each rank sends each part to the rank where it is combined: `(n - 1) / n S`.
    ///
    /// # Errors
    ///
    /// See [`Communicator`].
    fn reduce_scatter(
        &self,
        group: &Group,
        stream: Stream,
        parts: Vec<Array<B>>,
        reduction: Reduction,
    ) -> Result<Array<B>, CommunicationError>;

    /// What each rank of the group has for this one, in the order of the group, if this one has
    /// `parts[i]` for the `i`-th. Sizes may differ and be zero.
    ///
    /// Each rank sends each part to its rank: `(n - 1) / n S`.
    ///
    /// # Errors
    ///
    /// See [`Communicator`].
    fn all_to_all(
        &self,
        group: &Group,
        stream: Stream,
        parts: Vec<Array<B>>,
    ) -> Result<Vec<Array<B>>, CommunicationError>;

    /// What [`Self::all_gather`] leaves, where this rank knows of what shape the array of each rank is: nobody needs to
    /// be asked. All are of one element type.
    ///
    /// # Errors
    ///
    /// See [`Communicator`].
    fn all_gather_shaped(
        &self,
        group: &Group,
        stream: Stream,
        array: Array<B>,
        shapes: &[Vec<usize>],
    ) -> Result<Vec<Array<B>>, CommunicationError> {
        let arrays = self.all_gather(group, stream, array)?;
        debug_assert!(
            arrays.iter().map(Array::shape).eq(shapes.iter().cloned()),
            "shapes are known"
        );
        Ok(arrays)
    }

    /// What [`Self::all_to_all`] leaves, where this rank knows of what shape the part is that each rank has for it:
    /// nobody needs to be asked. All are of one element type.
    ///
    /// # Errors
    ///
    /// See [`Communicator`].
    fn all_to_all_shaped(
        &self,
        group: &Group,
        stream: Stream,
        parts: Vec<Array<B>>,
        shapes: &[Vec<usize>],
    ) -> Result<Vec<Array<B>>, CommunicationError> {
        let came = self.all_to_all(group, stream, parts)?;
        debug_assert!(came.iter().map(Array::shape).eq(shapes.iter().cloned()), "shapes are known");
        Ok(came)
    }

    /// Waits until all ranks of the group have come here. Sends no bytes.
    ///
    /// # Errors
    ///
    /// See [`Communicator`].
    fn barrier(&self, group: &Group, stream: Stream) -> Result<(), CommunicationError>;

    /// What this rank has sent so far.
    fn traffic(&self) -> Traffic;

    /// Tells all ranks to stop: each waiting or later call fails with
    /// [`CommunicationError::Stopped`]. The first cause stays.
    fn stop(&self, cause: &str);
}
