//! Times of matrix products.
//!
//! The kernel cuts C into tiles, each computed by one multiprocessor in a loop over k, and runs the tiles in waves. The
//! model takes the fastest of ten tile shapes and seven splits of the k loop, as the libraries' heuristics aim to.
//!
//! ```text
//! tiles   = batch ceil(m / r) ceil(n / c) split             r x c: the tile
//! waves   = tiles / SMs;  rounds = 1 below one wave, else between waves and ceil(waves)
//! per_k   = (2 r c / (e P / SMs)) + ((r + c) w / load) + latency      each to the fourth power
//! compute = rounds (k / split per_k + epilogue)
//! memory  = (w (m k + k n) + 2 m n [+ partial sums]) / (share W min(1, waves)^occupancy)
//! t       = (launch + (compute^4 + memory^4)^(1/4) + cast) correction(m, n, k)
//! ```
//!
//! w: bytes of an input element; P: peak; W: memory bandwidth. Products of 8-bit floats were measured with the cast of
//! their input A, and so include it. The ten coefficients and the correction table are fitted by GPU and format
//! (`fit/fit_kernels.py`); the table moves the analytic model by some 4 % on average.

use ir::cluster::{Gpu, Precision};
use ir::framework::UnalignedRows;
use ir::units::Seconds;

use super::rates::{Chosen, Correction, MatmulFit, fourth_root, peak_or_nearest};
use super::timing::{Basis, Bound, Timing};

/// The shape of `batch` equal products `C[m, n] = A[m, k] B[k, n]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MatmulShape {
    /// Number of products in one kernel: batches, or groups of equal size.
    pub batch: u64,
    /// Rows of A and C; in a linear layer's forward pass, tokens.
    pub m: u64,
    /// Columns of B and C; in a linear layer's forward pass, output features.
    pub n: u64,
    /// Columns of A, rows of B.
    pub k: u64,
}

impl MatmulShape {
    /// Shape of a single product.
    pub const fn new(m: u64, n: u64, k: u64) -> Self {
        Self { batch: 1, m, n, k }
    }
}

/// Inputs of a matrix product: the number format, and how 8-bit floats are scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MatmulFormat {
    /// Format of the precision; 8-bit floats with one scale per tensor.
    Plain(Precision),
    /// 8-bit floats with one scale per block of 128 elements (DeepSeek-V3).
    Fp8Block,
}

impl MatmulFormat {
    /// The precision of the inputs.
    pub(super) const fn precision(self) -> Precision {
        match self {
            Self::Plain(precision) => precision,
            Self::Fp8Block => Precision::Fp8,
        }
    }
}

impl From<Precision> for MatmulFormat {
    fn from(precision: Precision) -> Self {
        Self::Plain(precision)
    }
}

/// Output tiles of cuBLAS and CUTLASS kernels.
const TILES: [(u16, u16); 10] = [
    (256, 128),
    (128, 256),
    (128, 128),
    (64, 256),
    (256, 64),
    (64, 128),
    (128, 64),
    (64, 64),
    (32, 64),
    (64, 32),
];

/// Numbers of multiprocessors that split one tile's k loop.
const SPLITS: [f64; 7] = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0];

/// Least length of k in each part of a split.
const LEAST_SPLIT_K: f64 = 128.0;

/// Waves beyond which the k loop is not split further.
const FULL_WAVES: f64 = 4.0;

/// Step of the k loop.
const K_STEP: f64 = 64.0;

/// Area of the tile for which the epilogue was fitted.
const REFERENCE_TILE: f64 = 128.0 * 128.0;

/// Alignment of input rows that tensor cores require, in bytes.
const ALIGNMENT_BYTES: f64 = 16.0;

/// Share of their peak that tensor cores reach where rows do not begin at multiples of [`ALIGNMENT_BYTES`].
///
/// # Source
///
/// Karpathy 2023, nanoGPT: GPT-2 with a vocabulary of 50,257 took a quarter longer than with 50,304. With some 2 s for
/// a step of 524,288 tokens on one A100, its head ran at 38 % of the peak. vTrain's steps with the same vocabulary, of
/// 2,048 features against 1,024, give 26 %. The share is the mean of both.
const UNALIGNED_SHARE: f64 = 0.32;

/// Share of the data sheet that vector units reach in a product that tensor cores cannot load: with it, BigScience's
/// runs on A100 with such rows have the same error as the others.
const VECTOR_SHARE: f64 = 0.6;

/// Exposed share of the memory traffic to accumulate into C, at the data sheet's bandwidth. In SimuMax's 287 products
/// of weight gradients, accumulating into a C of 32 bits adds, in the median, the time to move 3.7 (A100) and 3.2
/// (B200) of the 6 bytes of an element.
const EXPOSED_ACCUMULATION: f64 = 0.58;

