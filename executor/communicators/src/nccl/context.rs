//! A rank's connection, library and device.

use std::sync::Arc;

use burn::tensor::backend::Backend;
use executor_kernels::array::Array;
use traces::timeline::Stream;

use super::engine::{Engine, LibraryCommunicator, Membership};
use crate::ArraySpec;
use crate::error::Result;
use crate::rendezvous::{Channel, Connection};

/// A rank's connection, library and device.
pub(super) struct Context<B: Backend> {
    pub(super) connection: Arc<Connection>,
    pub(super) engine: Arc<dyn Engine<B>>,
    pub(super) device: B::Device,
}

impl<B: Backend> Context<B> {
    /// Joins the library's communicator of `ranks`, whose first rank sends the identifier to the others on `channel`.
    pub(super) fn join(
        &self,
        ranks: &[u32],
        channel: Channel,
        stream: Option<Stream>,
    ) -> Result<Box<dyn LibraryCommunicator<B>>> {
        let position = ranks.iter().position(|rank| *rank == self.connection.rank());
        let position = position.expect("a rank joins communicators of its own");
        let id = if position == 0 {
            let id = self.engine.new_id()?;
            for other in &ranks[1..] {
                self.connection.send(*other, channel, id.clone())?;
            }
            id
        } else {
            self.connection.receive(ranks[0], channel)?
        };
        let membership = Membership { position, ranks: ranks.to_vec(), stream };
        self.engine.join(&id, membership, Arc::clone(&self.connection))
    }

    /// An array without elements.
    pub(super) fn empty(&self, spec: &ArraySpec) -> Array<B> {
        Array::zeros_of(&spec.shape, spec.element, &self.device)
    }
}
