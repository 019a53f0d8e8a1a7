//! Offload to the host: its bytes, and the copies between host and device.

use cost_models::states::StateBytes;
use ir::collective::Collective;
use ir::units::{Bytes, Nanos};
use simulator::{HostCopy, Transfer};

use super::holdings::Holdings;
use super::replicas::{Replicas, host};
use super::states::{frozen_states, states};

impl Replicas<'_> {
    /// Parameters of a stage that are copied to the device for each use, in bytes.
    pub(super) fn offloaded_parameters(&self, held: &Holdings) -> Bytes {
        if !self.layout.offload.parameters {
            return Bytes::ZERO;
        }
        self.read_from_host(held) + frozen_states(self.layout, held).parameters
    }

    /// Shards of parameters on the host: copies in the precision of kernels, or the master weights.
    fn read_from_host(&self, held: &Holdings) -> Bytes {
        let shard = if self.bytes.shard == 0 { 4 } else { self.bytes.shard };
        states(self.layout, held, StateBytes { shard, ..self.bytes }).parameters
    }

    /// Gradients of a stage that are copied to the host as they are reduced, in bytes: those of the parameters that
    /// this rank updates.
    pub(super) fn offloaded_gradients(&self, held: &Holdings) -> Bytes {
        let is_offloaded = self.layout.offload.optimizer;
        let owned = if is_offloaded { self.owned(held) } else { 0 };
        Bytes::new(owned * self.bytes.gradient)
    }

    /// Parameters that the host has updated and the device needs, in bytes.
    pub(super) fn updated_by_host(&self, held: &Holdings) -> Bytes {
        let is_kept = self.layout.offload.parameters;
        let owned = if is_kept { 0 } else { self.owned(held) };
        Bytes::new(owned * self.bytes.parameter)
    }

    /// Adds `bytes` to copy from the host before a transfer; the copy alone where there is no transfer.
    pub(super) fn after_copy(&self, transfer: Option<Transfer>, bytes: Bytes) -> Option<Transfer> {
        if bytes == Bytes::ZERO {
            return transfer;
        }
        let mut transfer = transfer.unwrap_or(NO_TRANSFER);
        transfer.from_host = self.copied(transfer.from_host.bytes + bytes);
        Some(transfer)
    }

    /// Adds `bytes` to copy to the host after a transfer; the copy alone where there is no transfer.
    pub(super) fn before_copy(&self, transfer: Option<Transfer>, bytes: Bytes) -> Option<Transfer> {
        if bytes == Bytes::ZERO {
            return transfer;
        }
        let to_host = self.copied(bytes);
        Some(Transfer { to_host, ..transfer.unwrap_or(NO_TRANSFER) })
    }

    /// Memory of a rank on its host, in bytes, with the activations of all micro-batches in flight.
    pub(super) fn on_host(&self, held: &Holdings, num_micro_batches: impl Fn() -> u64) -> Bytes {
        let Self { layout, bytes, .. } = *self;
        let mut on_host = Bytes::ZERO;
        if layout.offload.optimizer {
            // On the host, gradients have the format of the update.
            let of_update = self.hardware.framework.memory.update_bytes;
            let gradient = (self.bytes.gradient as f64).max(of_update);
            let each = held.mean_bytes(self.bytes).on_host() + gradient;
            on_host += Bytes::from_f64(self.owned(held) as f64 * each);
        }
        if layout.offload.parameters {
            // Where the device computes in full precision, the host's master weights are the weights that it reads.
            let has_copies = bytes.has_master && bytes.shard > 0;
            on_host += if has_copies { self.read_from_host(held) } else { Bytes::ZERO };
            on_host += frozen_states(layout, held).parameters;
        }
        let activations = held.offloaded(layout.offload).shard(layout.virtual_stages.into());
        if activations > Bytes::ZERO {
            on_host += activations * num_micro_batches();
        }
        on_host
    }

    fn copied(&self, bytes: Bytes) -> HostCopy {
        HostCopy { time: host(self.hardware).copy(bytes).into(), bytes }
    }
}

/// No transfer over replicas.
const NO_TRANSFER: Transfer = Transfer::new(Collective::SendReceive, Nanos::ZERO, Bytes::ZERO);
