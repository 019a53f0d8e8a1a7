//! The built-in fitted rates, and the choice of those that describe a GPU.

use std::collections::BTreeMap;

use ir::cluster::{Architecture, Gpu, Precision};
use serde::Deserialize;
use serde::de::IgnoredAny;

const FITTED: &str = include_str!("../../data/kernels.json");

/// Contents of the data file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fitted {
    matmul_knots: [Vec<f64>; 3],
    attention_knots: [Vec<f64>; 4],
    sets: BTreeMap<String, Set>,
}

/// The rates fitted on one GPU, with the data-sheet numbers to which they are relative.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Set {
    /// Source of the measurements.
    #[serde(rename = "source")]
    _source: IgnoredAny,
    num_multiprocessors: u32,
    peak_flops_per_second: BTreeMap<Precision, f64>,
    #[serde(rename = "memory_bandwidth_bytes_per_second")]
    _memory_bandwidth: IgnoredAny,
    matmul: BTreeMap<String, MatmulFit>,
    attention: BTreeMap<String, AttentionFit>,
}

/// Coefficients of [`super::matmul`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MatmulFit {
    pub(super) launch_microseconds: f64,
    pub(super) efficiency: f64,
    pub(super) epilogue_microseconds: f64,
    pub(super) memory_share: f64,
    pub(super) split_traffic: f64,
    pub(super) load_gigabytes_per_second: f64,
    pub(super) latency_nanoseconds: f64,
    pub(super) quantise_traffic: f64,
    pub(super) whole_waves: f64,
    pub(super) occupancy_power: f64,
    pub(super) correction: Vec<f64>,
    /// Errors that the fit reached; for the reader of the data file.
    #[serde(rename = "fit")]
    _fit: IgnoredAny,
}

/// Coefficients of [`super::attention`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AttentionFit {
    pub(super) launch_microseconds: f64,
    pub(super) efficiency: f64,
    pub(super) tile_microseconds: f64,
    pub(super) memory_share: f64,
    pub(super) prepare_traffic: f64,
    pub(super) efficiency_64: f64,
    pub(super) efficiency_192: f64,
    pub(super) efficiency_256: f64,
    pub(super) correction: Vec<f64>,
    /// Errors that the fit reached; for the reader of the data file.
    #[serde(rename = "fit")]
    _fit: IgnoredAny,
}

/// The fit that describes a GPU, and the ratios of the GPU to the measured one.
pub(super) struct Chosen {
    pub(super) matmul_knots: [Vec<f64>; 3],
    pub(super) attention_knots: [Vec<f64>; 4],
    matmul: BTreeMap<String, MatmulFit>,
    attention: BTreeMap<String, AttentionFit>,
    /// True if the GPU's own matrix products were measured, and its own attention.
    pub(super) is_own: [bool; 2],
    /// Multiprocessors of the GPU.
    pub(super) multiprocessors: f64,
    /// 16-bit peak of one multiprocessor, relative to the measured GPU.
    pub(super) pace: f64,
    /// Share of peak that large products reach, relative to the measured GPU's share.
    pub(super) ceiling: f64,
}

fn fitted() -> Fitted {
    serde_json::from_str(FITTED).expect("the fitted data is valid; a test reads it")
}

/// Names of all fits.
pub(super) fn names() -> Vec<String> {
    fitted().sets.into_keys().collect()
}

