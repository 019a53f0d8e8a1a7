//! The vision transformer, with its classifier.

use super::parts::{self, Defaults, Shape};
use crate::graph::AttentionMask;
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::transformer::{
    Attention, Embedding, FeedForward, Head, Norm, NormPlacement, Transformer,
};

const DEFAULTS: Defaults = Defaults {
    vocab_size: 1,
    num_attention_heads: 12,
    num_key_value_heads: None,
    head_dim: None,
    intermediate_size: Some(3072),
    // Not used: an image has as many patches as it has.
    max_position_embeddings: 1,
    tie_word_embeddings: false,
};

pub(super) fn vit(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, DEFAULTS)?.with_derived_head_dim(fields)?;
    let attention = Attention {
        num_kv_heads: shape.num_attention_heads,
        rotary: None,
        mask: AttentionMask::Full,
        ..parts::with_biases(shape.attention(), fields.flag_or("qkv_bias", true)?)
    };
    let attention = Attention { output_bias: true, ..attention };
    let norm = Norm::layer(fields.real_or("layer_norm_eps", 1e-12)?);
    let mlp = shape.plain_mlp(fields.activation_or("hidden_act", "gelu")?, true);
    let layer = parts::layer(attention, FeedForward::Dense(mlp), norm, NormPlacement::Pre);
    let num_labels = match fields.num_entries("id2label") {
        Some(labels) => labels,
        None => fields.size_or("num_labels", 2)?,
    };
    let decoder = shape.decoder(shape.equal_layers(layer), norm);
    Ok(Transformer {
        embedding: Embedding::Patches {
            image_size: fields.square_or("image_size", 224)?,
            patch_size: fields.square_or("patch_size", 16)?,
            num_channels: fields.size_or("num_channels", 3)?,
        },
        head: Head {
            num_classes: num_labels,
            tied: false,
            bias: true,
            first_token_only: true,
            ..decoder.head
        },
        dropout: parts::dropout(
            fields,
            [
                Some(("hidden_dropout_prob", 0.0)),
                Some(("hidden_dropout_prob", 0.0)),
                Some(("attention_probs_dropout_prob", 0.0)),
            ],
        )?,
        max_position_embeddings: None,
        ..decoder
    })
}
