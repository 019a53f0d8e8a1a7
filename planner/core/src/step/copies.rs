//! Copies into and out of the buffers that replicas exchange.

use cost_models::block::KernelSequence;
use ir::collective::Collective;
use ir::framework::ExchangeBuffers;
use ir::units::{Bytes, Flops, Nanos};
use simulator::{PassPart, PassParts};

use super::work::Builder;

impl Builder<'_> {
    /// Kernels before and after each run of a pass, which copy gathered parameters out of the buffers of its transfers,
    /// and gradients into them.
    pub(super) fn copies(&self, stage: usize, pass: &[PassPart]) -> [KernelSequence; 2] {
        let mut begun = pass.iter().filter_map(|part| match part {
            PassPart::Start(transfer) => Some(transfer.collective),
            PassPart::WaitFor(_) => Some(Collective::AllGather),
            _ => None,
        });
        let gathers = begun.clone().any(|it| it == Collective::AllGather);
        let reduction =
            begun.find(|it| matches!(it, Collective::AllReduce | Collective::ReduceScatter));
        let replicas = self.replicas_with(stage);
        let holdings = &self.assignment.stages[stage].holdings;
        let collectives = [gathers.then_some(Collective::AllGather), reduction];
        collectives.map(|collective| {
            let touched = collective.map_or(Bytes::ZERO, |it| replicas.buffer_copies(it, holdings));
            let touched = touched.shard(self.buckets(stage));
            let device = &replicas.hardware.device;
            let time = device.training_memory_bound(replicas.precision, touched);
            KernelSequence { time: time.into(), flops: Flops::default(), touched }
        })
    }

    /// Adds these kernels to the runs of a pass.
    pub(super) fn add_copies(&self, stage: usize, pass: &mut PassParts) {
        if self.framework().parameters.buffers == ExchangeBuffers::InPlace {
            return;
        }
        let copies: Nanos = self.copies(stage, pass).map(|kernels| kernels.time).into_iter().sum();
        for part in pass {
            if let PassPart::Run(run) = part {
                run.time += copies;
                run.kernels += copies;
            }
        }
    }
}
