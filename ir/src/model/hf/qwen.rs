//! Qwen 2, 2.5 and 3, dense and mixtures of experts.

use super::parts::{self, Defaults, Shape};
use crate::graph::Routing;
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::transformer::{
    Attention, FeedForward, Mixture, Norm, NormPlacement, QkNorm, Transformer,
};

const QWEN2: Defaults = Defaults {
    vocab_size: 151_936,
    num_attention_heads: 32,
    num_key_value_heads: Some(32),
    head_dim: None,
    intermediate_size: Some(22_016),
    max_position_embeddings: 32_768,
    tie_word_embeddings: false,
};
const QWEN2_MOE: Defaults = Defaults {
    num_attention_heads: 16,
    num_key_value_heads: Some(16),
    intermediate_size: Some(5632),
    ..QWEN2
};
const QWEN3: Defaults = Defaults { head_dim: Some(128), ..QWEN2 };
const QWEN3_MOE: Defaults =
    Defaults { num_key_value_heads: Some(4), intermediate_size: Some(6144), ..QWEN2 };

pub(super) fn qwen2(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, QWEN2)?;
    dense(fields, &shape, &biased_queries_keys_values(fields, &shape, true)?)
}

pub(super) fn qwen3(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, QWEN3)?;
    dense(fields, &shape, &normed_queries_and_keys(fields, &shape)?)
}

pub(super) fn qwen2_moe(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, QWEN2_MOE)?.with_derived_head_dim(fields)?;
    let attention = biased_queries_keys_values(fields, &shape, fields.flag_or("qkv_bias", true)?)?;
    let activation = fields.activation_or("hidden_act", "silu")?;
    let shared = fields.size_or("shared_expert_intermediate_size", 5632)?;
    let mixture = Mixture {
        shared: Some(parts::gated_mlp(shared, activation)),
        shared_gate: true,
        ..routed(fields, 60, 4, 1408)?
    };
    let window = window(fields)?;
    let first = fields.count_or("max_window_layers", 28)?;
    // Every other of the first layers, where Qwen2 has the later ones.
    let sliding = shape
        .sliding_layers(fields, |index| window.is_some() && index % 2 == 0 && index < first)?;
    sparse(fields, &shape, &attention, &mixture, |index| window.filter(|_| sliding[index as usize]))
}

pub(super) fn qwen3_moe(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, QWEN3_MOE)?;
    let attention = normed_queries_and_keys(fields, &shape)?;
    let mixture = routed(fields, 128, 8, 768)?;
    let window = window(fields)?;
    sparse(fields, &shape, &attention, &mixture, |_| window)
}

/// Layers that are all dense, the later ones with a sliding window where one is used.
fn dense(
    fields: Fields<'_>,
    shape: &Shape,
    attention: &Attention,
) -> Result<Transformer, ModelError> {
    let mlp = shape.gated_mlp(fields.activation_or("hidden_act", "silu")?);
    let norm = norm(fields)?;
    let window = window(fields)?;
    let first = fields.count_or("max_window_layers", 28)?;
    let sliding = shape.sliding_layers(fields, |index| window.is_some() && index >= first)?;
    let layers = shape.layers(|index| {
        let mask = parts::mask(window.filter(|_| sliding[index as usize]));
        let attention = Attention { mask, ..attention.clone() };
        parts::layer(attention, FeedForward::Dense(mlp), norm, NormPlacement::Pre)
    });
    Ok(Transformer { dropout: parts::attention_dropout(fields)?, ..shape.decoder(layers, norm) })
}

/// Layers of which every `decoder_sparse_step`th is a mixture, but for `mlp_only_layers`.
fn sparse(
    fields: Fields<'_>,
    shape: &Shape,
    attention: &Attention,
    mixture: &Mixture,
    window: impl Fn(u64) -> Option<u64>,
) -> Result<Transformer, ModelError> {
    let mlp = shape.gated_mlp(fields.activation_or("hidden_act", "silu")?);
    let norm = norm(fields)?;
    let step = fields.size_or("decoder_sparse_step", 1)?;
    let dense_layers = fields.indices("mlp_only_layers")?.unwrap_or_default();
    let layers = shape.layers(|index| {
        let is_sparse =
            mixture.num_experts > 0 && (index + 1) % step == 0 && !dense_layers.contains(&index);
        let feed_forward =
            if is_sparse { FeedForward::Mixture(*mixture) } else { FeedForward::Dense(mlp) };
        let attention = Attention { mask: parts::mask(window(index)), ..attention.clone() };
        parts::layer(attention, feed_forward, norm, NormPlacement::Pre)
    });
    Ok(Transformer { dropout: parts::attention_dropout(fields)?, ..shape.decoder(layers, norm) })
}

fn routed(
    fields: Fields<'_>,
    num_experts: u64,
    top_k: u64,
    intermediate_size: u64,
) -> Result<Mixture, ModelError> {
    let intermediate_size = fields.size_or("moe_intermediate_size", intermediate_size)?;
    let activation = fields.activation_or("hidden_act", "silu")?;
    let mixture = parts::mixture(
        fields.count_or("num_experts", num_experts)?,
        fields.size_or("num_experts_per_tok", top_k)?,
        parts::gated_mlp(intermediate_size, activation),
    );
    let normalized = fields.flag_or("norm_topk_prob", false)?;
    Ok(Mixture { routing: Routing { normalized, ..mixture.routing }, ..mixture })
}

fn biased_queries_keys_values(
    fields: Fields<'_>,
    shape: &Shape,
    bias: bool,
) -> Result<Attention, ModelError> {
    let rotary = Some(shape.rotation(fields)?);
    Ok(Attention { output_bias: false, rotary, ..parts::with_biases(shape.attention(), bias) })
}

fn norm(fields: Fields<'_>) -> Result<Norm, ModelError> {
    Ok(Norm::rms(fields.real_or("rms_norm_eps", 1e-6)?))
}

fn normed_queries_and_keys(fields: Fields<'_>, shape: &Shape) -> Result<Attention, ModelError> {
    let bias = fields.flag_or("attention_bias", false)?;
    let attention = parts::with_biases(shape.attention(), bias);
    let rotary = Some(shape.rotation(fields)?);
    Ok(Attention { qk_norm: Some(QkNorm::PerHead(norm(fields)?)), rotary, ..attention })
}

/// The sliding window, where `use_sliding_window` turns it on.
fn window(fields: Fields<'_>) -> Result<Option<u64>, ModelError> {
    let is_used = fields.flag_or("use_sliding_window", false)?;
    Ok(fields.nullable_size_or("sliding_window", Some(4096))?.filter(|_| is_used))
}
