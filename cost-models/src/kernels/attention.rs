//! Time of fused attention, as in FlashAttention.
//!
//! Each multiprocessor computes 128 queries of one head over all their keys; a causal mask halves the mean of their
//! work, not the maximum.
//!
//! ```text
//! waves   = ceil(b a ceil(s / 128) / SMs)
//! per_key = 4 128 d / (e(d) P / SMs)
//! mean    = (s + 128) / 2 per_key + tile   of a causal mask
//! longest = s per_key + tile
//! compute = ceil(waves) longest, and with a causal mask not above ((ceil(waves) mean)^4 + longest^4)^(1/4);
//!           longest, where it is one wave
//! memory  = (w b s d (a + 2 a_kv) + 2 b s a d) / W
//! t       = (launch + (compute^4 + (memory / share)^4)^(1/4) + prepare memory) correction
//! ```
//!
//! b: sequences; s: their length; a, a_kv: heads; d: elements in a head; w: bytes of an element; P: peak; W: memory
//! bandwidth; `prepare`: passes over the inputs before the kernel proper, included in the measurements. The correction
//! is a table over s, b a, d and a / a_kv.

use ir::cluster::{Gpu, Precision};
use ir::graph::Pass;
use ir::units::Seconds;

use super::rates::{AttentionFit, Chosen, Correction, fourth_root, peak_or_nearest};
use super::timing::{Basis, Bound, Timing};

/// The shape of a self-attention: queries `[b, s, heads, head_dim]`, keys and values `[b, s, kv_heads, head_dim]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SelfAttentionShape {
    /// Number of sequences.
    pub batch: u64,
    /// Number of queries in a sequence, and of keys.
    pub sequence: u64,
    /// Number of query heads.
    pub heads: u64,
    /// Number of key and value heads.
    pub kv_heads: u64,
    /// Elements of a head.
    pub head_dim: u64,
    /// True if a query attends only to keys up to its own position.
    pub causal: bool,
}

/// Queries that one multiprocessor computes at a time.
const TILE_QUERIES: f64 = 128.0;

/// FLOPs of the backward pass over those of the forward pass: five products for two.
///
/// # Source
///
/// Dao 2023, *FlashAttention-2*, section 4.1.
const BACKWARD_FLOPS: f64 = 2.5;

/// Rate of training kernels at the longest sequences, over an extrapolation: the rate that the measured kernel
/// approaches, times the ratio of the training kernel to the measured one at 4,096 tokens.
///
/// # Source
///
/// `docs/first_light_h100/operators.jsonl`, an H100: from 16,384 to 32,768 tokens, cuDNN's kernels and
/// FlashAttention-2's change by 1 % on average (-5 to +6); there they reach 0.75 to 0.94 of the extrapolation, 0.84 on
/// average.
const SATURATION: f64 = 0.85;

/// Rates of attention on one GPU.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rates {
    formats: [FormatRates; Precision::ALL.len()],
    is_own: bool,
}

/// Rates in one format.
#[derive(Clone, Debug, PartialEq)]
struct FormatRates {
    fit: AttentionFit,
    input_bytes: f64,
    multiprocessors: f64,
    peak: f64,
    /// Rate of a multiprocessor at head dimension 128, in FLOPs per second.
    rate: f64,
    /// Seconds to begin and end a tile.
    tile: f64,
    bandwidth: f64,
    correction: Correction<4>,
}

impl Rates {
    pub(super) fn new(gpu: &Gpu, chosen: &Chosen) -> Self {
        let formats = Precision::ALL.map(|precision| FormatRates::new(gpu, chosen, precision));
        Self { formats, is_own: chosen.is_own[1] }
    }

    pub(super) fn forward(&self, precision: Precision, shape: SelfAttentionShape) -> Timing {
        self.formats[precision as usize].forward(shape)
    }

    /// Time of a pass in training, whose kernel runs at `rate` times the rate of the measured forward.
    pub(super) fn training(
        &self,
        precision: Precision,
        shape: SelfAttentionShape,
        pass: Pass,
        rate: f64,
    ) -> Seconds {
        let flops = if pass == Pass::Forward { 1.0 } else { BACKWARD_FLOPS };
        let measured = self.forward(precision, shape).time;
        let rates = &self.formats[precision as usize];
        let least = rates.least(shape);
        let saturated = least * (rates.peak / rates.saturated(shape.head_dim));
        (measured.max(saturated) * (flops / rate)).max(least)
    }

    /// Evidence on which the time of an attention is based.
    pub(super) fn basis(&self, precision: Precision, shape: SelfAttentionShape) -> Basis {
        let SelfAttentionShape { batch, sequence, heads, kv_heads, head_dim, .. } = shape;
        let sizes = [sequence, batch * heads, head_dim, heads / kv_heads.max(1)];
        let rates = &self.formats[precision as usize];
        Basis::of(self.is_own, rates.correction.covers(sizes.map(|size| size as f64)))
    }
}

