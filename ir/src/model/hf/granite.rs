//! IBM Granite 3: dense, and mixtures of experts with and without a shared one.

use super::parts::{self, Defaults, Shape};
use crate::graph::Scores;
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::transformer::{
    Attention, FeedForward, Mixture, Norm, NormPlacement, Scales, Transformer,
};

const DEFAULTS: Defaults = Defaults {
    vocab_size: 32_000,
    num_attention_heads: 32,
    num_key_value_heads: None,
    head_dim: None,
    intermediate_size: Some(11_008),
    max_position_embeddings: 2048,
    tie_word_embeddings: false,
};

pub(super) fn granite(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, DEFAULTS)?;
    let mlp = parts::with_mlp_biases(
        shape.gated_mlp(fields.activation_or("hidden_act", "silu")?),
        fields.flag_or("mlp_bias", false)?,
    );
    build(fields, &shape, FeedForward::Dense(mlp))
}

pub(super) fn granitemoe(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    sparse(fields, 0)
}

pub(super) fn granitemoeshared(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    sparse(fields, fields.count_or("shared_intermediate_size", 0)?)
}

/// Experts, beside a block for all tokens of inner width `shared` unless that is zero.
fn sparse(fields: Fields<'_>, shared: u64) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, DEFAULTS)?.with_derived_head_dim(fields)?;
    let activation = fields.activation_or("hidden_act", "silu")?;
    let shared = (shared > 0).then(|| parts::gated_mlp(shared, activation));
    let feed_forward = match (fields.count_or("num_experts", 8)?, shared) {
        (0, Some(shared)) => FeedForward::Dense(shared),
        (num_experts, shared) => FeedForward::Mixture(Mixture {
            shared,
            ..parts::mixture(
                num_experts,
                fields.size_or("num_experts_per_tok", 2)?,
                shape.gated_mlp(activation),
            )
        }),
    };
    build(fields, &shape, feed_forward)
}

fn build(
    fields: Fields<'_>,
    shape: &Shape,
    feed_forward: FeedForward,
) -> Result<Transformer, ModelError> {
    let norm = Norm::rms(fields.real_or("rms_norm_eps", 1e-6)?);
    let scale = fields.real_or("attention_multiplier", 1.0)?;
    let attention = Attention {
        rotary: Some(shape.rotation(fields)?),
        scores: Scores { scale: Some(scale.into()), ..Scores::default() },
        ..parts::with_biases(shape.attention(), fields.flag_or("attention_bias", false)?)
    };
    let layer = parts::layer(attention, feed_forward, norm, NormPlacement::Pre);
    Ok(Transformer {
        scales: Scales {
            embedding: fields.scale("embedding_multiplier")?,
            residual: fields.scale("residual_multiplier")?,
            logits: fields.scale("logits_scaling")?.map(|divisor| (1.0 / divisor.0).into()),
            logit_soft_cap: None,
        },
        dropout: parts::attention_dropout(fields)?,
        ..shape.decoder(shape.equal_layers(layer), norm)
    })
}