impl Chosen {
    /// The fit that the GPU names. The nearest, where it names none, or one that does not exist, which
    /// [`check_rates`](crate::clusters::check_rates) refuses.
    pub(super) fn for_gpu(gpu: &Gpu) -> Self {
        let mut fitted = fitted();
        let own = gpu.kernel_rates.as_deref().filter(|name| fitted.sets.contains_key(*name));
        let (nearest, scaled) = nearest(gpu);
        let (name, ceiling) = own.map_or((nearest, scaled), |name| (name, 1.0));
        let is_own = own.is_some();
        let set = fitted.sets.remove(name).expect("every nearest set was fitted");
        // Attention in 8 bits was not measured on all GPUs, and on Blackwell no attention was measured.
        let is_own = [is_own, is_own && !set.attention.is_empty()];
        let attention = if set.attention.is_empty() {
            fitted.sets.remove("h100").map_or_else(BTreeMap::new, |set| set.attention)
        } else {
            set.attention
        };
        let multiprocessors = gpu.num_multiprocessors.unwrap_or(set.num_multiprocessors);
        let reference = set.peak_flops_per_second.get(&Precision::Bf16).copied().unwrap_or(1.0);
        let own_pace = peak_or_nearest(gpu, Precision::Bf16) / f64::from(multiprocessors);
        Self {
            matmul_knots: fitted.matmul_knots,
            attention_knots: fitted.attention_knots,
            matmul: set.matmul,
            attention,
            is_own,
            multiprocessors: f64::from(multiprocessors),
            pace: own_pace / (reference / f64::from(set.num_multiprocessors)),
            ceiling,
        }
    }

    /// The fit for matrix products in the named format; the 16-bit fit if there is none.
    pub(super) fn matmul(&self, format: &str) -> &MatmulFit {
        self.matmul.get(format).unwrap_or_else(|| &self.matmul["bf16"])
    }

    /// The fit for attention in the named format; the 16-bit fit if there is none.
    pub(super) fn attention(&self, format: &str) -> &AttentionFit {
        self.attention.get(format).unwrap_or_else(|| &self.attention["bf16"])
    }
}

/// The set that stands in for a family without its own, and the share of peak that the family's
/// large products reach, relative to the set's.
///
/// The shares are measured ceilings ("maximum achievable matmul FLOPS") from stas00/ml-engineering,
/// compute/accelerator, over those of A100 SXM (271 of 312 TFLOP/s), H100 (795 of 989) and B200 (1745 of 2250); the
/// rates themselves scale with peak, multiprocessors and bandwidth.
///
/// | family | stands in | share | from |
/// |---|---|---|---|
/// | Volta | A100 | 0.95 | assumed; 100 to 105 of 125 TFLOP/s (Jia et al. 2018) |
/// | Ampere (PCIe) | A100 | 0.93 | 252.9 of 312, limited by power |
/// | Ada | A100 | 0.90 | assumed; limited by power |
/// | Ampere and Ada with power to spare | A100 | 1.01 to 1.05 | [`share_of_slow_multiprocessors`] |
/// | Hopper (PCIe) | H100 | 0.90 | assumed; limited by power |
/// | Blackwell | B200 | 1 | GB200: 1822 of 2500, B300: 1769 of 2250 |
/// | CDNA 2 | H100 | 0.80 | assumed |
/// | CDNA 3 and 4 | H100 | 1 | their ceilings (MI300X 668 of 1307, MI325X 785 of 1300, MI355X 1565 of 2500) are in `data/priors.json`, for the constants of whole steps |
/// | TPU | H100 | 1.15 | scaling book: matrix products near peak |
/// | Trainium | H100 | 1 | assumed |
/// | Gaudi | H100 | 1.05 | Gaudi2 419 of 432, Gaudi3 1243 of 1677 |
/// | Cpu | A100 | 0.9 | assumed, where a file has no measurements of its own |
fn nearest(gpu: &Gpu) -> (&'static str, f64) {
    let with_power = || share_of_slow_multiprocessors(gpu);
    match gpu.architecture {
        Architecture::Volta => ("a100", 0.95),
        Architecture::Ampere => ("a100", with_power().unwrap_or(0.93)),
        Architecture::Ada => ("a100", with_power().unwrap_or(0.90)),
        Architecture::Hopper => ("h100", 0.90),
        Architecture::Blackwell => ("b200", 1.0),
        Architecture::Cdna2 => ("h100", 0.80),
        Architecture::Cdna3 | Architecture::Cdna4 => ("h100", 1.0),
        Architecture::Tpu => ("h100", 1.15),
        Architecture::Trainium => ("h100", 1.0),
        Architecture::Gaudi => ("h100", 1.05),
        Architecture::Cpu => ("a100", 0.9),
    }
}

