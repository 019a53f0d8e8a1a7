//! StarCoder2.

use super::parts::{self, Defaults, Shape};
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::transformer::{Attention, FeedForward, Norm, NormPlacement, Transformer};

const DEFAULTS: Defaults = Defaults {
    vocab_size: 49_152,
    num_attention_heads: 24,
    num_key_value_heads: Some(2),
    head_dim: None,
    intermediate_size: Some(12_288),
    max_position_embeddings: 4096,
    tie_word_embeddings: true,
};

pub(super) fn starcoder2(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, DEFAULTS)?;
    let bias = fields.flag_or("use_bias", true)?;
    let window = fields.optional_size("sliding_window")?;
    let norm = Norm::layer(fields.real_or("norm_epsilon", 1e-5)?);
    let rotary = Some(shape.rotation(fields)?);
    let attention = Attention {
        mask: parts::mask(window),
        rotary,
        ..parts::with_biases(shape.attention(), bias)
    };
    let mlp = shape.plain_mlp(fields.activation_or("hidden_act", "gelu_pytorch_tanh")?, bias);
    let layer = parts::layer(attention, FeedForward::Dense(mlp), norm, NormPlacement::Pre);
    Ok(Transformer {
        dropout: parts::dropout(
            fields,
            [
                Some(("embedding_dropout", 0.0)),
                Some(("residual_dropout", 0.0)),
                Some(("attention_dropout", 0.0)),
            ],
        )?,
        ..shape.decoder(shape.equal_layers(layer), norm)
    })
}
