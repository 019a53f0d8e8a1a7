//! Llama 1 to 3.

use super::parts::{self, Defaults, Shape};
use crate::model::error::ModelError;
use crate::model::fields::Fields;
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

pub(super) fn llama(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, DEFAULTS)?.of_whole_heads(fields)?;
    let norm = Norm::rms(fields.real_or("rms_norm_eps", 1e-6)?);
    let rotary = Some(shape.rotation(fields)?);
    let attention = Attention {
        rotary,
        ..parts::with_biases(shape.attention(), fields.flag_or("attention_bias", false)?)
    };
    let mlp = parts::with_mlp_biases(
        shape.gated_mlp(fields.activation_or("hidden_act", "silu")?),
        fields.flag_or("mlp_bias", false)?,
    );
    let layer = parts::layer(attention, FeedForward::Dense(mlp), norm, NormPlacement::Pre);
    Ok(Transformer {
        dropout: parts::attention_dropout(fields)?,
        ..shape.decoder(shape.equal_layers(layer), norm)
    })
}
