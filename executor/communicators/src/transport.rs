//! Transports, which carry single messages.

use burn::tensor::backend::Backend;
use executor_kernels::array::Array;

use super::error::Result;
use super::tag::Tag;

/// A message from one rank to another.
#[derive(Clone, Debug)]
pub enum Message<B: Backend> {
    /// An array.
    Array(Array<B>),
    /// A signal of a barrier. Counts no bytes.
    Signal,
}

impl<B: Backend> Message<B> {
    /// Bytes that count as traffic.
    pub fn num_bytes(&self) -> u64 {
        match self {
            Self::Array(array) => array.num_bytes(),
            Self::Signal => 0,
        }
    }
}

/// Messages from rank to rank, on which [`MessagePassing`](super::MessagePassing) is built.
pub trait Transport<B: Backend>: Send + Sync {
    /// Sends a message. Does not wait for the receiver, which may be this rank itself.
    ///
    /// # Errors
    ///
    /// The run was stopped, or the receiver has ended.
    fn deliver(&self, to: u32, tag: Tag, message: Message<B>) -> Result<()>;

    /// The next message from a rank with a tag, its array on the device of this rank. Waits for it.
    ///
    /// # Errors
    ///
    /// The run was stopped, or the sender has ended.
    fn wait(&self, from: u32, tag: Tag) -> Result<Message<B>>;

    /// Stops all ranks. The first cause is kept.
    fn stop(&self, cause: &str);
}
