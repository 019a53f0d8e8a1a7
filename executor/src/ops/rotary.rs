//! Rotary position embeddings: pairs of features turned by an angle that grows with the position.
//!
//! The pairs are features `i` and `i + features / 2`, as in Hugging Face transformers; features beyond
//! `features` stay as they are.
//!
//! ```text
//! y[i]     = x[i] cos - x[i + n] sin
//! y[i + n] = x[i + n] cos + x[i] sin,   n = features / 2
//! ```
//!
//! # Source
//!
//! Su et al. 2021, *RoFormer*, section 3.2.2, <https://arxiv.org/abs/2104.09864>.

use std::f64::consts::PI;

use ir::model::RotaryScaling;

use super::Kernels;
use crate::array::{Array, Element};

/// Cosines and sines of the angles at some positions.
#[derive(Clone, Debug)]
pub struct Rotary<B: Kernels> {
    /// `[positions, features / 2]`.
    cos: Array<B>,
    /// `[positions, features / 2]`.
    sin: Array<B>,
}

impl<B: Kernels> Rotary<B> {
    /// The rotation of the first `features` features at `positions` by `position * frequency`; cosines and
    /// sines times `attention_factor`. What it is applied to is rotated in `element`.
    pub fn new(
        positions: &[u32],
        features: usize,
        frequencies: &[f64],
        attention_factor: f64,
        element: Element,
        device: &B::Device,
    ) -> Self {
        assert_eq!(frequencies.len() * 2, features, "a frequency for every pair of features");
        let angles: Vec<f64> = positions
            .iter()
            .flat_map(|position| frequencies.iter().map(|f| f64::from(*position) * f))
            .collect();
        let table = |function: fn(f64) -> f64| {
            let values = angles.iter().map(|angle| function(*angle) * attention_factor).collect();
            Array::from_f64(values, &[positions.len(), frequencies.len()], element, device)
        };
        Self { cos: table(f64::cos), sin: table(f64::sin) }
    }

    /// `x` rotated, `[b, s, heads, d]` or `[b, s, d]`.
    pub fn apply(&self, x: Array<B>) -> Array<B> {
        rotate(x, &self.cos, &self.sin)
    }

    /// The transpose of [`Self::apply`]: the gradient of `x` from that of what was rotated. It is the
    /// inverse too where `attention_factor` is 1.
    pub fn apply_inverse(&self, x: Array<B>) -> Array<B> {
        rotate(x, &self.cos, &-self.sin.clone())
    }
}

/// The angle of each pair of features per position, in radians: `theta^(-2 i / features)`, scaled.
///
/// # Source
///
/// Hugging Face transformers, `modeling_rope_utils.py`, of which `default`, `linear` and `llama3` are here.
pub fn frequencies(features: usize, theta: f64, scaling: RotaryScaling) -> Vec<f64> {
    (0..features / 2)
        .map(|pair| theta.powf(-2.0 * pair as f64 / features as f64))
        .map(|frequency| scaled(frequency, scaling))
        .collect()
}

fn scaled(frequency: f64, scaling: RotaryScaling) -> f64 {
    match scaling {
        RotaryScaling::None => frequency,
        RotaryScaling::Linear { factor } => frequency / factor,
        RotaryScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_max_position_embeddings,
        } => {
            let turns = original_max_position_embeddings * frequency / (2.0 * PI);
            let share = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor);
            let unscaled = share.clamp(0.0, 1.0);
            frequency * (unscaled + (1.0 - unscaled) / factor)
        }
    }
}

fn rotate<B: Kernels>(x: Array<B>, cos: &Array<B>, sin: &Array<B>) -> Array<B> {
    assert!(2 * cos.size(1) <= x.size(x.rank() - 1), "no more features are rotated than there are");
    assert_eq!(cos.size(0), x.size(1), "an angle for every position");
    B::rotate(x, cos, sin)
}