impl FormatRates {
    fn new(gpu: &Gpu, chosen: &Chosen, precision: Precision) -> Self {
        let runs_8_bit = precision == Precision::Fp8 && gpu.peak.contains_key(&precision);
        let fit = chosen.attention(if runs_8_bit { "fp8" } else { "bf16" }).clone();
        // No attention kernel computes in 4 bits.
        let inputs = if runs_8_bit { precision } else { precision.activation() };
        let input_bytes = inputs.input_bits() as f64 / 8.0;
        let peak = peak_or_nearest(gpu, inputs);
        let multiprocessors = chosen.multiprocessors;
        Self {
            rate: peak / multiprocessors * fit.efficiency * chosen.ceiling,
            tile: fit.tile_microseconds * 1e-6 / chosen.pace,
            correction: Correction::new(&chosen.attention_knots, &fit.correction),
            bandwidth: gpu.memory_bandwidth.get(),
            fit,
            input_bytes,
            multiprocessors,
            peak,
        }
    }

    fn forward(&self, shape: SelfAttentionShape) -> Timing {
        let [b, s, heads, kv_heads, dim] =
            [shape.batch, shape.sequence, shape.heads, shape.kv_heads, shape.head_dim]
                .map(|size| size as f64);
        if b * s * heads * dim == 0.0 {
            return Timing { time: Seconds::ZERO, bound: Bound::Launch };
        }
        let compute = self.compute(b * heads, s, dim, shape.causal);
        let traffic =
            self.input_bytes * b * s * dim * (heads + 2.0 * kv_heads) + 2.0 * b * s * heads * dim;
        let memory = traffic / self.bandwidth;
        let launch = self.fit.launch_microseconds * 1e-6;
        let moved = memory / self.fit.memory_share;
        let work = fourth_root(compute.powi(4) + moved.powi(4)) + self.fit.prepare_traffic * memory;
        let sizes = [s, b * heads, dim, heads / kv_heads.max(1.0)];
        let seconds = (launch + work) * self.correction.factor(sizes);
        let bound = match () {
            () if launch > work => Bound::Launch,
            () if compute > moved => Bound::Compute,
            () => Bound::Memory,
        };
        Timing { time: Seconds::new(seconds).max(self.least(shape)), bound }
    }

    /// Time of the forward pass at peak rate.
    fn least(&self, shape: SelfAttentionShape) -> Seconds {
        let [b, s, heads, dim] =
            [shape.batch, shape.sequence, shape.heads, shape.head_dim].map(|size| size as f64);
        let pairs = if shape.causal { s * (s + 1.0) / 2.0 } else { s * s };
        Seconds::new(4.0 * b * heads * dim * pairs / self.peak)
    }

    /// Rate of the measured kernel, in FLOPs per second, that corresponds to the highest rate of training kernels.
    fn saturated(&self, head_dim: u64) -> f64 {
        self.rate * self.multiprocessors * self.head_dim_efficiency(head_dim as f64) * SATURATION
    }

    /// Seconds of the products, for `heads` heads over all sequences.
    fn compute(&self, heads: f64, s: f64, dim: f64, causal: bool) -> f64 {
        let per_key = 4.0 * TILE_QUERIES * dim / (self.rate * self.head_dim_efficiency(dim));
        let longest = s.max(TILE_QUERIES) * per_key + self.tile;
        let mean = f64::midpoint(s, TILE_QUERIES) * per_key + self.tile;
        let waves = heads * (s / TILE_QUERIES).ceil() / self.multiprocessors;
        if waves <= 1.0 {
            return longest;
        }
        let unmasked = waves.ceil() * longest;
        let masked = fourth_root((waves.ceil() * mean).powi(4) + longest.powi(4));
        if causal { masked.min(unmasked) } else { unmasked }
    }

    /// Rate at a head dimension over that at 128; interpolated linearly in the logarithm.
    fn head_dim_efficiency(&self, dim: f64) -> f64 {
        let measured = [
            (64.0, self.fit.efficiency_64),
            (128.0, 1.0),
            (192.0, self.fit.efficiency_192),
            (256.0, self.fit.efficiency_256),
        ];
        let (first, last) = (measured[0], measured[3]);
        if dim <= first.0 {
            // Below 64 the products of a tile no longer fill the tensor cores.
            return first.1 * dim / first.0;
        }
        let between = measured.windows(2).find(|pair| dim <= pair[1].0);
        between.map_or(last.1, |pair| {
            let share = (dim / pair[0].0).ln() / (pair[1].0 / pair[0].0).ln();
            pair[0].1 + share * (pair[1].1 - pair[0].1)
        })
    }
}
