//! Inputs of blocks that lie on the host from forward to backward.

use executor_kernels::ops::Kernels;
use ir::schedule::{Action, ActionKind};

use super::{KeptState, Rank, RunError};
use crate::block::Value;
use crate::offloaded::OffloadedInputs;

impl<B: Kernels> Rank<B> {
    /// What is kept of a block that will be computed again; on the host, where that is the plan.
    pub(super) fn kept_inputs(&self, inputs: Vec<Value<B>>, action: Action) -> KeptState<B> {
        match &self.host {
            Some(host) if self.env.layout.offload.activations.is_some() => {
                KeptState::Offloaded(OffloadedInputs::new(inputs, host, action))
            }
            _ => KeptState::Inputs(inputs),
        }
    }

    /// Starts to bring back what is kept of a block, if it is on the host.
    pub(super) fn fetch_ahead(&self, kept: &mut KeptState<B>, (stage, micro_batch): (u32, u32)) {
        if let (KeptState::Offloaded(inputs), Some(host)) = (kept, &self.host) {
            inputs.fetch(host, Action { stage, kind: ActionKind::Backward, micro_batch });
        }
    }

    /// The inputs of a block that is to be computed again; none where what backward needs is there.
    pub(super) fn inputs_again(
        &self,
        kept: &mut KeptState<B>,
        (stage, micro_batch): (u32, u32),
    ) -> Result<Option<Vec<Value<B>>>, RunError> {
        if matches!(kept, KeptState::Tensors(_)) {
            return Ok(None);
        }
        match std::mem::replace(kept, KeptState::Inputs(Vec::new())) {
            KeptState::Offloaded(inputs) => {
                let host = self.host.as_ref().expect("what is on the host has one");
                let action = Action { stage, kind: ActionKind::Backward, micro_batch };
                Ok(Some(inputs.take(host, action)?))
            }
            KeptState::Inputs(inputs) => Ok(Some(inputs)),
            KeptState::Tensors(_) => unreachable!("these are not taken"),
        }
    }
}
