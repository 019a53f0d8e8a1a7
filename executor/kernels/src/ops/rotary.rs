//! Rotary position embeddings: pairs of features rotated by an angle that grows with the position.
//!
//! The pairs are features `i` and `i + features / 2`, or neighbours; features beyond `features` are not rotated.
//!
//! ```text
//! y[i] = x[i] cos - x[j] sin
//! y[j] = x[j] cos + x[i] sin,   for the pair of i and j
//! ```
//!
//! # Source
//!
//! Su et al. 2021, *RoFormer*, section 3.2.2, <https://arxiv.org/abs/2104.09864>.

use std::f64::consts::PI;

use std::sync::OnceLock;

use ir::graph::{RotaryPairs, RotaryScaling};

use super::Kernels;
use crate::array::{Array, Element};

/// Cosines and sines of the angles at some positions.
#[derive(Clone, Debug)]
pub struct Rotary<B: Kernels> {
    /// `[positions, features / 2]`.
    cos: Array<B>,
    /// `[positions, features / 2]`.
    sin: Array<B>,
    /// The sines of the inverse rotation, computed at first use.
    sin_back: OnceLock<Array<B>>,
    pairs: RotaryPairs,
}

impl<B: Kernels> Rotary<B> {
    /// The rotation by `position * frequency` at `positions`, of one pair of features for each frequency; cosines and
    /// sines are multiplied by `attention_factor`. The rotation is computed in `element`.
    pub fn new(
        positions: &[u32],
        pairs: RotaryPairs,
        frequencies: &[f64],
        attention_factor: f64,
        element: Element,
        device: &B::Device,
    ) -> Self {
        let angles: Vec<f64> = positions
            .iter()
            .flat_map(|position| frequencies.iter().map(|f| f64::from(*position) * f))
            .collect();
        let table = |function: fn(f64) -> f64| {
            let values = angles.iter().map(|angle| function(*angle) * attention_factor).collect();
            Array::from_f64(values, &[positions.len(), frequencies.len()], element, device)
        };
        Self { cos: table(f64::cos), sin: table(f64::sin), sin_back: OnceLock::new(), pairs }
    }

    /// `x` rotated, `[b, s, heads, d]` or `[b, s, d]`.
    pub fn apply(&self, x: Array<B>) -> Array<B> {
        self.rotate(x, &self.sin)
    }

    /// The transpose of [`Self::apply`]: the gradient of `x` from the gradient of the rotated array. It is also the
    /// inverse where `attention_factor` is 1.
    pub fn apply_inverse(&self, x: Array<B>) -> Array<B> {
        self.rotate(x, self.sin_back.get_or_init(|| -self.sin.clone()))
    }

    fn rotate(&self, x: Array<B>, sin: &Array<B>) -> Array<B> {
        let (width, half) = (x.size(x.rank() - 1), self.cos.size(1));
        assert!(2 * half <= width, "no more features are rotated than there are");
        assert_eq!(self.cos.size(0), x.size(1), "an angle for every position");
        match self.pairs {
            RotaryPairs::Halves => B::rotate(x, &self.cos, sin),
            RotaryPairs::Neighbours => {
                // The first features of all pairs are moved in front of all second features, and moved back after the
                // rotation.
                let halves = B::rotate(transposed(&x, [half, 2]), &self.cos, sin);
                transposed(&halves, [2, half])
            }
        }
    }
}

/// `x` with its first `rows * columns` features transposed as a matrix.
fn transposed<B: Kernels>(x: &Array<B>, [rows, columns]: [usize; 2]) -> Array<B> {
    let shape = x.shape();
    let last = shape.len() - 1;
    let count = rows * columns;
    let (mut matrix, mut flat) = (shape.clone(), shape.clone());
    (matrix[last], flat[last]) = (rows, count);
    matrix.push(columns);
    let first = x.narrow(last, 0..count);
    let turned = first.reshape(&matrix).swap_dims(last, last + 1).reshape(&flat);
    if count == shape[last] {
        return turned;
    }
    Array::concat(vec![turned, x.narrow(last, count..shape[last])], last)
}

/// The rotation per position of each pair of `features` features, `theta^(-2 i / features)` in radians, scaled for
/// sequences of `length`; and the factor of cosines and sines.
///
/// # Source
///
/// Hugging Face transformers, `modeling_rope_utils.py`.
///
/// # Panics
///
/// If the kind of scaling is unknown.
pub fn frequencies(
    features: usize,
    theta: f64,
    scaling: &RotaryScaling,
    length: usize,
) -> (Vec<f64>, f64) {
    let pairs = features / 2;
    let of_base = |theta: f64| move |pair: usize| theta.powf(-2.0 * pair as f64 / features as f64);
    let plain = (0..pairs).map(of_base(theta));
    match scaling {
        RotaryScaling::None => (plain.collect(), 1.0),
        RotaryScaling::Linear { factor } => (plain.map(|it| it / factor.0).collect(), 1.0),
        RotaryScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_max_position_embeddings,
        } => {
            let blend = |frequency: f64| {
                let turns = original_max_position_embeddings.0 * frequency / (2.0 * PI);
                let range = high_freq_factor.0 - low_freq_factor.0;
                let unscaled = ((turns - low_freq_factor.0) / range).clamp(0.0, 1.0);
                frequency * (unscaled + (1.0 - unscaled) / factor.0)
            };
            (plain.map(blend).collect(), 1.0)
        }
        RotaryScaling::Yarn {
            factor,
            beta_fast,
            beta_slow,
            attention_factor,
            original_max_position_embeddings,
            truncates,
        } => {
            // The pair that makes `turns` turns within the original length.
            let pair = |turns: f64| {
                let wave = original_max_position_embeddings.0 / (turns * 2.0 * PI);
                features as f64 * wave.ln() / (2.0 * theta.ln())
            };
            let (mut first, mut last) = (pair(beta_fast.0), pair(beta_slow.0));
            if *truncates {
                (first, last) = (first.floor(), last.ceil());
            }
            (first, last) = (first.max(0.0), last.min(features as f64 - 1.0));
            // The blend of two equal pairs is a sharp step.
            last = last.max(first + 0.001);
            let blend = |(pair, frequency): (usize, f64)| {
                let scaled = ((pair as f64 - first) / (last - first)).clamp(0.0, 1.0);
                frequency * (1.0 - scaled + scaled / factor.0)
            };
            (plain.enumerate().map(blend).collect(), attention_factor.0)
        }
        RotaryScaling::LongRope {
            short_factor,
            long_factor,
            attention_factor,
            original_max_position_embeddings,
        } => {
            let is_longer = length as f64 > original_max_position_embeddings.0;
            let factors = if is_longer { long_factor } else { short_factor };
            let scaled = plain.zip(factors).map(|(frequency, factor)| frequency / factor.0);
            (scaled.collect(), attention_factor.0)
        }
        RotaryScaling::Dynamic { factor, max_position_embeddings } => {
            let ratio = (length as f64 / *max_position_embeddings as f64).max(1.0);
            let features = features as f64;
            let growth = (factor.0 * ratio - (factor.0 - 1.0)).powf(features / (features - 2.0));
            ((0..pairs).map(of_base(theta * growth)).collect(), 1.0)
        }
        RotaryScaling::Other(name) => panic!("a checked program has no rotary scaling `{name}`"),
    }
}
