//! Quantised weights: few bits each, and a scale for each block of weights; dequantised where they are used.
//!
//! A parameter is quantised row by row, and no layout shards rows (see [`WeightFormat::bytes`]), so that every layout
//! rounds in the same way.

use executor_kernels::array::{Array, Element, ElementExt, Indices};
use executor_kernels::ops::Kernels;
use ir::graph::{QUANTISED_BLOCK, WeightFormat};

/// Weights that share a scale.
const BLOCK: usize = QUANTISED_BLOCK as usize;

/// Values of the 16 NormalFloat codes, relative to the largest magnitude of a block.
///
/// # Source
///
/// Dettmers et al. 2023, *QLoRA* (arXiv 2305.14314), appendix E.
const NORMAL_FLOAT: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

/// Codes and scales on the host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Codes {
    /// A byte for each weight, or for two.
    pub bytes: Vec<u8>,
    /// A scale for each block, row by row.
    pub scales: Vec<f32>,
}

/// Number and length of quantised rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Number of rows.
    pub count: usize,
    /// Number of weights in a row.
    pub len: usize,
}

impl Rows {
    /// Scales of all rows.
    pub fn num_scales(self) -> usize {
        self.count * self.len.div_ceil(BLOCK)
    }

    /// Bytes of all rows' codes.
    ///
    /// # Panics
    ///
    /// If the format is not a quantised one.
    pub fn num_code_bytes(self, format: WeightFormat) -> usize {
        self.count * row_bytes(self.len, format)
    }
}

/// Bytes of a row's codes.
fn row_bytes(len: usize, format: WeightFormat) -> usize {
    let bits = format.bits().expect("only quantised weights have codes") as usize;
    (len * bits).div_ceil(8)
}

/// The nearest codes to `weights`, which are rows of `len` each.
///
/// # Panics
///
/// If the format is not a quantised one.
pub fn quantised(weights: &[f64], len: usize, format: WeightFormat) -> Codes {
    let mut codes = Codes::default();
    for row in weights.chunks(len.max(1)) {
        let mut of_row = Vec::with_capacity(len);
        for block in row.chunks(BLOCK) {
            let largest = block.iter().fold(0.0_f64, |largest, weight| largest.max(weight.abs()));
            let scale = (largest / largest_code(format)) as f32;
            codes.scales.push(scale);
            let unit = |weight: f64| if scale > 0.0 { weight / f64::from(scale) } else { 0.0 };
            of_row.extend(block.iter().map(|weight| code(unit(*weight), format)));
        }
        if format == WeightFormat::Int8 {
            codes.bytes.extend(of_row);
        } else {
            let pair = |pair: &[u8]| pair[0] | pair.get(1).map_or(0, |second| second << 4);
            codes.bytes.extend(of_row.chunks(2).map(pair));
        }
    }
    codes
}

/// The code of a block's largest weight. The scale is this weight's magnitude divided by the code.
fn largest_code(format: WeightFormat) -> f64 {
    match format {
        WeightFormat::Int8 => 127.0,
        WeightFormat::Int4 => 7.0,
        WeightFormat::Nf4 | WeightFormat::Plain => 1.0,
    }
}

/// The code whose value is nearest to `weight`, in units of the scale.
fn code(weight: f64, format: WeightFormat) -> u8 {
    let whole = |largest: f64| (weight.round().clamp(-largest, largest) + largest + 1.0) as u8;
    match format {
        WeightFormat::Int8 => whole(127.0),
        WeightFormat::Int4 => whole(7.0),
        WeightFormat::Nf4 | WeightFormat::Plain => {
            let value = |code: usize| f64::from(NORMAL_FLOAT[code]);
            let above = (0..16).find(|code| value(*code) >= weight).unwrap_or(15);
            let below = above.saturating_sub(1);
            let is_below = weight - value(below) <= value(above) - weight;
            if is_below { below as u8 } else { above as u8 }
        }
    }
}

/// The dequantised weights, rows of `len` each.
pub fn restored(codes: &Codes, len: usize, format: WeightFormat) -> Vec<f64> {
    let units = |byte: &u8| match format {
        WeightFormat::Int8 => vec![f64::from(*byte) - 128.0],
        WeightFormat::Int4 => [byte & 15, byte >> 4].map(|code| f64::from(code) - 8.0).into(),
        WeightFormat::Nf4 | WeightFormat::Plain => {
            [byte & 15, byte >> 4].map(|code| f64::from(NORMAL_FLOAT[usize::from(code)])).into()
        }
    };
    let rows = codes.bytes.chunks(row_bytes(len, format).max(1));
    let scales = codes.scales.chunks(len.div_ceil(BLOCK).max(1));
    let of_row = |(bytes, scales): (&[u8], &[f32])| {
        let units = bytes.iter().flat_map(units).take(len).enumerate();
        units.map(|(place, unit)| unit * f64::from(scales[place / BLOCK])).collect::<Vec<f64>>()
    };
    rows.zip(scales).flat_map(of_row).collect()
}

/// The dequantised weights of `codes` and `scales`, `[rows, len]`.
pub(crate) fn dequantised<B: Kernels>(
    codes: Array<B>,
    scales: &Array<B>,
    rows: Rows,
    format: WeightFormat,
    element: Element,
) -> Array<B> {
    let Rows { count, len } = rows;
    let wide = element.widened();
    let blocks = len.div_ceil(BLOCK);
    let per_weight = scales.clone().cast(wide).reshape(&[count, blocks, 1]);
    let per_weight = per_weight.expand(&[count, blocks, BLOCK]).reshape(&[count, blocks * BLOCK]);
    let units = units(codes, rows, format, wide);
    (units * per_weight.narrow(1, 0..len)).cast(element)
}

/// Weights in units of their scales, `[rows, len]`.
fn units<B: Kernels>(
    codes: Array<B>,
    Rows { count, len }: Rows,
    format: WeightFormat,
    wide: Element,
) -> Array<B> {
    let device = codes.device();
    let bytes = codes.bytes_as(wide).reshape(&[count, row_bytes(len, format)]);
    if format == WeightFormat::Int8 {
        return bytes.shift(-128.0);
    }
    let second = bytes.clone().scale(1.0 / 16.0).floor();
    let first = bytes - second.clone().scale(16.0);
    let pairs = row_bytes(len, format);
    let parts = [first, second].map(|part| part.reshape(&[count, pairs, 1]));
    let codes = Array::concat(parts.into(), 2).reshape(&[count, 2 * pairs]).narrow(1, 0..len);
    if format == WeightFormat::Int4 {
        return codes.shift(-8.0);
    }
    let values = Array::from_f64(NORMAL_FLOAT.map(f64::from).to_vec(), &[16], wide, &device);
    values.select(0, &Indices::rounded(codes.flatten())).reshape(&[count, len])
}
