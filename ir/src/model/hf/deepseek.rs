//! DeepSeek-V2 and V3, and Kimi K2, which is built as V3: latent attention, shared and routed experts.

use super::parts::{self, Defaults, Shape};
use crate::graph::{ExpertGroups, RotaryPairs, RotaryScaling, RouterScores, Routing, Scores};
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::rotary::{self, RotaryDefaults, yarn_scale};
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
    let shape = Shape::read(fields, V2)?.of_whole_heads(fields)?;
    let experts = Experts {
        routed: fields.nullable_size_or("num_experts", Some(64))?,
        shared: fields.nullable_size_or("n_shared_experts", Some(2))?,
        top_k: fields.optional_size("num_experts_per_tok")?,
        intermediate_size: fields.size_or("moe_intermediate_size", 1407)?,
        first_dense: fields.count_or("first_k_dense_replace", 0)?,
        routing: Routing {
            normalized: false,
            scaling: fields.real_or("routed_scaling_factor", 1.0)?.into(),
            groups: match fields.text_or("topk_method", "greedy")? {
                "greedy" => None,
                "group_limited_greedy" => Some(ExpertGroups {
                    count: fields.size("n_group")?,
                    chosen: fields.size("topk_group")?,
                    scored_by: 1,
                }),
                other => return Err(fields.unsupported(format!("`topk_method` `{other}`"))),
            },
            ..Routing::NORMALIZED
        },
    };
    let attention = latent_attention(fields, &shape)?;
    check_frequency(fields)?;
    build(fields, &shape, &attention, norm(fields)?, &experts, mlp_bias)
}

/// The module for multi-token prediction is described, although transformers does not build it; the
/// graph has it only on request.
pub(super) fn deepseek_v3(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, V3)?;
    let experts = Experts {
        routed: fields.nullable_size_or("num_experts", Some(256))?,
        shared: fields.nullable_size_or("n_shared_experts", Some(1))?,
        top_k: fields.nullable_size_or("num_experts_per_tok", Some(8))?,
        intermediate_size: fields.size_or("moe_intermediate_size", 2048)?,
        first_dense: fields.count_or("first_k_dense_replace", 3)?,
        routing: Routing {
            scores: RouterScores::Sigmoid,
            normalized: fields.flag_or("norm_topk_prob", true)?,
            scaling: fields.real_or("routed_scaling_factor", 2.5)?.into(),
            groups: groups(fields.size_or("n_group", 8)?, fields.size_or("topk_group", 4)?),
        },
    };
    let attention = latent_attention(fields, &shape)?;
    check_frequency(fields)?;
    build(fields, &shape, &attention, norm(fields)?, &experts, false)
}

/// Groups of experts as V3 chooses among them; one group is as none.
pub(super) fn groups(count: u64, chosen: u64) -> Option<ExpertGroups> {
    let groups = ExpertGroups { count, chosen, scored_by: 2 };
    Some(groups).filter(|groups| (groups.count, groups.chosen) != (1, 1))
}

fn norm(fields: Fields<'_>) -> Result<Norm, ModelError> {
    Ok(Norm::rms(fields.real_or("rms_norm_eps", 1e-6)?))
}

/// DeepSeek's own code has experts in every so many layers, transformers in all; every release says 1.
fn check_frequency(fields: Fields<'_>) -> Result<(), ModelError> {
    match fields.size_or("moe_layer_freq", 1)? {
        1 => Ok(()),
        other => Err(fields.unsupported(format!("`moe_layer_freq` {other}"))),
    }
}

/// Each module hands on the outputs of all before it; no model has more than one.
const MOST_MODULES: u64 = 16;

/// The norms of what is compressed have an epsilon of their own.
const LATENT_NORM: Norm = Norm::rms(1e-6);

/// Experts of layers after the first ones.
pub(super) struct Experts {
    pub(super) routed: Option<u64>,
    pub(super) shared: Option<u64>,
    pub(super) top_k: Option<u64>,
    pub(super) intermediate_size: u64,
    pub(super) first_dense: u64,
    pub(super) routing: Routing,
}

