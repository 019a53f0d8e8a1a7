//! Cohere's Command R, R+ and R7B.

use super::parts::{self, Defaults, LAYER_NORM_WITHOUT_BIAS, Shape};
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::transformer::{Attention, FeedForward, NormPlacement, QkNorm, Transformer};

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
    let qk_norm =
        fields.flag_or("use_qk_norm", false)?.then_some(QkNorm::EachHead(LAYER_NORM_WITHOUT_BIAS));
    build(fields, &shape, |_| Attention { qk_norm, ..shape.attention() })
}

/// Three layers with a sliding window and rotated positions, then one with neither.
pub(super) fn cohere2(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, DEFAULTS)?;
    let window = fields.nullable_size_or("sliding_window", Some(4096))?;
    let pattern = fields.size_or("sliding_window_pattern", 4)?;
    let sliding = shape.sliding_layers(fields, |index| (index + 1) % pattern != 0)?;
    build(fields, &shape, |index| {
        let window = window.filter(|_| sliding[index as usize]);
        Attention { mask: parts::mask(window), rotary: window.is_some(), ..shape.attention() }
    })
}

fn build(
    fields: Fields<'_>,
    shape: &Shape,
    attention: impl Fn(u64) -> Attention,
) -> Result<Transformer, ModelError> {
    let bias = fields.flag_or("attention_bias", false)?;
    let mlp = shape.gated_mlp(fields.activation_or("hidden_act", "silu")?);
    let layers = shape.layers(|index| {
        parts::layer(
            parts::with_biases(attention(index), bias),
            FeedForward::Dense(mlp),
            LAYER_NORM_WITHOUT_BIAS,
            NormPlacement::ParallelShared,
        )
    });
    Ok(Transformer {
        attention_dropout: fields.has_rate("attention_dropout", 0.0)?,
        ..shape.decoder(layers, LAYER_NORM_WITHOUT_BIAS)
    })
}
