//! OPT.

use super::parts::{self, Defaults, Shape};
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::transformer::{
    Attention, DropoutRates, Embedding, FeedForward, Head, Norm, NormPlacement, Positions,
    Transformer,
};

const DEFAULTS: Defaults = Defaults {
    vocab_size: 50_272,
    num_attention_heads: 12,
    num_key_value_heads: None,
    head_dim: None,
    intermediate_size: Some(3072),
    max_position_embeddings: 2048,
    tie_word_embeddings: true,
};

/// PyTorch's default.
const NORM_EPSILON: f64 = 1e-5;

/// OPT's table of positions starts with two rows that stand for no position.
const POSITION_OFFSET: u64 = 2;

pub(super) fn opt(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, DEFAULTS)?.with_derived_head_dim(fields)?;
    let bias = fields.flag_or("enable_bias", true)?;
    let affine = fields.flag_or("layer_norm_elementwise_affine", true)?;
    let norm = Norm { weight: affine, bias: affine, ..Norm::layer(NORM_EPSILON) };
    let norm_first = fields.flag_or("do_layer_norm_before", true)?;
    let placement = if norm_first { NormPlacement::Pre } else { NormPlacement::PostResidual };
    let attention = Attention {
        num_kv_heads: shape.num_attention_heads,
        rotary: None,
        ..parts::with_biases(shape.attention(), bias)
    };
    let mlp = shape.plain_mlp(fields.activation_or("activation_function", "relu")?, bias);
    let layer = parts::layer(attention, FeedForward::Dense(mlp), norm, placement);
    let projection =
        fields.optional_size("word_embed_proj_dim")?.filter(|width| *width != shape.hidden_size);
    let has_final_norm = norm_first && !fields.flag_or("_remove_final_layer_norm", false)?;
    let decoder = shape.decoder(shape.equal_layers(layer), norm);
    Ok(Transformer {
        embedding: Embedding::Tokens {
            vocab_size: shape.vocab_size,
            projected_from: projection,
            positions: Some(Positions {
                rows: shape.positions(fields)?.rows + POSITION_OFFSET,
                first: POSITION_OFFSET,
            }),
            token_types: None,
            norm: None,
        },
        final_norm: has_final_norm.then_some(norm),
        head: Head { projected_to: projection, ..decoder.head },
        dropout: DropoutRates {
            layers: fields.rate_or("layerdrop", 0.0)?,
            ..parts::dropout(
                fields,
                [None, Some(("dropout", 0.1)), Some(("attention_dropout", 0.0))],
            )?
        },
        ..decoder
    })
}
