//! OpenAI's gpt-oss.

use super::parts::{self, Defaults, Shape};
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::transformer::{
    Attention, FeedForward, Mixture, Norm, NormPlacement, Transformer,
};

const DEFAULTS: Defaults = Defaults {
    vocab_size: 201_088,
    num_attention_heads: 64,
    num_key_value_heads: Some(8),
    head_dim: Some(64),
    intermediate_size: Some(2880),
    max_position_embeddings: 131_072,
    tie_word_embeddings: false,
};

pub(super) fn gpt_oss(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, DEFAULTS)?;
    let attention = Attention {
        sinks: true,
        ..parts::with_biases(shape.attention(), fields.flag_or("attention_bias", true)?)
    };
    let expert = shape.gated_mlp(fields.activation_or("hidden_act", "silu")?);
    let mixture = Mixture {
        router_bias: true,
        ..parts::mixture(
            fields.size_or("num_experts", 128)?,
            fields.size_or("num_experts_per_tok", 4)?,
            parts::with_mlp_biases(expert, true),
        )
    };
    let window = fields.nullable_size_or("sliding_window", Some(128))?;
    let sliding = shape.sliding_layers(fields, |index| index % 2 == 0)?;
    let layers = shape.layers(|index| {
        let mask = parts::mask(window.filter(|_| sliding[index as usize]));
        let attention = Attention { mask, ..attention };
        parts::layer(attention, FeedForward::Mixture(mixture), Norm::RMS, NormPlacement::Pre)
    });
    Ok(Transformer {
        attention_dropout: fields.has_rate("attention_dropout", 0.0)?,
        ..shape.decoder(layers, Norm::RMS)
    })
}
