//! Gemma 1 to 3.

use super::parts::{self, Defaults, Shape};
use crate::graph::Activation;
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::transformer::{Attention, FeedForward, Norm, NormPlacement, QkNorm, Transformer};

const GEMMA: Defaults = Defaults {
    vocab_size: 256_000,
    num_attention_heads: 16,
    num_key_value_heads: Some(16),
    head_dim: Some(256),
    intermediate_size: Some(24_576),
    max_position_embeddings: 8192,
    tie_word_embeddings: true,
};
const GEMMA2: Defaults = Defaults {
    num_attention_heads: 8,
    num_key_value_heads: Some(4),
    intermediate_size: Some(9216),
    ..GEMMA
};
const GEMMA3: Defaults =
    Defaults { vocab_size: 262_208, max_position_embeddings: 131_072, ..GEMMA2 };

pub(super) fn gemma(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, GEMMA)?;
    let attention = attention(fields, &shape)?;
    let mlp = FeedForward::Dense(shape.gated_mlp(activation(fields)?));
    let layer = parts::layer(attention, mlp, Norm::RMS, NormPlacement::Pre);
    Ok(Transformer {
        attention_dropout: fields.has_rate("attention_dropout", 0.0)?,
        ..shape.decoder(shape.equal_layers(layer), Norm::RMS)
    })
}

pub(super) fn gemma2(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, GEMMA2)?;
    sandwich(fields, &shape, &attention(fields, &shape)?, 2)
}

pub(super) fn gemma3_text(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, GEMMA3)?;
    let attention = attention(fields, &shape)?;
    let attention = Attention { qk_norm: Some(QkNorm::PerHead(Norm::RMS)), ..attention };
    sandwich(fields, &shape, &attention, fields.size_or("sliding_window_pattern", 6)?)
}

/// The language model of the multimodal one; its images are not modelled.
pub(super) fn gemma3(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    gemma3_text(fields.within("text_config").unwrap_or(fields))
}

/// Norms on both sides, and full attention in every `pattern`th layer only.
fn sandwich(
    fields: Fields<'_>,
    shape: &Shape,
    attention: &Attention,
    pattern: u64,
) -> Result<Transformer, ModelError> {
    let mlp = shape.gated_mlp(activation(fields)?);
    let window = fields.nullable_size_or("sliding_window", Some(4096))?;
    let sliding = shape.sliding_layers(fields, |index| (index + 1) % pattern != 0)?;
    let layers = shape.layers(|index| {
        let mask = parts::mask(window.filter(|_| sliding[index as usize]));
        let attention = Attention { mask, ..*attention };
        parts::layer(attention, FeedForward::Dense(mlp), Norm::RMS, NormPlacement::Sandwich)
    });
    Ok(Transformer {
        attention_dropout: fields.has_rate("attention_dropout", 0.0)?,
        ..shape.decoder(layers, Norm::RMS)
    })
}

fn attention(fields: Fields<'_>, shape: &Shape) -> Result<Attention, ModelError> {
    Ok(parts::with_biases(shape.attention(), fields.flag_or("attention_bias", false)?))
}

/// `hidden_activation`, or the older `hidden_act`.
fn activation(fields: Fields<'_>) -> Result<Activation, ModelError> {
    let older = fields.text_or("hidden_act", "gelu_pytorch_tanh")?;
    fields.activation_or("hidden_activation", older)
}
