//! Inputs of a block for a micro-batch, offloaded to the host from forward to backward.

use std::sync::Arc;

use executor_communicators::{CommunicationError, JobHandle};
use executor_kernels::array::Array;
use executor_kernels::ops::Kernels;
use ir::schedule::Action;

use crate::block::Value;
use crate::host::{Host, HostArray};
use crate::kept_inputs::KeptInputs;

/// Offloaded inputs of a block for a micro-batch, with their copies in flight.
pub(crate) struct OffloadedInputs<B: Kernels> {
    host: Arc<Host<B>>,
    copies: Copies<B>,
    /// Bytes of all inputs.
    num_bytes: u64,
}

/// Copies by input; none for tokens, which are on the host anyway.
enum Copies<B: Kernels> {
    ToHost(Vec<Option<JobHandle<HostArray>>>),
    Back(JobHandle<Vec<Option<Array<B>>>>),
}

impl<B: Kernels> OffloadedInputs<B> {
    /// Starts to copy inputs to the host.
    pub(crate) fn new(inputs: Vec<Value<B>>, host: &Arc<Host<B>>, action: Action) -> Self {
        let num_bytes = inputs.iter().map(Value::num_bytes).sum();
        let copy = |input: Value<B>| match input {
            Value::Tokens => None,
            input => Some(host.to_host(input.array(), action)),
        };
        let copies = Copies::ToHost(inputs.into_iter().map(copy).collect());
        Self { host: Arc::clone(host), copies, num_bytes }
    }
}

impl<B: Kernels> KeptInputs<B> for OffloadedInputs<B> {
    fn settle(&self) {
        if let Copies::ToHost(copies) = &self.copies {
            copies.iter().flatten().for_each(JobHandle::settle);
        }
    }

    fn fetch(&mut self, action: Action) {
        if let Copies::ToHost(copies) = &mut self.copies {
            let copies = std::mem::take(copies);
            self.copies = Copies::Back(self.host.bring_back(copies, action));
        }
    }

    fn take(mut self: Box<Self>, action: Action) -> Result<Vec<Value<B>>, CommunicationError> {
        self.fetch(action);
        let Copies::Back(arrays) = self.copies else { unreachable!("they were fetched") };
        let value = |array: Option<Array<B>>| array.map_or(Value::Tokens, Value::Array);
        Ok(arrays.wait()?.into_iter().map(value).collect())
    }

    fn num_bytes(&self) -> [u64; 2] {
        match &self.copies {
            Copies::ToHost(copies) if copies.iter().flatten().all(JobHandle::is_done) => {
                [0, self.num_bytes]
            }
            _ => [self.num_bytes, self.num_bytes],
        }
    }
}
