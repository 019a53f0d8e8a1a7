//! Phi-1 and 2, Phi-3 and 4.

use super::parts::{self, Defaults, Shape};
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::rotary::{self, RotaryDefaults};
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
    let norm = Norm::layer(fields.real_or("layer_norm_eps", 1e-5)?);
    let qk_norm = fields.flag_or("qk_layernorm", false)?.then_some(QkNorm::PerHead(norm));
    let defaults = RotaryDefaults { share: 0.5, ..RotaryDefaults::default() };
    let rotary = Some(rotary::rotation(fields, shape.head_dim, defaults)?);
    let attention = Attention { qk_norm, rotary, ..parts::with_biases(shape.attention(), true) };
    let mlp = shape.plain_mlp(fields.activation_or("hidden_act", "gelu_new")?, true);
    let layer =
        parts::layer(attention, FeedForward::Dense(mlp), norm, NormPlacement::ParallelShared);
    let decoder = shape.decoder(shape.equal_layers(layer), norm);
    Ok(Transformer {
        head: Head { bias: true, ..decoder.head },
        dropout: parts::dropout(
            fields,
            [
                Some(("embd_pdrop", 0.0)),
                Some(("resid_pdrop", 0.0)),
                Some(("attention_dropout", 0.0)),
            ],
        )?,
        ..decoder
    })
}

pub(super) fn phi3(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, PHI3)?;
    let window = fields.optional_size("sliding_window")?;
    let norm = Norm::rms(fields.real_or("rms_norm_eps", 1e-5)?);
    let rotary = Some(shape.rotation(fields)?);
    let attention = Attention { mask: parts::mask(window), rotary, ..shape.attention() };
    let mlp = shape.gated_mlp(fields.activation_or("hidden_act", "silu")?);
    let layer = parts::layer(attention, FeedForward::Dense(mlp), norm, NormPlacement::Pre);
    Ok(Transformer {
        dropout: parts::dropout(
            fields,
            [None, Some(("resid_pdrop", 0.0)), Some(("attention_dropout", 0.0))],
        )?,
        ..shape.decoder(shape.equal_layers(layer), norm)
    })
}