/// Bytes of an element of C, and of a partial sum.
const OUTPUT_BYTES: f64 = 2.0;
const PARTIAL_SUM_BYTES: f64 = 4.0;

/// Rates of matrix products on one GPU.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rates {
    plain: [FormatRates; Precision::ALL.len()],
    fp8_block: FormatRates,
    is_own: bool,
}

impl Rates {
    pub(super) fn new(gpu: &Gpu, chosen: &Chosen) -> Self {
        let plain = Precision::ALL.map(|precision| FormatRates::new(gpu, chosen, precision, "fp8"));
        let fp8_block = FormatRates::new(gpu, chosen, Precision::Fp8, "fp8_block");
        Self { plain, fp8_block, is_own: chosen.is_own[0] }
    }

    /// Time of products; `cast` is the share of A that is cast for this product alone.
    pub(super) fn time(&self, format: MatmulFormat, shape: MatmulShape, cast: f64) -> Timing {
        self.format(format).time(shape, cast)
    }

    /// Additional time to accumulate a product into a C with elements of `bytes`: C is read too, partly overlapped with
    /// the multiplication.
    pub(super) fn accumulation(
        &self,
        format: MatmulFormat,
        shape: MatmulShape,
        bytes: f64,
    ) -> Seconds {
        let elements = shape.batch as f64 * shape.m as f64 * shape.n as f64;
        let moved = elements * (2.0 * bytes - OUTPUT_BYTES);
        Seconds::new(EXPOSED_ACCUMULATION * moved / self.format(format).bandwidth)
    }

    /// Lower bound of the time of a product whose matrices have rows of these lengths: where they do not begin at
    /// multiples of 16 bytes, tensor cores cannot load them, or wait for them.
    ///
    /// # Source
    ///
    /// NVIDIA, *Matrix Multiplication Background User's Guide*, on what tensor cores require. BigScience's runs
    /// show what is lost: with 128 heads of 108 features a step takes 1.3 times as long as with 96 of 144.
    pub(super) fn unaligned(
        &self,
        format: MatmulFormat,
        shape: MatmulShape,
        rows: [u64; 2],
        by: UnalignedRows,
    ) -> Seconds {
        let rates = self.format(format);
        let elements = (ALIGNMENT_BYTES / rates.input_bytes) as u64;
        if rows.iter().all(|length| length.is_multiple_of(elements)) {
            return Seconds::ZERO;
        }
        let [batch, m, n, k] = [shape.batch, shape.m, shape.n, shape.k].map(|size| size as f64);
        let rate = match by {
            UnalignedRows::VectorUnits => rates.vector,
            UnalignedRows::TensorCores => rates.vector.max(UNALIGNED_SHARE * rates.peak),
        };
        Seconds::new(2.0 * batch * m * n * k / rate)
    }

    /// Lower bound of the time of a product, at peak rate.
    pub(super) fn least(&self, format: MatmulFormat, shape: MatmulShape) -> Seconds {
        let [batch, m, n, k] = [shape.batch, shape.m, shape.n, shape.k].map(|size| size as f64);
        Seconds::new(2.0 * batch * m * n * k / self.format(format).peak)
    }

    /// Evidence on which the time of a product is based.
    pub(super) fn basis(&self, format: MatmulFormat, shape: MatmulShape) -> Basis {
        let MatmulShape { batch, m, n, k } = shape;
        let sizes = [batch * m, n, k].map(|size| size as f64);
        let is_own = self.is_own && format.precision() != Precision::Fp4;
        Basis::of(is_own, self.format(format).correction.covers(sizes))
    }

    fn format(&self, format: MatmulFormat) -> &FormatRates {
        match format {
            MatmulFormat::Plain(precision) => &self.plain[precision as usize],
            MatmulFormat::Fp8Block => &self.fp8_block,
        }
    }
}

