//! DeepSeek-V2 and V3: latent attention, shared and routed experts.

use super::parts::{self, Defaults, Shape};
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::transformer::{
    Attention, FeedForward, Latent, Mixture, Mlp, Norm, NormPlacement, Transformer,
};

const V2: Defaults = Defaults {
    vocab_size: 32_000,
    num_attention_heads: 32,
    num_key_value_heads: None,
    // Not used: heads have the dimensions of latent attention.
    head_dim: Some(64),
    intermediate_size: Some(11_008),
    max_position_embeddings: 2048,
    tie_word_embeddings: false,
};
const V3: Defaults = Defaults {
    vocab_size: 129_280,
    num_attention_heads: 128,
    intermediate_size: Some(18_432),
    max_position_embeddings: 4096,
    ..V2
};

pub(super) fn deepseek_v2(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let mlp_bias = fields.flag_or("mlp_bias", false)?;
    let experts = Experts {
        routed: fields.nullable_size_or("num_experts", Some(64))?,
        shared: fields.nullable_size_or("n_shared_experts", Some(2))?,
        top_k: fields.optional_size("num_experts_per_tok")?,
        intermediate_size: fields.size_or("moe_intermediate_size", 1407)?,
        first_dense: fields.count_or("first_k_dense_replace", 0)?,
    };
    build(fields, V2, &experts, mlp_bias)
}

/// The module for multi-token prediction is described, although transformers does not build it; the
/// graph has it only on request.
pub(super) fn deepseek_v3(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let experts = Experts {
        routed: fields.nullable_size_or("num_experts", Some(256))?,
        shared: fields.nullable_size_or("n_shared_experts", Some(1))?,
        top_k: fields.nullable_size_or("num_experts_per_tok", Some(8))?,
        intermediate_size: fields.size_or("moe_intermediate_size", 2048)?,
        first_dense: fields.count_or("first_k_dense_replace", 3)?,
    };
    let modules = fields.count_or("num_nextn_predict_layers", 0)?;
    if modules > MOST_MODULES {
        return Err(fields.unsupported(format!("`num_nextn_predict_layers` {modules}")));
    }
    let transformer = build(fields, V3, &experts, false)?;
    Ok(Transformer { num_nextn_predict_layers: modules as u32, ..transformer })
}

/// Each module hands on the outputs of all before it; no model has more than one.
const MOST_MODULES: u64 = 16;

struct Experts {
    routed: Option<u64>,
    shared: Option<u64>,
    top_k: Option<u64>,
    intermediate_size: u64,
    first_dense: u64,
}

fn build(
    fields: Fields<'_>,
    defaults: Defaults,
    experts: &Experts,
    mlp_bias: bool,
) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, defaults)?;
    let attention = latent_attention(fields, &shape)?;
    let activation = fields.activation_or("hidden_act", "silu")?;
    let mlp = |intermediate_size: u64| -> Mlp {
        parts::with_mlp_biases(parts::gated_mlp(intermediate_size, activation), mlp_bias)
    };
    let mixture = match experts.routed {
        None => None,
        Some(routed) => {
            let top_k = experts.top_k.ok_or_else(|| fields.missing("num_experts_per_tok"))?;
            let shared = |count: u64| mlp(count.saturating_mul(experts.intermediate_size));
            Some(Mixture {
                shared: experts.shared.map(shared),
                ..parts::mixture(routed, top_k, mlp(experts.intermediate_size))
            })
        }
    };
    // From DeepSeek's own code; transformers takes it to be 1, which it is in every release.
    let frequency = fields.size_or("moe_layer_freq", 1)?;
    let layers = shape.layers(|index| {
        let is_sparse = index >= experts.first_dense && index % frequency == 0;
        let feed_forward = match &mixture {
            Some(mixture) if is_sparse => FeedForward::Mixture(*mixture),
            _ => FeedForward::Dense(mlp(shape.intermediate_size)),
        };
        parts::layer(attention, feed_forward, Norm::RMS, NormPlacement::Pre)
    });
    Ok(Transformer {
        attention_dropout: fields.has_rate("attention_dropout", 0.0)?,
        ..shape.decoder(layers, Norm::RMS)
    })
}

fn latent_attention(fields: Fields<'_>, shape: &Shape) -> Result<Attention, ModelError> {
    let bias = fields.flag_or("attention_bias", false)?;
    let latent = Latent {
        q_lora_rank: fields.nullable_size_or("q_lora_rank", Some(1536))?,
        kv_lora_rank: fields.size_or("kv_lora_rank", 512)?,
        qk_nope_head_dim: fields.size_or("qk_nope_head_dim", 128)?,
        qk_rope_head_dim: fields.size_or("qk_rope_head_dim", 64)?,
        down_bias: bias,
    };
    Ok(Attention {
        num_kv_heads: shape.num_attention_heads,
        head_dim: latent.qk_nope_head_dim + latent.qk_rope_head_dim,
        value_head_dim: fields.size_or("v_head_dim", 128)?,
        output_bias: bias,
        latent: Some(latent),
        ..shape.attention()
    })
}
