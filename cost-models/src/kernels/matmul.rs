//! Matrix products.

use ir::cluster::{Gpu, Precision};
use ir::units::Seconds;

use super::{Bound, Timing};

/// The shape of `batch` equal products `C[m, n] = A[m, k] B[k, n]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MatmulShape {
    /// The number of products in the one kernel: batches, or groups of equal size.
    pub batch: u64,
    /// Rows of A and C; in a linear layer's forward pass, tokens.
    pub m: u64,
    /// Columns of B and C; in a linear layer's forward pass, output features.
    pub n: u64,
    /// Columns of A, rows of B.
    pub k: u64,
}

impl MatmulShape {
    /// One product.
    pub const fn new(m: u64, n: u64, k: u64) -> Self {
        Self { batch: 1, m, n, k }
    }
}

/// Inputs of a matrix product: the number format, and how 8-bit floats are scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MatmulFormat {
    /// As the precision says; 8-bit floats with one scale a tensor.
    Plain(Precision),
    /// 8-bit floats with a scale for each block of 128 elements (DeepSeek-V3).
    Fp8Block,
}

impl From<Precision> for MatmulFormat {
    fn from(precision: Precision) -> Self {
        Self::Plain(precision)
    }
}

/// Rates of matrix products on one GPU.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rates {
    peak: [f64; 4],
    bandwidth: f64,
}

impl Rates {
    pub(super) fn new(gpu: &Gpu) -> Self {
        Self {
            peak: Precision::ALL.map(|precision| peak_or_nearest(gpu, precision)),
            bandwidth: gpu.memory_bandwidth.get(),
        }
    }

    pub(super) fn time(&self, format: MatmulFormat, shape: MatmulShape) -> Timing {
        let precision = match format {
            MatmulFormat::Plain(precision) => precision,
            MatmulFormat::Fp8Block => Precision::Fp8,
        };
        let [b, m, n, k] = [shape.batch, shape.m, shape.n, shape.k].map(|size| size as f64);
        let input = precision.compute_bytes() as f64;
        let compute = 2.0 * b * m * n * k / (0.75 * self.peak[precision as usize]);
        let bytes = b * (input * (m * k + k * n) + 2.0 * m * n);
        let memory = bytes / (0.8 * self.bandwidth);
        let bound = if compute > memory { Bound::Compute } else { Bound::Memory };
        Timing { time: Seconds::new(compute.max(memory) + 2.5e-6), bound }
    }
}

/// The peak rate in `precision`; where the GPU has none, of what it would run instead.
///
/// 8-bit floats run as 16-bit ones, the two 16-bit formats stand for each other, and 32-bit floats
/// take six passes of 16-bit ones, as on a TPU.
pub(super) fn peak_or_nearest(gpu: &Gpu, precision: Precision) -> f64 {
    let own = |precision| gpu.peak.get(&precision).map(|rate| rate.get());
    let half = || own(Precision::Bf16).or_else(|| own(Precision::Fp16));
    let any = || gpu.peak.values().next().map_or(1.0, |rate| rate.get());
    own(precision).unwrap_or_else(|| match precision {
        Precision::Fp32 => half().map_or_else(any, |rate| rate / 6.0),
        _ => half().unwrap_or_else(any),
    })
}
