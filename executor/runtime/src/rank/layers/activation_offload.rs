//! Inputs of recomputed blocks, offloaded to the host until backward.

use std::sync::Arc;

use executor_kernels::ops::Kernels;
use ir::schedule::Action;

use crate::host::Host;
use crate::kept_inputs::KeptInputs;
use crate::offloaded::OffloadedInputs;
use crate::rank::{Layer, Rank, RunError};

struct ActivationOffload<B: Kernels>(Arc<Host<B>>);

/// The layer that offloads inputs to the host, where the layout offloads activations.
pub(super) fn layer<B: Kernels>(
    rank: &Rank<B>,
    host: Option<&Arc<Host<B>>>,
) -> Option<Box<dyn Layer<B>>> {
    let host = host.filter(|_| rank.env.layout.offload.activations.is_some())?;
    Some(Box::new(ActivationOffload(Arc::clone(host))))
}

impl<B: Kernels> Layer<B> for ActivationOffload<B> {
    fn keep(
        &self,
        inputs: Box<dyn KeptInputs<B>>,
        action: Action,
    ) -> Result<Box<dyn KeptInputs<B>>, RunError> {
        Ok(Box::new(OffloadedInputs::new(inputs.take(action)?, &self.0, action)))
    }
}
