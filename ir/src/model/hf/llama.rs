//! Llama 1 to 3, and what differs from them in biases and rotation alone: Seed-OSS and ERNIE 4.5.

use super::parts::{self, Defaults, Shape};
use crate::graph::RotaryPairs;
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::rotary::{self, RotaryDefaults};
use crate::model::transformer::{Attention, FeedForward, Norm, NormPlacement, Transformer};

const DEFAULTS: Defaults = Defaults {
    vocab_size: 32_000,
    num_attention_heads: 32,
    num_key_value_heads: None,
    head_dim: None,
    intermediate_size: Some(11_008),
    max_position_embeddings: 2048,
    tie_word_embeddings: false,
};

const SEED_OSS: Defaults = Defaults {
    vocab_size: 155_136,
    num_attention_heads: 80,
    num_key_value_heads: Some(8),
    head_dim: Some(128),
    intermediate_size: Some(27_648),
    max_position_embeddings: 524_288,
    tie_word_embeddings: false,
};
const ERNIE_4_5: Defaults = Defaults {
    vocab_size: 103_424,
    num_attention_heads: 16,
    num_key_value_heads: Some(2),
    head_dim: Some(128),
    intermediate_size: Some(3072),
    max_position_embeddings: 131_072,
    tie_word_embeddings: true,
};

pub(super) fn llama(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, DEFAULTS)?.of_whole_heads(fields)?;
    let rotary = Some(shape.rotation(fields)?);
    let attention = Attention {
        rotary,
        ..parts::with_biases(shape.attention(), fields.flag_or("attention_bias", false)?)
    };
    let decoder = decoder(fields, &shape, attention, 1e-6, fields.flag_or("mlp_bias", false)?)?;
    Ok(Transformer { dropout: parts::attention_dropout(fields)?, ..decoder })
}

pub(super) fn seed_oss(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, SEED_OSS)?;
    let attention = Attention {
        rotary: Some(shape.rotation(fields)?),
        output_bias: fields.flag_or("attention_out_bias", false)?,
        ..parts::with_biases(shape.attention(), fields.flag_or("attention_bias", true)?)
    };
    let decoder = decoder(fields, &shape, attention, 1e-6, fields.flag_or("mlp_bias", false)?)?;
    let rates = [None, Some(("residual_dropout", 0.1)), Some(("attention_dropout", 0.1))];
    Ok(Transformer { dropout: parts::dropout(fields, rates)?, ..decoder })
}

/// Neighbouring features are rotated together; nothing is dropped.
pub(super) fn ernie4_5(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, ERNIE_4_5)?;
    let bias = fields.flag_or("use_bias", false)?;
    let defaults = RotaryDefaults {
        theta: 500_000.0,
        pairs: RotaryPairs::Neighbours,
        ..RotaryDefaults::default()
    };
    let attention = Attention {
        rotary: Some(rotary::rotation(fields, shape.head_dim, defaults)?),
        ..parts::with_biases(shape.attention(), bias)
    };
    decoder(fields, &shape, attention, 1e-5, bias)
}

/// Equal layers, each with a norm before attention and one before a gated feed-forward block.
fn decoder(
    fields: Fields<'_>,
    shape: &Shape,
    attention: Attention,
    epsilon: f64,
    mlp_bias: bool,
) -> Result<Transformer, ModelError> {
    let norm = Norm::rms(fields.real_or("rms_norm_eps", epsilon)?);
    let mlp = shape.gated_mlp(fields.activation_or("hidden_act", "silu")?);
    let mlp = FeedForward::Dense(parts::with_mlp_biases(mlp, mlp_bias));
    let layer = parts::layer(attention, mlp, norm, NormPlacement::Pre);
    Ok(shape.decoder(shape.equal_layers(layer), norm))
}
