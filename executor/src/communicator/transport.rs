//! What carries messages.

use burn::tensor::backend::Backend;

use super::error::CommunicationError;
use super::tag::Tag;
use super::traffic::Traffic;
use crate::array::Array;

/// What one rank tells another.
#[derive(Clone, Debug)]
pub enum Message<B: Backend> {
    /// An array.
    Array(Array<B>),
    /// That it has come to a point. Counts no bytes.
    Signal,
}

impl<B: Backend> Message<B> {
    /// How many bytes it counts.
    pub fn num_bytes(&self) -> u64 {
        match self {
            Self::Array(array) => array.num_bytes(),
            Self::Signal => 0,
        }
    }
}

/// Messages from rank to rank, above which [`Collectives`](super::Collectives) are written.
pub trait Transport<B: Backend>: Send + Sync {
    /// Which rank this is.
    fn rank(&self) -> u32;

    /// How many ranks there are.
    fn num_ranks(&self) -> u32;

    /// Sends a message. Does not wait for the receiver, which may be this rank itself.
    ///
    /// # Errors
    ///
    /// The run was stopped, or the receiver has ended.
    fn deliver(&self, to: u32, tag: Tag, message: Message<B>) -> Result<(), CommunicationError>;

    /// The next message from a rank with a tag, its array on the device of this rank. Waits for it.
    ///
    /// # Errors
    ///
    /// The run was stopped, or the sender has ended.
    fn wait(&self, from: u32, tag: Tag) -> Result<Message<B>, CommunicationError>;

    /// What this rank has sent to others so far.
    fn traffic(&self) -> Traffic;

    /// Tells all ranks to stop. The first cause stays.
    fn stop(&self, cause: &str);
}