/// A decoder of some attention, with experts in all layers but the first, and the modules for multi-token
/// prediction that a V3 has.
pub(super) fn build(
    fields: Fields<'_>,
    shape: &Shape,
    attention: &Attention,
    norm: Norm,
    experts: &Experts,
    mlp_bias: bool,
) -> Result<Transformer, ModelError> {
    let activation = fields.activation_or("hidden_act", "silu")?;
    let mlp = |intermediate_size: u64| -> Mlp {
        parts::with_mlp_biases(parts::gated_mlp(intermediate_size, activation), mlp_bias)
    };
    check_experts(fields, shape, experts)?;
    let corrects_choice = experts.routing.scores == RouterScores::Sigmoid;
    let mixture = match experts.routed {
        None => None,
        Some(routed) => {
            let top_k = experts.top_k.ok_or_else(|| fields.missing("num_experts_per_tok"))?;
            let shared = |count: u64| mlp(count.saturating_mul(experts.intermediate_size));
            Some(Mixture {
                shared: experts.shared.map(shared),
                routing: experts.routing,
                corrects_choice,
                ..parts::mixture(routed, top_k, mlp(experts.intermediate_size))
            })
        }
    };
    let layer = |index: u64| {
        let feed_forward = match &mixture {
            Some(mixture) if index >= experts.first_dense => FeedForward::Mixture(*mixture),
            _ => FeedForward::Dense(mlp(shape.intermediate_size)),
        };
        parts::layer(attention.clone(), feed_forward, norm, NormPlacement::Pre)
    };
    let modules =
        if corrects_choice { fields.count_or("num_nextn_predict_layers", 0)? } else { 0 };
    if modules > MOST_MODULES {
        return Err(fields.unsupported(format!("`num_nextn_predict_layers` {modules}")));
    }
    // Modules are counted on from the layers.
    let modules = (0..modules).map(|module| layer(shape.num_hidden_layers + module));
    Ok(Transformer {
        dropout: parts::attention_dropout(fields)?,
        prediction_modules: modules.collect(),
        ..shape.decoder(shape.layers(layer), norm)
    })
}

/// Layers and groups that are stated fit what they are of; defaults, which small models leave, need not.
fn check_experts(fields: Fields<'_>, shape: &Shape, experts: &Experts) -> Result<(), ModelError> {
    let within = |field: &str, value: u64, least: u64, most: u64| {
        if fields.find(field).is_none() || value <= most {
            return Ok(());
        }
        let (architecture, field) = (fields.architecture(), field.to_owned());
        Err(ModelError::OutOfRange { architecture, field, least, most, found: value.to_string() })
    };
    within("first_k_dense_replace", experts.first_dense, 0, shape.num_hidden_layers)?;
    let Some((groups, routed)) = experts.routing.groups.zip(experts.routed) else { return Ok(()) };
    if fields.find("n_group").is_some() && !routed.is_multiple_of(groups.count) {
        return Err(ModelError::NotDivisible {
            architecture: fields.architecture(),
            field: "n_routed_experts",
            value: routed,
            divisor_field: "n_group",
            divisor: groups.count,
        });
    }
    within("topk_group", groups.chosen, 1, groups.count)
}

fn latent_attention(fields: Fields<'_>, shape: &Shape) -> Result<Attention, ModelError> {
    let bias = fields.flag_or("attention_bias", false)?;
    let latent = Latent {
        q_lora_rank: fields.nullable_size_or("q_lora_rank", Some(1536))?,
        kv_lora_rank: fields.size_or("kv_lora_rank", 512)?,
        qk_nope_head_dim: fields.size_or("qk_nope_head_dim", 128)?,
        qk_rope_head_dim: fields.size_or("qk_rope_head_dim", 64)?,
        down_bias: bias,
        norm: LATENT_NORM,
    };
    let pairs = if fields.flag_or("rope_interleave", true)? {
        RotaryPairs::Neighbours
    } else {
        RotaryPairs::Halves
    };
    let defaults = RotaryDefaults { pairs, ..RotaryDefaults::default() };
    let rotary = rotary::rotation(fields, latent.qk_rope_head_dim, defaults)?;
    let scaling = ["rope_scaling", "rope_parameters"].iter().find_map(|it| fields.within(it));
    let weight = scaling.map_or(Ok(0.0), |it| it.real_or("mscale_all_dim", 0.0))?;
    let head_dim = latent.qk_nope_head_dim + latent.qk_rope_head_dim;
    // Longer sequences have larger scores, beside what rotation multiplies them by.
    let scale = match &rotary.scaling {
        RotaryScaling::Yarn { factor, .. } if weight > 0.0 => {
            let longer = yarn_scale(factor.0, weight);
            Some((longer * longer / (head_dim as f64).sqrt()).into())
        }
        _ => None,
    };
    Ok(Attention {
        rotary: Some(rotary),
        scores: Scores { scale, ..Scores::default() },
        num_kv_heads: shape.num_attention_heads,
        head_dim,
        value_head_dim: fields.size_or("v_head_dim", 128)?,
        output_bias: bias,
        latent: Some(latent),
        ..shape.attention()
    })
}
