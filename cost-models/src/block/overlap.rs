//! Overlap of exchanges that is not visible in the parts of a pass.

use ir::framework::TensorOverlap;
use ir::graph::{Axis, CudaGraphs, Exchange, ExpertOverlap, OpId, Pass, Switches};
use ir::units::Seconds;

use super::cost::{BlockCost, ExpertTimes};

/// Number of pieces in which an exchange overlaps a product: Transformer Engine's default (`num_splits`).
const OVERLAP_PIECES: f64 = 4.0;

/// Share of expert exchanges that another micro-batch hides where the host launches kernels: it seldom has both in
/// flight at once.
///
/// # Source
///
/// Megatron-Bridge's `nemo-mbridge-perf-moe-comm-overlap`: Qwen3-30B on 16 H100 takes 24.7 s without overlap and 21.0 s
/// with it, which hides 3.7 s of the 8.3 s of exchanges. Megatron-MoE-ModelZoo: Qwen3-235B on 256 H100 takes 19.7 s and
/// 17.6 s, which hides a quarter of the predicted exchanges.
const HIDDEN_BY_LAUNCHES: f64 = 0.4;

/// The largest share of expert exchanges that another micro-batch hides, whatever the kernels.
const fn most_hidden(switches: Switches) -> f64 {
    match (switches.expert_overlap, switches.cuda_graphs) {
        (ExpertOverlap::None, _) => 0.0,
        // Without host launches, in a graph of the whole iteration, the overlap is complete.
        (ExpertOverlap::MicroBatch, CudaGraphs::Iteration) => 1.0,
        (ExpertOverlap::MicroBatch, _) => HIDDEN_BY_LAUNCHES,
    }
}

/// The least share of expert exchanges that is exposed, whatever the kernels.
pub const fn least_exposed(switches: Switches) -> f64 {
    1.0 - most_hidden(switches)
}

impl BlockCost<'_> {
    /// Exposed time of an exchange that takes `whole`, if no kernel of its pass overlapped it. This is `whole`, except:
    ///
    /// - for an exchange that overlaps, piece by piece, the product that consumes or produces its data
    ///   ([`TensorOverlap::Products`]): the part that the product does not hide, and at least one piece;
    /// - for an exchange between experts, where the framework overlaps it with another micro-batch: the part that the
    ///   other micro-batch's kernels do not hide.
    ///
    /// Overlap with whole kernels follows from the order of parts, and is not counted here.
    pub(crate) fn not_hidden(&self, exchange: &Exchange, whole: Seconds) -> Seconds {
        let tensor_overlap = self.hardware.framework.tensor_parallel.overlap;
        match exchange.axis {
            Axis::Expert if self.switches.expert_overlap == ExpertOverlap::MicroBatch => {
                whole * (1.0 - self.overlapped_share())
            }
            // Tensor exchanges of experts are the dispatcher's, and do not overlap products (Megatron-Core's
            // `explicit_expert_comm`).
            Axis::Tensor if tensor_overlap == TensorOverlap::Products => {
                let products = self.overlapped_products(exchange);
                let least = if products > Seconds::ZERO { whole / OVERLAP_PIECES } else { whole };
                // A product may hide two exchanges, so a slower product may hide more of both.
                let may_take_longer = self.experts == ExpertTimes::Least
                    && self.ops_overlapped_with(exchange).any(|op| self.is_of_experts(op));
                if may_take_longer { least } else { (whole - products).max(least) }
            }
            _ => whole,
        }
    }

    /// The operators that consume or produce the exchanged data by products.
    fn ops_overlapped_with(&self, exchange: &Exchange) -> impl Iterator<Item = OpId> {
        let op = exchange.op;
        let consumes = exchange.pass != Pass::Forward || self.is_linear(op);
        let makers = if consumes { &[] } else { self.block.inputs(op) };
        let makers = makers.iter().copied().filter(|maker| self.is_linear(*maker));
        consumes.then_some(op).into_iter().chain(makers)
    }

    /// Time of the products that overlap an exchange.
    fn overlapped_products(&self, exchange: &Exchange) -> Seconds {
        let passes: &[Pass] = match exchange.pass {
            Pass::Forward => &[Pass::Forward],
            Pass::InputGrad | Pass::WeightGrad => &[Pass::InputGrad, Pass::WeightGrad],
        };
        let of_op = |op| passes.iter().map(move |pass| self.kernels_of(op, *pass).time);
        self.ops_overlapped_with(exchange).flat_map(of_op).sum()
    }

    /// Share of expert exchanges that another micro-batch's kernels hide: a forward overlaps a backward, so that the
    /// kernels of both hide the exchanges of both.
    ///
    /// # Source
    ///
    /// DeepSeek-AI 2024, *DeepSeek-V3* (arXiv 2412.19437), section 3.2.1; Megatron-Core's
    /// `overlap_moe_expert_parallel_comm`.
    fn overlapped_share(&self) -> f64 {
        let kernels: Seconds = self.kernels().map(|(_, timing)| timing.time).sum();
        let exchanges = self.timed_exchanges().filter(|(it, _)| it.axis == Axis::Expert);
        let exchanges: Seconds = exchanges.map(|(_, time)| time).sum();
        let hidden = if exchanges > kernels { kernels / exchanges } else { 1.0 };
        hidden.min(most_hidden(self.switches))
    }
}
