//! T5 and Flan-T5.

use super::parts::{self, Defaults, Shape};
use crate::graph::AttentionMask;
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::transformer::{
    Attention, Encoder, FeedForward, Layer, Mlp, Norm, NormPlacement, Transformer,
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
    let attention = |mask: AttentionMask, relative_buckets: Option<u64>| Attention {
        num_kv_heads: shape.num_attention_heads,
        rotary: false,
        mask,
        relative_buckets,
        ..shape.attention()
    };
    // The first layer of each stack trains the bias that all of its layers add.
    let layer = |mask: AttentionMask, index: u64| {
        let attention = attention(mask, (index == 0).then_some(buckets));
        parts::layer(attention, FeedForward::Dense(mlp), Norm::RMS, NormPlacement::Pre)
    };
    let encoder = Encoder {
        layers: shape.layers(|index| layer(AttentionMask::Full, index)),
        final_norm: Some(Norm::RMS),
    };
    let decoder_layers = decoder_shape.layers(|index| Layer {
        cross_attention: Some(attention(AttentionMask::Full, None)),
        ..layer(AttentionMask::Causal, index)
    });
    let has_dropout = fields.has_rate("dropout_rate", 0.1)?;
    Ok(Transformer {
        encoder: Some(encoder),
        hidden_dropout: has_dropout,
        attention_dropout: has_dropout,
        ..shape.decoder(decoder_layers, Norm::RMS)
    })
}

/// `feed_forward_proj` is the activation, with `gated-` before it for a gated block.
fn feed_forward(fields: Fields<'_>, shape: &Shape) -> Result<Mlp, ModelError> {
    let word = fields.text_or("feed_forward_proj", "relu")?;
    match word.strip_prefix("gated-") {
        Some(word) => Ok(shape.gated_mlp(fields.activation("feed_forward_proj", word)?)),
        None => Ok(shape.plain_mlp(fields.activation("feed_forward_proj", word)?, false)),
    }
}
