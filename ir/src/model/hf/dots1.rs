//! rednote's dots.llm1: Qwen 3's attention with DeepSeek-V3's experts.

use super::deepseek::{self, Experts};
use super::parts::{self, Defaults, Shape};
use crate::graph::{RouterScores, Routing};
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::transformer::{Attention, Norm, QkNorm, Transformer};

const DEFAULTS: Defaults = Defaults {
    vocab_size: 152_064,
    num_attention_heads: 32,
    num_key_value_heads: Some(32),
    head_dim: None,
    intermediate_size: Some(10_944),
    max_position_embeddings: 2048,
    tie_word_embeddings: false,
};

pub(super) fn dots1(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, DEFAULTS)?;
    let norm = Norm::rms(fields.real_or("rms_norm_eps", 1e-6)?);
    let bias = fields.flag_or("attention_bias", false)?;
    let attention = Attention {
        qk_norm: Some(QkNorm::PerHead(norm)),
        rotary: Some(shape.rotation(fields)?),
        ..parts::with_biases(shape.attention(), bias)
    };
    // No release has a window; with one, layers from `max_window_layers` on would differ.
    let first = fields.count_or("max_window_layers", 62)?;
    let window = fields.nullable_size_or("sliding_window", Some(4096))?;
    let sliding = shape.sliding_layers(fields, |index| window.is_some() && index >= first)?;
    if sliding.contains(&true) {
        return Err(fields.unsupported("`sliding_attention` in some layers".to_owned()));
    }
    let experts = Experts {
        routed: Some(fields.size("n_routed_experts")?),
        shared: Some(fields.size("n_shared_experts")?),
        top_k: Some(fields.size("num_experts_per_tok")?),
        intermediate_size: fields.size_or("moe_intermediate_size", 1408)?,
        first_dense: fields.count_or("first_k_dense_replace", 0)?,
        routing: Routing {
            scores: RouterScores::Sigmoid,
            normalized: fields.flag_or("norm_topk_prob", false)?,
            scaling: fields.real_or("routed_scaling_factor", 1.0)?.into(),
            groups: deepseek::groups(
                fields.nullable_size_or("n_group", Some(1))?.unwrap_or(1),
                fields.nullable_size_or("topk_group", Some(1))?.unwrap_or(1),
            ),
        },
    };
    deepseek::build(fields, &shape, &attention, norm, &experts, false)
}
