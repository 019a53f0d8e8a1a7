//! Norms of a transformer.

use ordered_float::OrderedFloat;
use serde::Deserialize;

use crate::graph::Real;

/// A norm with its trained parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Norm {
    /// Layer norm or RMS norm.
    pub kind: NormType,
    /// True where the norm has a trained scale.
    pub weight: bool,
    /// True where the norm has a trained shift.
    pub bias: bool,
    /// Added to the variance or mean square.
    pub epsilon: Real,
    /// True where the scale is the trained weight plus 1 (Gemma).
    pub unit_offset: bool,
}

impl Norm {
    /// RMS norm with a scale.
    pub const fn rms(epsilon: f64) -> Self {
        let kind = NormType::RmsNorm;
        let epsilon = OrderedFloat(epsilon);
        Self { kind, weight: true, bias: false, epsilon, unit_offset: false }
    }

    /// Layer norm with scale and shift.
    pub const fn layer(epsilon: f64) -> Self {
        let kind = NormType::LayerNorm;
        let epsilon = OrderedFloat(epsilon);
        Self { kind, weight: true, bias: true, epsilon, unit_offset: false }
    }
}

/// The two norms of transformers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NormType {
    /// Normalizes by mean and variance.
    LayerNorm,
    /// Normalizes by the root mean square.
    RmsNorm,
}

/// Placement of the norms of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NormPlacement {
    /// Before attention and before feed-forward (GPT-2, Llama).
    Pre,
    /// As `Pre`, but the residual is the norm's output (an option of BLOOM).
    PreWithResidual,
    /// After each residual sum (BERT, OPT-350m).
    PostResidual,
    /// On the outputs of attention and feed-forward, before the sum (OLMo-2).
    PostBlock,
    /// Before and after attention, and before and after feed-forward (Gemma 2 and 3).
    Sandwich,
    /// Attention and feed-forward in parallel, on the output of one norm (GPT-J, Falcon-7B, Cohere, Phi-2).
    ParallelShared,
    /// Attention and feed-forward in parallel, each with its own norm (GPT-NeoX, Falcon-40B).
    ParallelSeparate,
}