/// The share of peak that large products reach, relative to A100's, on a GPU with at least [`WATTS_TO_SPARE`] for each
/// TFLOP/s; `None` for one that its power may limit.
///
/// The slower the tensor cores of a multiprocessor, the better it can feed them. By the ceilings of [`nearest`], A100
/// (2.9 TFLOP/s for each multiprocessor) leaves 13 % of its peak unused, H100 (7.5) 20 % and B200 (15) 22 %; this share
/// grows as the rate to the power of .33 (least squares of these three). GeForce and workstation GPUs have .9 to 2
/// TFLOP/s for each multiprocessor.
fn share_of_slow_multiprocessors(gpu: &Gpu) -> Option<f64> {
    /// Share of peak that is left unused at 1 TFLOP/s for each multiprocessor, and the power by which it grows.
    const UNUSED: [f64; 2] = [0.0953, 0.328];
    const A100: f64 = 312.0 / 108.0;
    let tflops = peak_or_nearest(gpu, Precision::Bf16) / 1e12;
    let watts = gpu.power_watts?;
    let share = |rate: f64| 1.0 - UNUSED[0] * rate.powf(UNUSED[1]);
    let rate = tflops / f64::from(gpu.num_multiprocessors?);
    (watts >= WATTS_TO_SPARE * tflops).then(|| share(rate) / share(A100))
}

/// Watts for each TFLOP/s from which on power was not seen to limit products: A100 SXM has 1.28 and reaches .87 of its
/// peak, the PCIe card has .96 and reaches .81 (the sources of [`nearest`]).
const WATTS_TO_SPARE: f64 = 1.25;

/// The peak rate in `precision`; where the GPU has none, of the precision that it would run instead.
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

/// A table of corrections, multilinear in `N` logarithms of a shape.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Correction<const N: usize> {
    knots: [Vec<f64>; N],
    /// Natural logarithms of the factors; last axis fastest.
    values: Vec<f64>,
}

impl<const N: usize> Correction<N> {
    pub(super) fn new(knots: &[Vec<f64>; N], values: &[f64]) -> Self {
        let size: usize = knots.iter().map(Vec::len).product();
        assert_eq!(values.len(), size, "the table has a value for each crossing of its knots");
        Self { knots: knots.clone(), values: values.to_vec() }
    }

    /// Returns whether a shape is within the measured range.
    pub(super) fn covers(&self, shape: [f64; N]) -> bool {
        self.knots.iter().zip(shape).all(|(knots, size)| {
            knots
                .first()
                .zip(knots.last())
                .is_some_and(|(first, last)| (*first..=*last).contains(&size.log2()))
        })
    }

    /// The factor at a shape; beyond the table's edge, that of the edge.
    pub(super) fn factor(&self, shape: [f64; N]) -> f64 {
        // Corners of the cell: one, then twice as many with each axis.
        let mut corners = [(0usize, 0.0f64); 16];
        corners[0].1 = 1.0;
        let mut count = 1;
        for (knots, size) in self.knots.iter().zip(shape) {
            let last = knots.len() - 1;
            let x = size.log2().clamp(knots[0], knots[last]);
            let low = (1..last).take_while(|&knot| knots[knot] <= x).count();
            let share = (x - knots[low]) / (knots[low + 1] - knots[low]);
            for corner in 0..count {
                let (index, weight) = corners[corner];
                let index = index * knots.len() + low;
                corners[corner] = (index, weight * (1.0 - share));
                corners[corner + count] = (index + 1, weight * share);
            }
            count *= 2;
        }
        corners[..count]
            .iter()
            .map(|&(index, weight)| weight * self.values[index])
            .sum::<f64>()
            .exp()
    }
}

/// The fourth root of a sum of fourth powers: a smooth maximum of two times, as neither resource is ever busy all the
/// time.
pub(super) fn fourth_root(sum: f64) -> f64 {
    sum.sqrt().sqrt()
}
