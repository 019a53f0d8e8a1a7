//! Model states of a pipeline rank.

use cost_models::states::{ModelStates, StateBytes};
use ir::graph::FrozenParameters;
use ir::layout::{Layout, ZeroStage};
use ir::units::Bytes;

use super::holdings::Holdings;

/// Model states of a rank's trained parameters, on the device or on the host.
pub(super) fn states(layout: &Layout, held: &Holdings, bytes: StateBytes) -> ModelStates {
    let zero = layout.zero_stage;
    let expert_shards = layout.mesh().expert_shards(layout.zero_shard);
    let [dense, expert] = [
        (held.parameters.dense, held.parameters.dense_shapes),
        (held.parameters.expert, held.parameters.expert_shapes),
    ]
    .map(|(parameters, shapes)| bytes.of(parameters, shapes));
    ModelStates::new(held.parameters.dense, zero, layout.zero_shard.into(), dense)
        + ModelStates::new(held.parameters.expert, zero, expert_shards.into(), expert)
}

/// Frozen weights of a rank.
pub(super) fn frozen_states(layout: &Layout, held: &Holdings) -> ModelStates {
    let expert_shards = layout.mesh().expert_shards(layout.zero_shard);
    let FrozenParameters { dense, expert, .. } = held.parameters.frozen;
    ModelStates::of_frozen(dense, layout.zero_stage, layout.zero_shard.into())
        + ModelStates::of_frozen(expert, layout.zero_stage, expert_shards.into())
}

/// Model states on a rank's device. Sharded gradients that are offloaded leave it as they are reduced: the gradients of
/// one block are copied while the next block is computed.
pub(super) fn on_device(layout: &Layout, held: &Holdings, bytes: StateBytes) -> ModelStates {
    let mut on_device = states(layout, held, bytes).on_device(layout.zero_stage, layout.offload);
    if layout.offload.optimizer && layout.zero_stage >= ZeroStage::Gradients {
        let block = Bytes::new(held.largest_block * bytes.gradient);
        on_device.gradients = block.shard(layout.zero_shard.into()) * 2;
    }
    on_device
}
