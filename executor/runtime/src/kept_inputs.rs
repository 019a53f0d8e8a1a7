//! Inputs of a block for a micro-batch, saved from forward to a backward that recomputes the other activations.

use executor_communicators::CommunicationError;
use executor_kernels::ops::Kernels;
use ir::schedule::Action;

use crate::block::Value;

/// The inputs of a block from forward to backward, on the device or the host.
pub(crate) trait KeptInputs<B: Kernels>: Send {
    /// Waits until copies to the host are done.
    fn settle(&self) {}

    /// Starts to copy the inputs back to the device, unless that was done before.
    fn fetch(&mut self, _action: Action) {}

    /// The inputs, on the device.
    ///
    /// # Errors
    ///
    /// Errors of copying the inputs back.
    fn take(self: Box<Self>, action: Action) -> Result<Vec<Value<B>>, CommunicationError>;

    /// Bytes on the device, and on the host.
    fn num_bytes(&self) -> [u64; 2];
}

impl<B: Kernels> KeptInputs<B> for Vec<Value<B>> {
    fn take(self: Box<Self>, _action: Action) -> Result<Self, CommunicationError> {
        Ok(*self)
    }

    fn num_bytes(&self) -> [u64; 2] {
        [self.iter().map(Value::num_bytes).sum(), 0]
    }
}
