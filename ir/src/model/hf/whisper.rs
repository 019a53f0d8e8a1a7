//! Whisper: an encoder of sound, and a decoder that attends to it.

use super::parts::{self, Finished, Shape};
use crate::graph::{AttentionMask, Real};
use crate::model::fields::Fields;
use crate::model::transformer::{
    Attention, DropoutRates, Encoder, FeedForward, Layer, Layers, Mixer, Mlp, Sound, Transformer,
};

/// Encoder and decoder have separate sizes; the encoder's are those of the base family.
pub(super) fn whisper(
    fields: Fields<'_>,
    shape: &Shape,
    transformer: &mut Transformer,
) -> Finished {
    let Some(Layers { layer, .. }) = transformer.layers.first().cloned() else { return Ok(()) };
    let (Mixer::Attention(attention), FeedForward::Dense(mlp)) =
        (layer.mixer.clone(), layer.feed_forward.clone())
    else {
        return Ok(());
    };
    let num_heads = fields.size_or("decoder_attention_heads", 6)?;
    parts::head_dim(fields, shape.hidden_size, num_heads)?;
    let head_dim = shape.hidden_size / num_heads;
    let of_encoder = Attention { key_bias: false, mask: AttentionMask::Full, ..attention };
    let of_decoder = |mask| {
        let sizes = Attention { num_heads, num_kv_heads: num_heads, ..of_encoder.clone() };
        Attention { head_dim, value_head_dim: head_dim, mask, ..sizes }
    };
    let inner = fields.size_or("decoder_ffn_dim", 1536)?;
    let decoder = Layer {
        mixer: Mixer::Attention(of_decoder(AttentionMask::Causal)),
        cross_attention: Some(of_decoder(AttentionMask::Full)),
        feed_forward: FeedForward::Dense(Mlp { intermediate_size: inner, ..mlp }),
        ..layer.clone()
    };
    let layers = fields.find("decoder_layers").map(|_| fields.num_layers("decoder_layers"));
    let shape_of_decoder = Shape { num_hidden_layers: layers.transpose()?.unwrap_or(4), ..*shape };
    let encoder = Layer { mixer: Mixer::Attention(of_encoder), ..layer };
    let skipped = fields.rate_or("encoder_layerdrop", 0.0)?;
    let rate = fields.rate_or("dropout", 0.0)?;
    transformer.encoder = Some(Encoder {
        sound: Some(Sound {
            num_mel_bins: fields.size_or("num_mel_bins", 80)?,
            max_source_positions: fields.size_or("max_source_positions", 1500)?,
            activation: fields.activation_or("activation_function", "gelu")?,
        }),
        layers: shape.equal_layers(encoder),
        final_norm: transformer.final_norm,
    });
    transformer.layers = shape_of_decoder.equal_layers(decoder);
    transformer.dropout = DropoutRates {
        embedding: rate,
        intermediate: fields.rate_or("activation_dropout", 0.0)?,
        final_norm: Real::default(),
        layers: skipped.max(fields.rate_or("decoder_layerdrop", 0.0)?),
        ..transformer.dropout
    };
    Ok(())
}
