//! What exchanges run beside, and what of them is left.

use ir::graph::{Axis, Exchange, Pass};
use ir::units::Seconds;

use super::Coster;
use crate::frameworks::TensorOverlap;

/// Pieces in which an exchange runs beside a product: Transformer Engine's default (`num_splits`).
const OVERLAP_PIECES: f64 = 4.0;

impl Coster<'_> {
    /// What is left of an exchange beside the kernels that run at the same time:
    ///
    /// - a ring of keys and values beside the attention that consumes it (Liu et al. 2023, arXiv
    ///   2310.01889, section 3);
    /// - tensor-parallel exchanges as the framework's [`TensorOverlap`] says: of those beside the product
    ///   that takes or makes what they exchange, all but the first piece;
    /// - those of experts beside another micro-batch, as long as that has kernels to run, if the framework
    ///   does so;
    /// - all others wait.
    pub(crate) fn exposed(&self, exchange: &Exchange) -> Seconds {
        let whole = self.exchange(exchange);
        let framework = &self.hardware.framework;
        let (op, pass) = (exchange.op, exchange.pass);
        let (hidden, least) = match (exchange.axis, framework.tensor_overlap) {
            (Axis::Context, _) => (self.kernels_of(op, pass), Seconds::ZERO),
            (Axis::Expert, _) if framework.overlaps_experts => {
                (whole * self.beside_another_micro_batch(), Seconds::ZERO)
            }
            (Axis::Tensor, TensorOverlap::Gradients) => {
                let beside = match pass {
                    Pass::InputGrad if self.is_linear(op) => Some(Pass::WeightGrad),
                    Pass::WeightGrad => Some(Pass::InputGrad),
                    _ => None,
                };
                let hidden = beside.map(|pass| self.kernels_of(op, pass)).unwrap_or_default();
                (hidden, Seconds::ZERO)
            }
            (Axis::Tensor, TensorOverlap::Products) => {
                let products = match pass {
                    Pass::Forward if self.is_linear(op) => self.kernels_of(op, pass),
                    Pass::Forward => {
                        let makers = self.block.inputs(op).into_iter();
                        let makers = makers.filter(|maker| self.is_linear(*maker));
                        makers.map(|maker| self.kernels_of(maker, pass)).sum()
                    }
                    _ => {
                        let grads = [Pass::InputGrad, Pass::WeightGrad];
                        grads.into_iter().map(|pass| self.kernels_of(op, pass)).sum()
                    }
                };
                let least = if products > Seconds::ZERO { whole / OVERLAP_PIECES } else { whole };
                (products, least)
            }
            _ => (Seconds::ZERO, Seconds::ZERO),
        };
        (whole - hidden).max(least)
    }

    /// The share of experts' exchanges that another micro-batch's kernels hide: a forward runs beside a
    /// backward, so that what both compute hides what both exchange.
    ///
    /// # Source
    ///
    /// DeepSeek-AI 2024, *DeepSeek-V3* (arXiv 2412.19437), section 3.2.1; Megatron-Core's
    /// `overlap_moe_expert_parallel_comm`.
    fn beside_another_micro_batch(&self) -> f64 {
        let kernels: Seconds = self.timings.iter().map(|timing| timing.time).sum();
        let exchanges = self.work.exchanges.iter().filter(|it| it.axis == Axis::Expert);
        let exchanges: Seconds = exchanges.map(|exchange| self.exchange(exchange)).sum();
        if exchanges > kernels { kernels / exchanges } else { 1.0 }
    }

    /// How long an exchange takes where kernels beside it are played through too; what pieces of it run
    /// beside parts of one kernel is not.
    pub(crate) fn left_to_begin(&self, exchange: &Exchange) -> Seconds {
        let framework = &self.hardware.framework;
        match exchange.axis {
            Axis::Tensor if framework.tensor_overlap == TensorOverlap::Products => {
                self.exposed(exchange)
            }
            Axis::Expert => self.exposed(exchange),
            _ => self.exchange(exchange),
        }
    }
}
