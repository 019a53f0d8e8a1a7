//! Falcon in its three generations: RW (ALiBi), 7B (multi-query) and 40B (grouped queries).

use super::parts::{self, Defaults, Shape};
use crate::graph::{AlibiSlopes, PositionBias, Scores};
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::transformer::{Attention, FeedForward, Norm, NormPlacement, Transformer};

const DEFAULTS: Defaults = Defaults {
    vocab_size: 65_024,
    num_attention_heads: 71,
    num_key_value_heads: None,
    head_dim: None,
    intermediate_size: None,
    max_position_embeddings: 2048,
    tie_word_embeddings: true,
};

pub(super) fn falcon(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, DEFAULTS)?.with_derived_head_dim(fields)?;
    let bias = fields.flag_or("bias", false)?;
    let new_architecture = fields.flag_or("new_decoder_architecture", false)?;
    let num_kv_heads = if new_architecture {
        shape.num_key_value_heads
    } else if fields.flag_or("multi_query", true)? {
        1
    } else {
        shape.num_attention_heads
    };
    let norm = Norm::layer(fields.real_or("layer_norm_epsilon", 1e-5)?);
    let rotary = shape.rotation(fields)?;
    let has_alibi = fields.flag_or("alibi", false)?;
    let bias_of_positions =
        if has_alibi { PositionBias::Alibi(AlibiSlopes::Rounded) } else { PositionBias::None };
    let attention = Attention {
        num_kv_heads,
        rotary: (!has_alibi).then_some(rotary),
        scores: Scores { bias: bias_of_positions, ..Scores::default() },
        ..parts::with_biases(shape.attention(), bias)
    };
    let mlp = shape.plain_mlp(fields.activation_or("activation", "gelu")?, bias);
    let num_norms = fields
        .optional_size("num_ln_in_parallel_attn")?
        .unwrap_or(if new_architecture { 2 } else { 1 });
    let placement = match (fields.flag_or("parallel_attn", true)?, num_norms) {
        (false, _) => NormPlacement::Pre,
        (true, 2) => NormPlacement::ParallelSeparate,
        (true, _) => NormPlacement::ParallelShared,
    };
    let layer = parts::layer(attention, FeedForward::Dense(mlp), norm, placement);
    Ok(Transformer {
        dropout: parts::dropout(
            fields,
            [None, Some(("hidden_dropout", 0.0)), Some(("attention_dropout", 0.0))],
        )?,
        ..shape.decoder(shape.equal_layers(layer), norm)
    })
}
