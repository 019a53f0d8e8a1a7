//! Phi-1 and 2, Phi-3 and 4.

use super::parts::{self, Defaults, Shape};
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::transformer::{
    Attention, FeedForward, Head, Norm, NormPlacement, QkNorm, Transformer,
};

const PHI: Defaults = Defaults {
    vocab_size: 51_200,
    num_attention_heads: 32,
    num_key_value_heads: None,
    head_dim: None,
    intermediate_size: Some(8192),
    max_position_embeddings: 2048,
    tie_word_embeddings: false,
};
const PHI3: Defaults = Defaults { vocab_size: 32_064, max_position_embeddings: 4096, ..PHI };

pub(super) fn phi(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, PHI)?;
    let qk_norm = fields.flag_or("qk_layernorm", false)?.then_some(QkNorm::PerHead(Norm::LAYER));
    let attention = Attention { qk_norm, ..parts::with_biases(shape.attention(), true) };
    let mlp = shape.plain_mlp(fields.activation_or("hidden_act", "gelu_new")?, true);
    let layer = parts::layer(
        attention,
        FeedForward::Dense(mlp),
        Norm::LAYER,
        NormPlacement::ParallelShared,
    );
    let decoder = shape.decoder(shape.equal_layers(layer), Norm::LAYER);
    Ok(Transformer {
        head: Head { bias: true, ..decoder.head },
        hidden_dropout: fields.has_rate("resid_pdrop", 0.0)?,
        attention_dropout: fields.has_rate("attention_dropout", 0.0)?,
        ..decoder
    })
}

pub(super) fn phi3(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, PHI3)?;
    let window = fields.optional_size("sliding_window")?;
    let attention = Attention { mask: parts::mask(window), ..shape.attention() };
    let mlp = shape.gated_mlp(fields.activation_or("hidden_act", "silu")?);
    let layer = parts::layer(attention, FeedForward::Dense(mlp), Norm::RMS, NormPlacement::Pre);
    Ok(Transformer {
        hidden_dropout: fields.has_rate("resid_pdrop", 0.0)?,
        attention_dropout: fields.has_rate("attention_dropout", 0.0)?,
        ..shape.decoder(shape.equal_layers(layer), Norm::RMS)
    })
}
