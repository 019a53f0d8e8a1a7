//! EleutherAI's GPT-NeoX (also Pythia) and GPT-J.

use super::parts::{self, Defaults, Shape};
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::transformer::{FeedForward, Head, Norm, NormPlacement, Transformer};

const NEOX: Defaults = Defaults {
    vocab_size: 50_432,
    num_attention_heads: 64,
    num_key_value_heads: None,
    head_dim: None,
    intermediate_size: Some(24_576),
    max_position_embeddings: 2048,
    tie_word_embeddings: false,
};
const GPTJ: Defaults =
    Defaults { vocab_size: 50_400, num_attention_heads: 16, intermediate_size: None, ..NEOX };

pub(super) fn gpt_neox(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, NEOX)?.with_derived_head_dim(fields)?;
    let bias = fields.flag_or("attention_bias", true)?;
    let placement = if fields.flag_or("use_parallel_residual", true)? {
        NormPlacement::ParallelSeparate
    } else {
        NormPlacement::Pre
    };
    let mlp = shape.plain_mlp(fields.activation_or("hidden_act", "gelu")?, true);
    let layer = parts::layer(
        parts::with_biases(shape.attention(), bias),
        FeedForward::Dense(mlp),
        Norm::LAYER,
        placement,
    );
    Ok(Transformer {
        hidden_dropout: fields.has_rate("hidden_dropout", 0.0)?,
        attention_dropout: fields.has_rate("attention_dropout", 0.0)?,
        ..shape.decoder(shape.equal_layers(layer), Norm::LAYER)
    })
}

pub(super) fn gptj(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, GPTJ)?.with_derived_head_dim(fields)?;
    let mlp = shape.plain_mlp(fields.activation_or("activation_function", "gelu_new")?, true);
    let layer = parts::layer(
        shape.attention(),
        FeedForward::Dense(mlp),
        Norm::LAYER,
        NormPlacement::ParallelShared,
    );
    let decoder = shape.decoder(shape.equal_layers(layer), Norm::LAYER);
    Ok(Transformer {
        head: Head { bias: true, ..decoder.head },
        hidden_dropout: fields.has_rate("resid_pdrop", 0.0)?,
        attention_dropout: fields.has_rate("attn_pdrop", 0.0)?,
        ..decoder
    })
}
