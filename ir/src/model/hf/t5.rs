//! T5 and Flan-T5.

use super::parts::{self, Defaults, Shape};
use ordered_float::OrderedFloat;

use crate::graph::{Activation, AttentionMask, PositionBias, Real, Scores};
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::transformer::{
    Attention, DropoutRates, Encoder, FeedForward, Layer, Mlp, Norm, NormPlacement, Scales,
    Transformer,
};

const DEFAULTS: Defaults = Defaults {
    vocab_size: 32_128,
    num_attention_heads: 8,
    num_key_value_heads: None,
    head_dim: Some(64),
    intermediate_size: Some(2048),
    max_position_embeddings: 512,
    tie_word_embeddings: true,
};

/// The encoder and the decoder share the table of tokens, whether the head is tied to it or not.
pub(super) fn t5(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, DEFAULTS)?;
    let num_decoder_layers = match fields.optional_size("num_decoder_layers")? {
        Some(_) => fields.num_layers("num_decoder_layers")?,
        None => shape.num_hidden_layers,
    };
    let decoder_shape = Shape { num_hidden_layers: num_decoder_layers, ..shape };
    let buckets = fields.size_or("relative_attention_num_buckets", 32)?;
    let mlp = feed_forward(fields, &shape)?;
    let max_distance = fields.size_or("relative_attention_max_distance", 128)?;
    // Half of the buckets are for later positions; half of the rest have a distance each, the others share the
    // distances from there to the greatest.
    if buckets < 4 || max_distance <= buckets / 2 {
        let what = format!("{buckets} buckets of distances up to {max_distance}");
        return Err(fields.unsupported(what));
    }
    let norm = Norm::rms(fields.real_or("layer_norm_epsilon", 1e-6)?);
    // Scores are not scaled: the weights are drawn so that they need not be.
    let attention = |mask: AttentionMask, bias: PositionBias| Attention {
        num_kv_heads: shape.num_attention_heads,
        rotary: None,
        mask,
        scores: Scores { scale: Some(OrderedFloat(1.0)), soft_cap: None, bias },
        ..shape.attention()
    };
    // The first layer of each stack trains the bias that all of its layers add.
    let layer = |mask: AttentionMask, index: u64| {
        let both_ways = mask == AttentionMask::Full;
        let bias = PositionBias::Relative { num_buckets: buckets, max_distance, both_ways };
        let attention = Attention { shares_bias: index > 0, ..attention(mask, bias) };
        parts::layer(attention, FeedForward::Dense(mlp), norm, NormPlacement::Pre)
    };
    let encoder = Encoder {
        layers: shape.layers(|index| layer(AttentionMask::Full, index)),
        final_norm: Some(norm),
    };
    let decoder_layers = decoder_shape.layers(|index| Layer {
        cross_attention: Some(attention(AttentionMask::Full, PositionBias::None)),
        ..layer(AttentionMask::Causal, index)
    });
    // A tied head reads the table as it was drawn, too large by the root of the width.
    let logits = shape.tie_word_embeddings.then(|| (shape.hidden_size as f64).powf(-0.5).into());
    let rate = fields.rate_or("dropout_rate", 0.1)?;
    Ok(Transformer {
        encoder: Some(encoder),
        scales: Scales { logits, ..Scales::default() },
        dropout: DropoutRates {
            embedding: rate,
            attention: rate,
            attention_output: rate,
            intermediate: rate,
            feed_forward_output: rate,
            final_norm: rate,
            layers: Real::default(),
        },
        ..shape.decoder(decoder_layers, norm)
    })
}

/// `feed_forward_proj` is the activation, with `gated-` before it for a gated block.
fn feed_forward(fields: Fields<'_>, shape: &Shape) -> Result<Mlp, ModelError> {
    let word = fields.text_or("feed_forward_proj", "relu")?;
    match word.strip_prefix("gated-") {
        // Which stands for the approximation here.
        Some("gelu") => Ok(shape.gated_mlp(Activation::GeluTanh)),
        Some(word) => Ok(shape.gated_mlp(fields.activation("feed_forward_proj", word)?)),
        None => Ok(shape.plain_mlp(fields.activation("feed_forward_proj", word)?, false)),
    }
}