/// Rates in one format, in seconds.
#[derive(Clone, Debug, PartialEq)]
struct FormatRates {
    fit: MatmulFit,
    input_bytes: f64,
    multiprocessors: f64,
    /// Peak rate in FLOPs per second; no product is faster.
    peak: f64,
    /// Rate of the vector units, in FLOPs per second.
    vector: f64,
    bandwidth: f64,
    tiles: [Tile; TILES.len()],
    correction: Correction<3>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Tile {
    rows: f64,
    columns: f64,
    seconds_per_k: f64,
    epilogue: f64,
}

/// Times of a kernel's compute and memory parts, to the fourth power.
#[derive(Clone, Copy)]
struct Parts {
    compute: f64,
    memory: f64,
}

impl FormatRates {
    fn new(gpu: &Gpu, chosen: &Chosen, precision: Precision, eight_bit: &str) -> Self {
        let is_narrow = precision.is_cast() && gpu.peak.contains_key(&precision);
        // Products in 4 bits were not measured alone: they are assumed to reach the same share of their peak as those
        // in 8 bits, and to advance along k by as many bytes.
        let fit = chosen.matmul(if is_narrow { eight_bit } else { "bf16" }).clone();
        let peak = peak_or_nearest(gpu, precision);
        let inputs = if is_narrow { precision } else { precision.activation() };
        let input_bytes = inputs.input_bits() as f64 / 8.0;
        let narrower = if inputs == Precision::Fp4 { 0.5 } else { 1.0 };
        let per_multiprocessor = peak / chosen.multiprocessors * fit.efficiency * chosen.ceiling;
        let tiles = TILES.map(|(rows, columns)| {
            let [rows, columns] = [f64::from(rows), f64::from(columns)];
            let multiply = 2.0 * rows * columns / per_multiprocessor;
            let load = (rows + columns) * input_bytes
                / (fit.load_gigabytes_per_second * 1e9 * chosen.pace);
            let latency = fit.latency_nanoseconds * 1e-9 * narrower / chosen.pace;
            let epilogue = fit.epilogue_microseconds * 1e-6 / chosen.pace;
            Tile {
                rows,
                columns,
                seconds_per_k: fourth_root(multiply.powi(4) + load.powi(4) + latency.powi(4)),
                epilogue: epilogue * (rows * columns / REFERENCE_TILE).sqrt(),
            }
        });
        let correction = Correction::new(&chosen.matmul_knots, &fit.correction);
        let bandwidth = gpu.memory_bandwidth.get();
        let multiprocessors = chosen.multiprocessors;
        let vector = VECTOR_SHARE * peak_or_nearest(gpu, Precision::Fp32);
        Self { fit, input_bytes, multiprocessors, peak, vector, bandwidth, tiles, correction }
    }

    fn time(&self, shape: MatmulShape, cast: f64) -> Timing {
        let [batch, m, n, k] = [shape.batch, shape.m, shape.n, shape.k].map(|size| size as f64);
        if batch * m * n * k == 0.0 {
            return Timing { time: Seconds::ZERO, bound: Bound::Launch };
        }
        let parts = self.fastest(batch, m, n, k);
        let launch = self.fit.launch_microseconds * 1e-6;
        let cast = if self.input_bytes < OUTPUT_BYTES {
            // The cast reads 2 bytes and writes 1 or less per element.
            let moved = (OUTPUT_BYTES + self.input_bytes) * batch * m * k;
            cast * self.fit.quantise_traffic * moved / self.bandwidth
        } else {
            0.0
        };
        let work = fourth_root(parts.compute + parts.memory) + cast;
        let seconds = (launch + work) * self.correction.factor([batch * m, n, k]);
        let bound = match parts {
            _ if launch > work => Bound::Launch,
            Parts { compute, memory } if compute > memory => Bound::Compute,
            _ => Bound::Memory,
        };
        let least = 2.0 * batch * m * n * k / self.peak;
        Timing { time: Seconds::new(seconds.max(least)), bound }
    }

    /// The compute and memory parts of the fastest tile and split.
    fn fastest(&self, batch: f64, m: f64, n: f64, k: f64) -> Parts {
        let traffic = batch * (self.input_bytes * (m * k + k * n) + OUTPUT_BYTES * m * n);
        let partial_sums = batch * PARTIAL_SUM_BYTES * m * n * self.fit.split_traffic;
        let bandwidth = self.bandwidth * self.fit.memory_share;
        let mut best = Parts { compute: f64::INFINITY, memory: f64::INFINITY };
        for tile in &self.tiles {
            let tiles = batch * (m / tile.rows).ceil() * (n / tile.columns).ceil();
            let mut waves = 0.0;
            for split in SPLITS {
                // On a full machine, more parts only add traffic and rounding.
                if split > 1.0 && (k < split * LEAST_SPLIT_K || waves > FULL_WAVES) {
                    break;
                }
                waves = tiles * split / self.multiprocessors;
                let rounds = if waves < 1.0 {
                    1.0
                } else {
                    self.fit.whole_waves * waves.ceil() + (1.0 - self.fit.whole_waves) * waves
                };
                let depth = (k / split / K_STEP).ceil() * K_STEP;
                let compute = rounds * (depth * tile.seconds_per_k + tile.epilogue);
                let moved = if split > 1.0 { traffic + split * partial_sums } else { traffic };
                let floor = compute.powi(4) + (moved / bandwidth).powi(4);
                if floor >= best.compute + best.memory {
                    continue;
                }
                let reached = if waves < 1.0 {
                    bandwidth * waves.powf(self.fit.occupancy_power)
                } else {
                    bandwidth
                };
                let parts = Parts { compute: compute.powi(4), memory: (moved / reached).powi(4) };
                if parts.compute + parts.memory < best.compute + best.memory {
                    best = parts;
                }
            }
        }
        best
    }
}
