//! GPT-2, and GPT-BigCode, which is GPT-2 with multi-query attention.

use ordered_float::OrderedFloat;

use super::parts::{self, Defaults, Shape};
use crate::graph::Scores;
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::transformer::{
    Attention, Embedding, FeedForward, Norm, NormPlacement, Transformer,
};

const DEFAULTS: Defaults = Defaults {
    vocab_size: 50_257,
    num_attention_heads: 12,
    num_key_value_heads: None,
    head_dim: None,
    intermediate_size: None,
    max_position_embeddings: 1024,
    tie_word_embeddings: true,
};

pub(super) fn gpt2(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    build(fields, false, "gelu_new")
}

pub(super) fn gpt_bigcode(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    build(fields, fields.flag_or("multi_query", true)?, "gelu_pytorch_tanh")
}

fn build(
    fields: Fields<'_>,
    multi_query: bool,
    activation: &'static str,
) -> Result<Transformer, ModelError> {
    if fields.flag_or("add_cross_attention", false)? {
        return Err(fields.unsupported("`add_cross_attention`".to_owned()));
    }
    let shape = Shape::read(fields, DEFAULTS)?.with_derived_head_dim(fields)?;
    let norm = Norm::layer(fields.real_or("layer_norm_epsilon", 1e-5)?);
    let scaled = fields.flag_or("scale_attn_weights", true)?;
    let by_layer = fields.flag_or("scale_attn_by_inverse_layer_idx", false)?;
    let attention = Attention {
        num_kv_heads: if multi_query { 1 } else { shape.num_attention_heads },
        rotary: None,
        scores: Scores { scale: (!scaled).then_some(OrderedFloat(1.0)), ..Scores::default() },
        ..parts::with_biases(shape.attention(), true)
    };
    let mlp = shape.plain_mlp(fields.activation_or("activation_function", activation)?, true);
    // The layer's number, from 1, divides its scores.
    let layers = shape.layers(|index| {
        let scale = attention.scores.scale.unwrap_or_else(|| shape.attention_scale());
        let by_number = by_layer.then(|| scale / (index + 1) as f64);
        let scores = Scores { scale: by_number.or(attention.scores.scale), ..attention.scores };
        let attention = Attention { scores, ..attention.clone() };
        parts::layer(attention, FeedForward::Dense(mlp), norm, NormPlacement::Pre)
    });
    Ok(Transformer {
        embedding: Embedding::Tokens {
            vocab_size: shape.vocab_size,
            projected_from: None,
            positions: Some(shape.positions(fields)?),
            token_types: None,
            norm: None,
        },
        dropout: parts::dropout(
            fields,
            [Some(("embd_pdrop", 0.1)), Some(("resid_pdrop", 0.1)), Some(("attn_pdrop", 0.1))],
        )?,
        ..shape.decoder(layers, norm)
    })
}
