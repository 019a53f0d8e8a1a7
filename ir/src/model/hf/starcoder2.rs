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
    let attention =
        Attention { mask: parts::mask(window), ..parts::with_biases(shape.attention(), bias) };
    let mlp = shape.plain_mlp(fields.activation_or("hidden_act", "gelu_pytorch_tanh")?, bias);
    let layer = parts::layer(attention, FeedForward::Dense(mlp), Norm::LAYER, NormPlacement::Pre);
    Ok(Transformer {
        hidden_dropout: fields.has_rate("residual_dropout", 0.0)?,
        attention_dropout: fields.has_rate("attention_dropout", 0.0)?,
        ..shape.decoder(shape.equal_layers(layer), Norm::LAYER)
    })
}
