//! GLM-4 of 0414, and GLM-4.5, a mixture of experts.

use super::deepseek::{self, Experts};
use super::parts::{self, Defaults, Shape};
use crate::graph::{RotaryPairs, RouterScores, Routing};
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::rotary::{self, RotaryDefaults};
use crate::model::transformer::{Attention, FeedForward, Norm, NormPlacement, QkNorm, Transformer};

const GLM4: Defaults = Defaults {
    vocab_size: 151_552,
    num_attention_heads: 32,
    num_key_value_heads: Some(2),
    head_dim: Some(128),
    intermediate_size: Some(13_696),
    max_position_embeddings: 131_072,
    tie_word_embeddings: false,
};
const GLM4_MOE: Defaults = Defaults {
    num_attention_heads: 96,
    num_key_value_heads: Some(8),
    head_dim: None,
    intermediate_size: Some(10_944),
    ..GLM4
};

pub(super) fn glm4(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, GLM4)?;
    let norm = Norm::rms(fields.real_or("rms_norm_eps", 1.5625e-7)?);
    let attention = attention(fields, &shape, RotaryPairs::Neighbours, true)?;
    let mlp = shape.gated_mlp(fields.activation_or("hidden_act", "silu")?);
    let layer = parts::layer(attention, FeedForward::Dense(mlp), norm, NormPlacement::Sandwich);
    Ok(Transformer {
        dropout: parts::attention_dropout(fields)?,
        ..shape.decoder(shape.equal_layers(layer), norm)
    })
}

/// Experts and modules for multi-token prediction are DeepSeek-V3's.
pub(super) fn glm4_moe(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, GLM4_MOE)?;
    let norm = Norm::rms(fields.real_or("rms_norm_eps", 1e-5)?);
    let norms_heads = fields.flag_or("use_qk_norm", false)?;
    let attention = Attention {
        qk_norm: norms_heads.then_some(QkNorm::PerHead(norm)),
        ..attention(fields, &shape, RotaryPairs::Halves, false)?
    };
    let experts = Experts {
        routed: Some(fields.size_or("n_routed_experts", 128)?),
        shared: fields.nullable_size_or("n_shared_experts", Some(1))?,
        top_k: Some(fields.size_or("num_experts_per_tok", 8)?),
        intermediate_size: fields.size_or("moe_intermediate_size", 1408)?,
        first_dense: fields.count_or("first_k_dense_replace", 1)?,
        routing: Routing {
            scores: RouterScores::Sigmoid,
            normalized: fields.flag_or("norm_topk_prob", true)?,
            scaling: fields.real_or("routed_scaling_factor", 1.0)?.into(),
            groups: deepseek::groups(
                fields.size_or("n_group", 1)?,
                fields.size_or("topk_group", 1)?,
            ),
        },
    };
    deepseek::build(fields, &shape, &attention, norm, &experts, false)
}

/// Half of each head's features are rotated; what is put out has no bias.
fn attention(
    fields: Fields<'_>,
    shape: &Shape,
    pairs: RotaryPairs,
    bias: bool,
) -> Result<Attention, ModelError> {
    let defaults = RotaryDefaults { share: 0.5, pairs, ..RotaryDefaults::default() };
    Ok(Attention {
        rotary: Some(rotary::rotation(fields, shape.head_dim, defaults)?),
        output_bias: false,
        ..parts::with_biases(shape.attention(), fields.flag_or("attention_bias", bias)?)
    })
}
