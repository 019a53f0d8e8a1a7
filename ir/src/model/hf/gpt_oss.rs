//! OpenAI's gpt-oss.

use super::parts::{self, Defaults, Shape};
use crate::graph::{RotaryScaling, Rotation};
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::rotary::{self, RotaryDefaults, yarn_scale};
use crate::model::transformer::{
    Attention, FeedForward, Mixture, Mlp, Norm, NormPlacement, Transformer,
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
        rotary: Some(rotation(fields, &shape)?),
        ..parts::with_biases(shape.attention(), fields.flag_or("attention_bias", true)?)
    };
    let limit = fields.real_or("swiglu_limit", 7.0)?;
    let expert = Mlp {
        clamp: Some(limit.into()),
        ..shape.gated_mlp(fields.activation_or("hidden_act", "silu")?)
    };
    let norm = Norm::rms(fields.real_or("rms_norm_eps", 1e-5)?);
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
        let attention = Attention { mask, ..attention.clone() };
        parts::layer(attention, FeedForward::Mixture(mixture), norm, NormPlacement::Pre)
    });
    Ok(Transformer { dropout: parts::attention_dropout(fields)?, ..shape.decoder(layers, norm) })
}

/// YaRN from 4096 positions on, where nothing is stated.
fn rotation(fields: Fields<'_>, shape: &Shape) -> Result<Rotation, ModelError> {
    let theta = 150_000.0;
    let is_stated =
        ["rope_scaling", "rope_parameters"].iter().any(|it| fields.within(it).is_some());
    if is_stated {
        let defaults = RotaryDefaults { theta, ..RotaryDefaults::default() };
        return rotary::rotation(fields, shape.head_dim, defaults);
    }
    let factor = 32.0;
    Ok(Rotation {
        scaling: RotaryScaling::Yarn {
            factor: factor.into(),
            beta_fast: 32.0.into(),
            beta_slow: 1.0.into(),
            attention_factor: yarn_scale(factor, 1.0).into(),
            original_max_position_embeddings: 4096.0.into(),
            truncates: false,
        },
        ..Rotation::plain(fields.real_or("rope_theta", theta)?)
    })
}
