//! Cohere's Command R, R+ and R7B.

use super::parts::{self, Defaults, Shape};
use crate::graph::{RotaryPairs, Rotation};
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::rotary::{self, RotaryDefaults};
use crate::model::transformer::{
    Attention, FeedForward, Norm, NormPlacement, QkNorm, Scales, Transformer,
};

const DEFAULTS: Defaults = Defaults {
    vocab_size: 256_000,
    num_attention_heads: 64,
    num_key_value_heads: None,
    head_dim: None,
    intermediate_size: Some(22_528),
    max_position_embeddings: 8192,
    tie_word_embeddings: true,
};

pub(super) fn cohere(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, DEFAULTS)?;
    let norm = norm(fields)?;
    let qk_norm = fields.flag_or("use_qk_norm", false)?.then_some(QkNorm::EachHead(norm));
    let rotary = Some(rotation(fields, &shape)?);
    build(fields, &shape, |_| Attention { qk_norm, rotary: rotary.clone(), ..shape.attention() })
}

/// Three layers with a sliding window and rotated positions, then one with neither.
pub(super) fn cohere2(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, DEFAULTS)?;
    let window = fields.nullable_size_or("sliding_window", Some(4096))?;
    let pattern = fields.size_or("sliding_window_pattern", 4)?;
    let sliding = shape.sliding_layers(fields, |index| (index + 1) % pattern != 0)?;
    let rotary = rotation(fields, &shape)?;
    build(fields, &shape, |index| {
        let window = window.filter(|_| sliding[index as usize]);
        let rotary = window.map(|_| rotary.clone());
        Attention { mask: parts::mask(window), rotary, ..shape.attention() }
    })
}

fn build(
    fields: Fields<'_>,
    shape: &Shape,
    attention: impl Fn(u64) -> Attention,
) -> Result<Transformer, ModelError> {
    let norm = norm(fields)?;
    let bias = fields.flag_or("attention_bias", false)?;
    let mlp = shape.gated_mlp(fields.activation_or("hidden_act", "silu")?);
    let layers = shape.layers(|index| {
        parts::layer(
            parts::with_biases(attention(index), bias),
            FeedForward::Dense(mlp),
            norm,
            NormPlacement::ParallelShared,
        )
    });
    Ok(Transformer {
        dropout: parts::attention_dropout(fields)?,
        scales: Scales {
            logits: Some(fields.real_or("logit_scale", 0.0625)?.into()).filter(|it| *it != 1.0),
            ..Scales::default()
        },
        ..shape.decoder(layers, norm)
    })
}

fn norm(fields: Fields<'_>) -> Result<Norm, ModelError> {
    Ok(parts::layer_norm_without_bias(fields.real_or("layer_norm_eps", 1e-5)?))
}

/// Neighbouring features are rotated together.
fn rotation(fields: Fields<'_>, shape: &Shape) -> Result<Rotation, ModelError> {
    let defaults = RotaryDefaults { pairs: RotaryPairs::Neighbours, ..RotaryDefaults::default() };
    rotary::rotation(fields, shape.head_dim, defaults)
}
