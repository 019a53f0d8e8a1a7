//! Falcon in its three generations: RW (ALiBi), 7B (multi-query) and 40B (grouped queries).

use super::parts::{self, Defaults, Shape};
use crate::graph::{AlibiSlopes, PositionBias, Real, Scores};
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::transformer::{
    Attention, DropoutRates, FeedForward, Norm, NormPlacement, Transformer,
};

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
    // The library zeroes probabilities with ALiBi only; and what attention puts out by the rate of probabilities,
    // unless feed-forward stands beside it.
    let of_attention = fields.rate_or("attention_dropout", 0.0)?;
    let is_sequential = placement == NormPlacement::Pre;
    Ok(Transformer {
        dropout: DropoutRates {
            attention: if has_alibi { of_attention } else { Real::default() },
            attention_output: if is_sequential { of_attention } else { Real::default() },
            feed_forward_output: fields.rate_or("hidden_dropout", 0.0)?,
            ..DropoutRates::default()
        },
        ..shape.decoder(shape.equal_layers(layer), norm)
    })
}
