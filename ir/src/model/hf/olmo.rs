//! OLMo, OLMo-2, OLMo-3 and OLMoE.

use super::parts::{self, Defaults, Shape};
use crate::graph::{RotaryScaling, Rotation, Routing};
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::rotary::{self, RotaryDefaults};
use crate::model::transformer::{
    Attention, FeedForward, Mixture, Norm, NormPlacement, QkNorm, Transformer,
};

const OLMO: Defaults = Defaults {
    vocab_size: 50_304,
    num_attention_heads: 32,
    num_key_value_heads: None,
    head_dim: None,
    intermediate_size: Some(11_008),
    max_position_embeddings: 2048,
    tie_word_embeddings: false,
};
const OLMOE: Defaults = Defaults {
    num_attention_heads: 16,
    intermediate_size: Some(2048),
    max_position_embeddings: 4096,
    ..OLMO
};

/// OLMo's norms train nothing.
const UNTRAINED_NORM: Norm = Norm { weight: false, bias: false, ..Norm::layer(1e-5) };

pub(super) fn olmo(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, OLMO)?;
    let mlp = FeedForward::Dense(shape.gated_mlp(fields.activation_or("hidden_act", "silu")?));
    build(fields, &shape, None, mlp, UNTRAINED_NORM, NormPlacement::Pre)
}

pub(super) fn olmo2(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, OLMO)?;
    let mlp = FeedForward::Dense(shape.gated_mlp(fields.activation_or("hidden_act", "silu")?));
    let norm = Norm::rms(fields.real_or("rms_norm_eps", 1e-5)?);
    let qk_norm = Some(QkNorm::AllHeads(norm));
    build(fields, &shape, qk_norm, mlp, norm, NormPlacement::PostBlock)
}

/// OLMo-2 of which three layers in four have a sliding window and rotate as if sequences were no longer than those
/// trained on first, by the same base. (Releases of transformers from 5 on take 500,000 for their base, whatever
/// `rope_theta` says; every release of OLMo-3 says that.)
pub(super) fn olmo3(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, OLMO)?;
    let mlp = shape.gated_mlp(fields.activation_or("hidden_act", "silu")?);
    let norm = Norm::rms(fields.real_or("rms_norm_eps", 1e-5)?);
    let rotary = |layer_type: &str| {
        rotary::of_kind(fields, Some(layer_type), shape.head_dim, RotaryDefaults::default())
    };
    let full = rotary("full_attention")?;
    let is_stated = fields.within("rope_parameters").is_some_and(|it| it.within(SLIDING).is_some());
    let shorter = Rotation { scaling: RotaryScaling::None, ..full.clone() };
    let short = if is_stated { rotary(SLIDING)? } else { shorter };
    let window = fields.nullable_size_or("sliding_window", Some(4096))?;
    let sliding = shape.sliding_layers(fields, |index| (index + 1) % 4 != 0)?;
    let bias = fields.flag_or("attention_bias", false)?;
    let layers = shape.layers(|index| {
        let is_sliding = sliding[index as usize];
        let attention = Attention {
            qk_norm: Some(QkNorm::AllHeads(norm)),
            rotary: Some(if is_sliding { short.clone() } else { full.clone() }),
            mask: parts::mask(window.filter(|_| is_sliding)),
            ..parts::with_biases(shape.attention(), bias)
        };
        parts::layer(attention, FeedForward::Dense(mlp), norm, NormPlacement::PostBlock)
    });
    Ok(Transformer { dropout: parts::attention_dropout(fields)?, ..shape.decoder(layers, norm) })
}

/// What layers with a window are called.
const SLIDING: &str = "sliding_attention";

pub(super) fn olmoe(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, OLMOE)?.with_derived_head_dim(fields)?;
    let mixture = parts::mixture(
        fields.size_or("num_experts", 64)?,
        fields.size_or("num_experts_per_tok", 8)?,
        shape.gated_mlp(fields.activation_or("hidden_act", "silu")?),
    );
    let normalized = fields.flag_or("norm_topk_prob", false)?;
    let mixture = Mixture { routing: Routing { normalized, ..mixture.routing }, ..mixture };
    let norm = Norm::rms(fields.real_or("rms_norm_eps", 1e-5)?);
    let qk_norm = Some(QkNorm::AllHeads(norm));
    build(fields, &shape, qk_norm, FeedForward::Mixture(mixture), norm, NormPlacement::Pre)
}

fn build(
    fields: Fields<'_>,
    shape: &Shape,
    qk_norm: Option<QkNorm>,
    feed_forward: FeedForward,
    norm: Norm,
    placement: NormPlacement,
) -> Result<Transformer, ModelError> {
    let bias = fields.flag_or("attention_bias", false)?;
    // OLMo-2 has none, whatever its configuration says.
    let clamps = placement == NormPlacement::Pre;
    let attention = Attention {
        qk_norm,
        clamp: if clamps { fields.optional_real("clip_qkv")? } else { None },
        rotary: Some(shape.rotation(fields)?),
        ..parts::with_biases(shape.attention(), bias)
    };
    let layer = parts::layer(attention, feed_forward, norm, placement);
    Ok(Transformer {
        dropout: parts::attention_dropout(fields)?,
        ..shape.decoder(shape.equal_layers(layer), norm)
    })
}
