//! Mistral and its mixture of experts, Mixtral.

use super::parts::{self, Defaults, Shape};
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::rotary::{self, RotaryDefaults};
use crate::model::transformer::{Attention, FeedForward, Norm, NormPlacement, Transformer};

const DEFAULTS: Defaults = Defaults {
    vocab_size: 32_000,
    num_attention_heads: 32,
    num_key_value_heads: Some(8),
    head_dim: None,
    intermediate_size: Some(14_336),
    max_position_embeddings: 131_072,
    tie_word_embeddings: false,
};

const MIXTRAL_THETA: f64 = 1e6;

pub(super) fn mistral(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, DEFAULTS)?;
    let mlp = shape.gated_mlp(fields.activation_or("hidden_act", "silu")?);
    let norm = Norm::rms(fields.real_or("rms_norm_eps", 1e-6)?);
    build(fields, &shape, FeedForward::Dense(mlp), norm, (rotary::THETA, Some(4096)))
}

pub(super) fn mixtral(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, DEFAULTS)?;
    let expert = shape.gated_mlp(fields.activation_or("hidden_act", "silu")?);
    let (num_experts, top_k) =
        (fields.size_or("num_experts", 8)?, fields.size_or("num_experts_per_tok", 2)?);
    let mixture = parts::mixture(num_experts, top_k, expert);
    let norm = Norm::rms(fields.real_or("rms_norm_eps", 1e-5)?);
    build(fields, &shape, FeedForward::Mixture(mixture), norm, (MIXTRAL_THETA, None))
}

fn build(
    fields: Fields<'_>,
    shape: &Shape,
    feed_forward: FeedForward,
    norm: Norm,
    (theta, default_window): (f64, Option<u64>),
) -> Result<Transformer, ModelError> {
    let window = fields.nullable_size_or("sliding_window", default_window)?;
    let defaults = RotaryDefaults { theta, ..RotaryDefaults::default() };
    let rotary = Some(rotary::rotation(fields, shape.head_dim, defaults)?);
    let attention = Attention { mask: parts::mask(window), rotary, ..shape.attention() };
    let layer = parts::layer(attention, feed_forward, norm, NormPlacement::Pre);
    Ok(Transformer {
        dropout: parts::attention_dropout(fields)?,
        ..shape.decoder(shape.equal_layers(layer), norm)
    })
}
