//! T5 and Flan-T5: an encoder, and a trained relative position bias.

use ordered_float::OrderedFloat;

use super::parts::{Finished, Shape};
use crate::graph::{AttentionMask, PositionBias, Real, Scores};
use crate::model::fields::Fields;
use crate::model::transformer::{
    Attention, DropoutRates, Encoder, Layer, Layers, Mixer, Scales, Transformer,
};

/// T5: encoder and decoder share the token table, whether or not the head is tied to it.
pub(super) fn t5(fields: Fields<'_>, shape: &Shape, transformer: &mut Transformer) -> Finished {
    with_biases(fields, shape, transformer, |index| index == 0)
}

/// MT5, which transformers ties since version 5, regardless of its configuration.
pub(super) fn mt5(fields: Fields<'_>, shape: &Shape, transformer: &mut Transformer) -> Finished {
    transformer.head.tied = true;
    t5(fields, shape, transformer)
}

/// UMT5: MT5 whose layers have position biases of their own.
pub(super) fn umt5(fields: Fields<'_>, shape: &Shape, transformer: &mut Transformer) -> Finished {
    transformer.head.tied = true;
    with_biases(fields, shape, transformer, |_| true)
}

/// T5 in which layers with these indices have a position bias that the layers after them add too.
fn with_biases(
    fields: Fields<'_>,
    shape: &Shape,
    transformer: &mut Transformer,
    has_bias: impl Fn(u64) -> bool,
) -> Finished {
    let num_decoder_layers = match fields.optional_size("num_decoder_layers")? {
        Some(_) => fields.num_layers("num_decoder_layers")?,
        None => shape.num_hidden_layers,
    };
    let decoder_shape = Shape { num_hidden_layers: num_decoder_layers, ..*shape };
    let num_buckets = fields.size_or("relative_attention_num_buckets", 32)?;
    let max_distance = fields.size_or("relative_attention_max_distance", 128)?;
    // Half of the buckets are for later positions. Half of the other buckets have one distance each; the rest divide
    // the range up to the largest distance.
    if num_buckets < 4 || max_distance <= num_buckets / 2 {
        let what = format!("{num_buckets} buckets of distances up to {max_distance}");
        return Err(fields.unsupported(what));
    }
    let Some(Layers { layer: plain, .. }) = transformer.layers.first().cloned() else {
        return Ok(());
    };
    let Mixer::Attention(plain_attention) = plain.mixer.clone() else { return Ok(()) };
    // T5 does not scale scores: its initialization accounts for the factor.
    let attention = |mask: AttentionMask, bias: PositionBias| Attention {
        mask,
        scores: Scores { scale: Some(OrderedFloat(1.0)), soft_cap: None, bias },
        ..plain_attention.clone()
    };
    let layer = |mask: AttentionMask, has_bias: bool| {
        let both_ways = mask == AttentionMask::Full;
        let bias = PositionBias::Relative { num_buckets, max_distance, both_ways };
        let attention = Attention { shares_bias: !has_bias, ..attention(mask, bias) };
        Layer { mixer: Mixer::Attention(attention), ..plain.clone() }
    };
    transformer.encoder = Some(Encoder {
        sound: None,
        layers: shape.layers_by(&has_bias, |has_bias| layer(AttentionMask::Full, has_bias)),
        final_norm: transformer.final_norm,
    });
    transformer.layers = decoder_shape.layers_by(&has_bias, |has_bias| Layer {
        cross_attention: Some(attention(AttentionMask::Full, PositionBias::None)),
        ..layer(AttentionMask::Causal, has_bias)
    });
    // A tied head uses the table's weights, whose initial values are too large by the root of the width.
    let logits = shape.tie_word_embeddings.then(|| (shape.hidden_size as f64).powf(-0.5).into());
    transformer.scales = Scales { logits, ..Scales::default() };
    let rate = fields.rate_or("dropout_rate", 0.1)?;
    transformer.dropout = DropoutRates {
        embedding: rate,
        attention: rate,
        attention_output: rate,
        intermediate: rate,
        feed_forward_output: rate,
        final_norm: rate,
        layers: Real::default(),
    };
    Ok(())
}
