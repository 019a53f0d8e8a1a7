//! BLOOM.

use super::parts::{self, Defaults, Shape};
use crate::graph::{Activation, AlibiSlopes, PositionBias, Scores};
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::transformer::{
    Attention, Embedding, FeedForward, Norm, NormPlacement, Transformer,
};

const DEFAULTS: Defaults = Defaults {
    vocab_size: 250_880,
    num_attention_heads: 8,
    num_key_value_heads: None,
    head_dim: None,
    intermediate_size: None,
    max_position_embeddings: 2048,
    tie_word_embeddings: true,
};

pub(super) fn bloom(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, DEFAULTS)?.with_derived_head_dim(fields)?;
    let shape = Shape { intermediate_size: 4 * shape.hidden_size, ..shape };
    let norm = Norm::layer(fields.real_or("layer_norm_epsilon", 1e-5)?);
    let attention = Attention {
        num_kv_heads: shape.num_attention_heads,
        rotary: None,
        scores: Scores { bias: PositionBias::Alibi(AlibiSlopes::PowerBelow), ..Scores::default() },
        ..parts::with_biases(shape.attention(), true)
    };
    let mlp = FeedForward::Dense(shape.plain_mlp(Activation::GeluTanh, true));
    let placement = if fields.flag_or("apply_residual_connection_post_layernorm", false)? {
        NormPlacement::PreWithResidual
    } else {
        NormPlacement::Pre
    };
    let layer = parts::layer(attention, mlp, norm, placement);
    Ok(Transformer {
        embedding: Embedding::Tokens {
            vocab_size: shape.vocab_size,
            projected_from: None,
            positions: None,
            token_types: None,
            norm: Some(norm),
        },
        dropout: parts::dropout(
            fields,
            [None, Some(("hidden_dropout", 0.0)), Some(("attention_dropout", 0.0))],
        )?,
        // BLOOM's positions are by ALiBi, and its configuration states no length.
        max_position_embeddings: fields.optional_size("seq_length")?,
        ..shape.decoder(shape.equal_layers(layer), norm)
    })
}
