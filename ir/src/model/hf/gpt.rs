//! GPT-2 and GPT-BigCode, with several scales of scores, and GPT-J, with a number of rotated features.

use ordered_float::OrderedFloat;

use super::parts::{Finished, Shape};
use crate::graph::{RotaryPairs, Rotation};
use crate::model::fields::Fields;
use crate::model::rotary;
use crate::model::transformer::Transformer;

pub(super) fn gpt2(fields: Fields<'_>, shape: &Shape, transformer: &mut Transformer) -> Finished {
    let scaled = fields.flag_or("scale_attn_weights", true)?;
    let by_layer = fields.flag_or("scale_attn_by_inverse_layer_idx", false)?;
    if !scaled {
        transformer.each_attention(|attention| attention.scores.scale = Some(OrderedFloat(1.0)));
    }
    if by_layer {
        // Scores are divided by the layer's number, counted from 1.
        transformer.each_layer(|index, layer| {
            if let Some(attention) = layer.attention_mut() {
                let scale = attention.scores.scale.unwrap_or_else(|| shape.attention_scale());
                attention.scores.scale = Some(scale / (index + 1) as f64);
            }
            Ok(())
        })?;
    }
    Ok(())
}

pub(super) fn gptj(fields: Fields<'_>, shape: &Shape, transformer: &mut Transformer) -> Finished {
    let rotated = fields.nullable_size_or("rotary_dim", Some(64))?;
    transformer.each_attention(|attention| {
        attention.rotary = Some(Rotation {
            features: rotated.filter(|features| *features < shape.head_dim),
            pairs: RotaryPairs::Neighbours,
            ..Rotation::plain(rotary::THETA)
        });
    });
    Ok(())
}
