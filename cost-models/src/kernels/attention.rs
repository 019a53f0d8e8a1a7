//! Fused attention, as FlashAttention computes it.

use ir::cluster::{Gpu, Precision};
use ir::units::Seconds;

use super::{Bound, Timing, matmul::peak_or_nearest};

/// The shape of an attention: queries `[b, s, heads, head_dim]`, keys and values
/// `[b, s, kv_heads, head_dim]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttentionShape {
    /// Sequences.
    pub batch: u64,
    /// Queries in a sequence, and keys.
    pub sequence: u64,
    /// Query heads.
    pub heads: u64,
    /// Key and value heads.
    pub kv_heads: u64,
    /// Elements in a head.
    pub head_dim: u64,
    /// Whether a query sees only the keys up to its own place.
    pub causal: bool,
}

/// Rates of attention on one GPU.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rates {
    peak: [f64; 4],
}

/// FLOPs of the backward pass over those of the forward pass: five products for two.
///
/// # Source
///
/// Dao 2023, *FlashAttention-2*, section 4.1.
const BACKWARD_FLOPS: f64 = 2.5;

/// Rate of the backward pass over that of the forward pass.
///
/// # Source
///
/// Dao 2023, *FlashAttention-2*, figures 4 to 6: A100, head dimension 128, causal, 16 k: forward
/// about 190, backward about 160 TFLOP/s. Shah et al. 2024, *FlashAttention-3*, figures 5 and 6: H100,
/// causal: forward about 610, backward about 480.
const BACKWARD_RATE: f64 = 0.8;

impl Rates {
    pub(super) fn new(gpu: &Gpu) -> Self {
        Self { peak: Precision::ALL.map(|precision| peak_or_nearest(gpu, precision)) }
    }

    pub(super) fn forward(&self, precision: Precision, shape: AttentionShape) -> Timing {
        let [b, s, h, d] =
            [shape.batch, shape.sequence, shape.heads, shape.head_dim].map(|size| size as f64);
        let half = if shape.causal { 0.5 } else { 1.0 };
        let flops = 4.0 * b * s * s * h * d * half;
        let time = Seconds::new(flops / (0.6 * self.peak[precision as usize]) + 5e-6);
        Timing { time, bound: Bound::Compute }
    }

    pub(super) fn backward(&self, precision: Precision, shape: AttentionShape) -> Timing {
        let forward = self.forward(precision, shape);
        Timing { time: forward.time * (BACKWARD_FLOPS / BACKWARD_RATE), ..forward }
    }
}
