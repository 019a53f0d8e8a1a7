//! Floating-point operations of a whole model.

use super::block::Graph;
use super::op::AttentionMask;
use super::sharding::Sharding;
use super::tensor::Sizes;
use super::work::{DocumentSizes, Kernel, Pass, ShardContext};
use crate::units::Flops;

/// Floating-point operations of a forward pass over one sequence, and of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ForwardFlops {
    /// Operations with every query-key pair of a causal mask counted, as Megatron-LM and PaLM do. A sliding window
    /// counts the pairs within it.
    pub full: Flops,
    /// Operations without the query-key pairs that the mask hides.
    pub causal: Flops,
    /// Operations of products with frozen weights, whose gradients are not computed.
    pub frozen: Flops,
}

impl ForwardFlops {
    /// Operations of forward and backward, without the pairs that the mask hides: backward computes the gradients of
    /// inputs and of weights, each at the cost of forward, but no gradients of frozen weights.
    pub fn of_step(&self) -> Flops {
        self.causal * 3.0 - self.frozen
    }

    /// Operations of forward and backward, with every query-key pair of a causal mask counted.
    pub fn of_step_with_every_pair(&self) -> Flops {
        self.full * 3.0 - self.frozen
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

    /// Forward FLOPs of a sequence of documents: pairs within them count.
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
            for work in block.work(setting).kernels.iter().filter(|k| k.pass == Pass::Forward) {
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
                    flops.frozen += work.flops * f64::from(count);
                }
            }
        }
        flops
    }
}
