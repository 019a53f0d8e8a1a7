//! Falcon in its three generations: RW (ALiBi), 7B (multi-query) and 40B (grouped queries).

use super::parts::{Finished, Shape};
use crate::graph::{AlibiSlopes, PositionBias, Real};
use crate::model::fields::Fields;
use crate::model::transformer::{DropoutRates, NormPlacement, Transformer};

pub(super) fn falcon(fields: Fields<'_>, shape: &Shape, transformer: &mut Transformer) -> Finished {
    let new_architecture = fields.flag_or("new_decoder_architecture", false)?;
    let num_kv_heads = if new_architecture {
        shape.num_key_value_heads
    } else if fields.flag_or("multi_query", true)? {
        1
    } else {
        shape.num_attention_heads
    };
    let num_norms = fields
        .optional_size("num_ln_in_parallel_attn")?
        .unwrap_or(if new_architecture { 2 } else { 1 });
    let norm_placement = match (fields.flag_or("parallel_attn", true)?, num_norms) {
        (false, _) => NormPlacement::Pre,
        (true, 2) => NormPlacement::ParallelSeparate,
        (true, _) => NormPlacement::ParallelShared,
    };
    let has_alibi = fields.flag_or("alibi", false)?;
    for layers in &mut transformer.layers {
        layers.layer.norm_placement = norm_placement;
        let Some(attention) = layers.layer.attention_mut() else { continue };
        attention.num_kv_heads = num_kv_heads;
        if has_alibi {
            attention.rotary = None;
            attention.scores.bias = PositionBias::Alibi(AlibiSlopes::Rounded);
        }
    }
    // The library applies dropout to probabilities only with ALiBi. It applies dropout to the output of attention, at
    // the probabilities' rate, unless attention and feed-forward are parallel.
    let of_attention = fields.rate_or("attention_dropout", 0.0)?;
    let is_sequential = norm_placement == NormPlacement::Pre;
    transformer.dropout = DropoutRates {
        attention: if has_alibi { of_attention } else { Real::default() },
        attention_output: if is_sequential { of_attention } else { Real::default() },
        feed_forward_output: fields.rate_or("hidden_dropout", 0.0)?,
        ..DropoutRates::default()
    };
    Ok(())
}
