//! Gemma 1 to 3.

use super::parts::{self, Defaults, Shape};
use crate::graph::{Activation, Real, Rotation, Scores};
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::rotary::{self, RotaryDefaults};
use crate::model::transformer::{
    Attention, FeedForward, Norm, NormPlacement, QkNorm, Scales, Transformer,
};

const GEMMA: Defaults = Defaults {
    vocab_size: 256_000,
    num_attention_heads: 16,
    num_key_value_heads: Some(16),
    head_dim: Some(256),
    intermediate_size: Some(24_576),
    max_position_embeddings: 8192,
    tie_word_embeddings: true,
};
const GEMMA2: Defaults = Defaults {
    num_attention_heads: 8,
    num_key_value_heads: Some(4),
    intermediate_size: Some(9216),
    ..GEMMA
};
const GEMMA3: Defaults =
    Defaults { vocab_size: 262_208, max_position_embeddings: 131_072, ..GEMMA2 };

/// The base of rotation of Gemma 3's layers without a window.
const GLOBAL_THETA: f64 = 1e6;

/// Layers with a window, in `layer_types` and `rope_parameters`.
const SLIDING: &str = "sliding_attention";

pub(super) fn gemma(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, GEMMA)?;
    let rotary = Some(shape.rotation(fields)?);
    let attention = Attention { rotary, ..attention(fields, &shape)? };
    // The first releases say `gelu` and mean its approximation; transformers takes it so.
    let activation = match activation(fields, "hidden_act")? {
        Activation::Gelu => Activation::GeluTanh,
        other => other,
    };
    let norm = norm(fields)?;
    let mlp = FeedForward::Dense(shape.gated_mlp(activation));
    let layer = parts::layer(attention, mlp, norm, NormPlacement::Pre);
    Ok(Transformer {
        scales: scales(&shape),
        dropout: parts::attention_dropout(fields)?,
        ..shape.decoder(shape.equal_layers(layer), norm)
    })
}

pub(super) fn gemma2(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, GEMMA2)?.of_whole_heads(fields)?;
    let caps = [Some(50.0), Some(30.0)];
    let rotary = shape.rotation(fields)?;
    let attention = attention(fields, &shape)?;
    sandwich(fields, &shape, &attention, 2, caps, |_| rotary.clone())
}

pub(super) fn gemma3_text(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, GEMMA3)?.of_whole_heads(fields)?;
    let attention = attention(fields, &shape)?;
    let attention = Attention { qk_norm: Some(QkNorm::PerHead(norm(fields)?)), ..attention };
    let rotary = |layer_type: &str, theta: f64| {
        let defaults = RotaryDefaults { theta, ..RotaryDefaults::default() };
        rotary::of_kind(fields, Some(layer_type), shape.head_dim, defaults)
    };
    let full = rotary("full_attention", GLOBAL_THETA)?;
    // Layers with a window rotate by a base of their own, for the lengths trained on first.
    let theta = fields.real_or("rope_local_base_freq", rotary::THETA)?;
    let is_stated = fields.within("rope_parameters").is_some_and(|it| it.within(SLIDING).is_some());
    let sliding = if is_stated { rotary(SLIDING, theta)? } else { Rotation::plain(theta) };
    let pattern = fields.size_or("sliding_window_pattern", 6)?;
    sandwich(fields, &shape, &attention, pattern, [None, None], |is_sliding| {
        if is_sliding { sliding.clone() } else { full.clone() }
    })
}

/// The language model of the multimodal one; its images are not modelled.
pub(super) fn gemma3(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    gemma3_text(fields.within("text_config").unwrap_or(fields))
}

/// Norms on both sides, and full attention in every `pattern`th layer only.
fn sandwich(
    fields: Fields<'_>,
    shape: &Shape,
    attention: &Attention,
    pattern: u64,
    [score_cap, logit_cap]: [Option<f64>; 2],
    rotary: impl Fn(bool) -> Rotation,
) -> Result<Transformer, ModelError> {
    let mlp = shape.gated_mlp(activation(fields, "hidden_activation")?);
    let norm = norm(fields)?;
    let cap = |name: &str, absent: Option<f64>| match fields.find(name) {
        None => Ok(absent.map(Real::from)),
        Some(_) => fields.optional_real(name),
    };
    let scores = Scores {
        scale: Some(fields.real_or("query_pre_attn_scalar", 256.0)?.powf(-0.5).into()),
        // Gemma 3 has the field, but no cap.
        soft_cap: match score_cap {
            Some(_) => cap("attn_logit_softcapping", score_cap)?,
            None => None,
        },
        ..Scores::default()
    };
    let window = fields.nullable_size_or("sliding_window", Some(4096))?;
    let sliding = shape.sliding_layers(fields, |index| (index + 1) % pattern != 0)?;
    let layers = shape.layers(|index| {
        let is_sliding = sliding[index as usize];
        let mask = parts::mask(window.filter(|_| is_sliding));
        let rotary = Some(rotary(is_sliding));
        let attention = Attention { rotary, mask, scores, ..attention.clone() };
        parts::layer(attention, FeedForward::Dense(mlp), norm, NormPlacement::Sandwich)
    });
    Ok(Transformer {
        scales: Scales {
            logit_soft_cap: cap("final_logit_softcapping", logit_cap)?,
            ..scales(shape)
        },
        dropout: parts::attention_dropout(fields)?,
        ..shape.decoder(layers, norm)
    })
}

fn attention(fields: Fields<'_>, shape: &Shape) -> Result<Attention, ModelError> {
    Ok(parts::with_biases(shape.attention(), fields.flag_or("attention_bias", false)?))
}

fn activation(fields: Fields<'_>, name: &str) -> Result<Activation, ModelError> {
    fields.activation_or(name, "gelu_pytorch_tanh")
}

fn norm(fields: Fields<'_>) -> Result<Norm, ModelError> {
    Ok(Norm { unit_offset: true, ..Norm::rms(fields.real_or("rms_norm_eps", 1e-6)?) })
}

/// Rows of the table are as long as if their elements had a variance of 1.
fn scales(shape: &Shape) -> Scales {
    Scales { embedding: Some((shape.hidden_size as f64).sqrt().into()), ..Scales::default() }
}
