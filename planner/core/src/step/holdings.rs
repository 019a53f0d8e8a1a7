//! Parameters and activations that ranks hold.

use std::ops::Range;

use cost_models::states::StateBytes;
use ir::graph::{BlockRecompute, LocalParameters, Recompute};
use ir::layout::Offload;
use ir::units::Bytes;

use super::chain::ChainIndex;
use super::shape::Shape;

/// Parameters and activations that a stage holds for its blocks, or a pipeline rank for its stages.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Holdings {
    /// Parameters of all blocks. Their `tied` counts only parameters that are tied to a block of another rank.
    pub parameters: LocalParameters,
    /// Number of parameters of the largest block.
    pub largest_block: u64,
    /// Bytes of frozen parameters of the block that has most of them.
    pub largest_frozen_block: Bytes,
    /// Bytes of the compressed gradients of all blocks, if gradients are compressed.
    pub compressed: Bytes,
    /// The largest quantised weight, dequantised for a matrix product.
    pub dequantised: Bytes,
    /// Activations saved for backward of one micro-batch, without the chain's last block.
    pub saved: Bytes,
    /// Activations saved by the chain's last block, if it is here.
    pub saved_by_last: Bytes,
    /// Part of `saved` that can be offloaded to the host: the activations of all blocks except the ends of the chain,
    /// or those that the chosen modules save.
    pub offloadable: Bytes,
    /// Number of blocks with offloadable activations.
    pub num_offloadable: u32,
    /// Number of stages with these blocks.
    pub num_stages: u32,
    /// The most offloadable activations of one block.
    pub largest_offloadable: Bytes,
    /// The most activations of one block that exist only while it is recomputed.
    pub recompute_working_set: Bytes,
    /// The most memory of gradients within a block's backward, but for the chain's last block.
    pub gradients: Bytes,
    /// The same for the chain's last block, if it is here.
    pub gradients_of_last: Bytes,
    /// Elements of the largest weight whose gradient one matrix product computes.
    pub largest_weight: u64,
    /// The largest message of any stage.
    pub message: Bytes,
    /// Number of blocks.
    pub num_blocks: u32,
}

impl Holdings {
    /// Activations on the device, saved for backward of one micro-batch.
    pub fn kept(&self, offload: Offload) -> Bytes {
        self.kept_before_last(offload) + self.saved_by_last
    }

    /// [`Self::kept`] without the chain's last block.
    pub fn kept_before_last(&self, offload: Offload) -> Bytes {
        self.saved - self.offloaded(offload)
    }

    /// Activations on the host, saved for backward of one micro-batch: offloaded blocks times their mean size.
    pub fn offloaded(&self, offload: Offload) -> Bytes {
        let all = self.num_offloadable;
        let blocks = offload.activations.of_blocks(all, self.num_stages);
        (self.offloadable * u64::from(blocks)).shard(u64::from(all.max(1)))
    }

    /// Adds the blocks of a range.
    pub fn add_blocks(
        &mut self,
        chain: &ChainIndex,
        shape: &Shape,
        recompute: Recompute,
        range: Range<usize>,
    ) {
        self.num_stages = 1;
        let first = range.start;
        for (policy, range) in chain.by_policy(recompute, range) {
            // No earlier block of the stage saves the input of the first block.
            if range.start == first && first > 0 && policy == BlockRecompute::None {
                self.saved += shape.blocks[chain.class_at(first)].shared;
            }
            self.add_alike(chain, shape, policy, range);
        }
    }

    /// Adds blocks with the same recompute policy.
    fn add_alike(
        &mut self,
        chain: &ChainIndex,
        shape: &Shape,
        policy: BlockRecompute,
        range: Range<usize>,
    ) {
        for (class, block) in shape.blocks.iter().enumerate() {
            let count = chain.count(class, &range);
            if count == 0 {
                continue;
            }
            self.parameters.add_times(&block.parameters, count.into());
            self.largest_block = self.largest_block.max(block.parameters.trained());
            let frozen = block.parameters.frozen;
            self.largest_frozen_block = self.largest_frozen_block.max(frozen.dense + frozen.expert);
            self.dequantised = self.dequantised.max(block.dequantised);
            let saved = block.saved[policy];
            let is_last = range.end == chain.num_blocks() && class == chain.last_class();
            self.saved += saved * u64::from(count - u32::from(is_last));
            if is_last {
                self.saved_by_last = saved;
            }
            if !chain.is_end(class) {
                let offloadable = block.offloadable[policy];
                self.offloadable += offloadable * u64::from(count);
                self.num_offloadable += count;
                self.largest_offloadable = self.largest_offloadable.max(offloadable);
            }
            let dropped = block.saved[BlockRecompute::None].saturating_sub(saved);
            self.recompute_working_set = self.recompute_working_set.max(dropped);
            if is_last {
                self.gradients_of_last = block.gradients;
            } else {
                self.gradients = self.gradients.max(block.gradients);
            }
            self.largest_weight = self.largest_weight.max(block.largest_weight);
            self.num_blocks += count;
        }
    }

    /// Memory of backward in addition to what forward saved: gradients of activations or of a weight, of `element`
    /// bytes each, and the activations of a block that is recomputed. The chain's last block goes first. It has freed
    /// its activations before the activations of other blocks are recomputed, also of blocks on other stages of the
    /// rank.
    pub fn in_backward(&self, element: u64) -> Bytes {
        let gradients = self.gradients.max(Bytes::new(self.largest_weight * element));
        let of_others = self.recompute_working_set + gradients;
        self.gradients_of_last.max(of_others.saturating_sub(self.saved_by_last))
    }

    /// Bytes of states for each trained parameter, on average.
    pub fn mean_bytes(&self, bytes: StateBytes) -> StateBytes {
        let mut shapes = self.parameters.dense_shapes;
        shapes.add_times(self.parameters.expert_shapes, 1);
        bytes.of(self.parameters.trained(), shapes)
    }

    /// Adds the parameters of a block that are tied to those of a block of another rank. Here they are the copy or the
    /// original.
    pub fn add_tied(&mut self, of_block: &LocalParameters, is_copy: bool) {
        let all = &mut self.parameters;
        all.tied = all.tied.max(of_block.tied);
        all.frozen.tied = all.frozen.tied.max(of_block.frozen.tied);
        if is_copy {
            all.dense += of_block.tied;
            all.dense_shapes.outside_matrices += of_block.tied;
            all.frozen.dense += of_block.frozen.tied;
        }
    }

    /// Adds the holdings of another stage of the same rank.
    pub fn add(&mut self, other: &Self) {
        self.parameters.add_times(&other.parameters, 1);
        self.add_tied(&other.parameters, false);
        self.largest_block = self.largest_block.max(other.largest_block);
        self.largest_frozen_block = self.largest_frozen_block.max(other.largest_frozen_block);
        self.dequantised = self.dequantised.max(other.dequantised);
        self.compressed += other.compressed;
        self.saved += other.saved;
        self.saved_by_last += other.saved_by_last;
        self.offloadable += other.offloadable;
        self.num_offloadable += other.num_offloadable;
        self.num_stages += other.num_stages;
        self.largest_offloadable = self.largest_offloadable.max(other.largest_offloadable);
        self.recompute_working_set = self.recompute_working_set.max(other.recompute_working_set);
        self.gradients = self.gradients.max(other.gradients);
        self.gradients_of_last = self.gradients_of_last.max(other.gradients_of_last);
        self.largest_weight = self.largest_weight.max(other.largest_weight);
        self.message = self.message.max(other.message);
        self.num_blocks += other.num_blocks;
    }
}
