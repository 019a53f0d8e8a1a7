//! Floating-point operations of a whole model.

use super::block::Graph;
use super::mask::AttentionMask;
use super::op::OpKind;
use super::sharding::Sharding;
use super::tensor::Sizes;
use super::work::{DocumentSizes, Kernel, KernelWork, Pass, ShardContext};
use crate::units::Flops;

/// Floating-point operations of a forward pass over one sequence, and of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ForwardFlops {
    /// Operations with every query-key pair of a causal mask counted, as in Megatron-LM and PaLM. With a sliding
    /// window, only the pairs within it are counted.
    pub full: Flops,
    /// Operations without the query-key pairs that the mask hides.
    pub causal: Flops,
    /// Operations by which backward falls short of twice forward's: the gradients of frozen weights, and those of the
    /// scores for the choice of keys, where these scores get no gradient.
    pub not_in_backward: Flops,
}

impl ForwardFlops {
    /// Operations of forward and backward, without the pairs that the mask hides. Backward computes the gradients of
    /// inputs and of weights, each at the cost of forward, except those that are not needed.
    pub fn of_step(&self) -> Flops {
        self.causal * 3.0 - self.not_in_backward
    }

    /// Operations of forward and backward, with every query-key pair of a causal mask counted.
    pub fn of_step_with_every_pair(&self) -> Flops {
        self.full * 3.0 - self.not_in_backward
    }
}

impl Graph {
    /// Operations of a forward pass over one sequence of `sequence_length`, unsharded.
    pub fn forward_flops(&self, sequence_length: u64) -> ForwardFlops {
        self.flops(&ShardContext::plain(
            Sizes { micro_batch_size: 1, sequence_length },
            Sharding::NONE,
        ))
    }

    /// Forward FLOPs of a sequence of documents; only pairs within a document count.
    pub fn forward_flops_of(&self, sequence_length: u64, documents: DocumentSizes) -> ForwardFlops {
        let plain =
            ShardContext::plain(Sizes { micro_batch_size: 1, sequence_length }, Sharding::NONE);
        let padded = sequence_length;
        let documents = DocumentSizes { padded, longest: padded, ..documents };
        self.flops(&ShardContext { documents: Some(documents), ..plain })
    }

    fn flops(&self, setting: &ShardContext) -> ForwardFlops {
        let mut flops = ForwardFlops::default();
        for ((_, block), count) in self.classes().zip(self.class_counts()) {
            let kernels = block.work(setting).kernels;
            let is_indexer =
                |work: &&KernelWork| matches!(block.op(work.op).kind, OpKind::Indexer { .. });
            for work in kernels.iter().filter(is_indexer) {
                let times = if work.pass == Pass::Forward { 2.0 } else { -1.0 };
                flops.not_in_backward += work.flops * (times * f64::from(count));
            }
            for work in kernels.iter().filter(|k| k.pass == Pass::Forward) {
                let full = match work.kernel {
                    Kernel::Attention(shape) if shape.mask == AttentionMask::Causal => {
                        shape.full_flops()
                    }
                    _ => work.flops,
                };
                flops.full += full * f64::from(count);
                flops.causal += work.flops * f64::from(count);
                let is_product = matches!(work.kernel, Kernel::MatMul { .. });
                if is_product && block.op(work.op).is_frozen() {
                    flops.not_in_backward += work.flops * f64::from(count);
                }
            }
        }
        flops
    }
}
