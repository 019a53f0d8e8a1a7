//! Multi-head latent attention, DeepSeek's.

use super::family::{IndexerRule, LatentRule};
use super::parts::{Finished, Shape};
use crate::graph::{AttentionMask, RotaryPairs, RotaryScaling, Scores};
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::rotary::{self, RotaryDefaults, yarn_scale};
use crate::model::transformer::{
    Attention, FeedForward, Indexer, Latent, Mixture, Norm, Transformer,
};

/// Norm of compressed representations, with its own epsilon.
const LATENT_NORM: Norm = Norm::rms(1e-6);

/// `attention` with queries, keys and values through compressed latent representations.
pub(super) fn read(
    fields: Fields<'_>,
    sizes: &LatentRule,
    attention: &Attention,
) -> Result<Attention, ModelError> {
    let latent = Latent {
        q_lora_rank: fields.nullable_size_or("q_lora_rank", sizes.q_lora_rank)?,
        kv_lora_rank: fields.size_or("kv_lora_rank", sizes.kv_lora_rank)?,
        qk_nope_head_dim: fields.size_or("qk_nope_head_dim", sizes.qk_nope_head_dim)?,
        qk_rope_head_dim: fields.size_or("qk_rope_head_dim", sizes.qk_rope_head_dim)?,
        down_bias: attention.output_bias,
        norm: LATENT_NORM,
        indexer: sizes.indexer.as_ref().map(|rule| indexer(fields, rule)).transpose()?,
    };
    let pairs = if fields.flag_or("rope_interleave", true)? {
        RotaryPairs::Neighbours
    } else {
        RotaryPairs::Halves
    };
    let defaults = RotaryDefaults { pairs, ..RotaryDefaults::default() };
    let rotary = rotary::rotation(fields, None, latent.qk_rope_head_dim, defaults)?;
    let scaling = ["rope_scaling", "rope_parameters"].iter().find_map(|it| fields.within(it));
    let weight = scaling.map_or(Ok(0.0), |it| it.real_or("mscale_all_dim", 0.0))?;
    let head_dim = latent.qk_nope_head_dim + latent.qk_rope_head_dim;
    // YaRN with `mscale_all_dim` scales the scores, in addition to the factor of the rotation.
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
        head_dim,
        value_head_dim: fields.size_or("v_head_dim", sizes.v_head_dim)?,
        mask: match latent.indexer {
            Some(Indexer { keys, .. }) => AttentionMask::Chosen { keys },
            None => attention.mask,
        },
        latent: Some(latent),
        ..attention.clone()
    })
}

fn indexer(fields: Fields<'_>, rule: &IndexerRule) -> Result<Indexer, ModelError> {
    Ok(Indexer {
        num_heads: rule.heads.read(fields)?,
        head_dim: rule.head_dim.read(fields)?,
        keys: rule.keys.read(fields)?,
    })
}

/// Layers that are `shared` in `indexer_types` attend to the keys that the layer before has chosen.
pub(super) fn shared_choices(
    fields: Fields<'_>,
    _: &Shape,
    transformer: &mut Transformer,
) -> Finished {
    let types = fields.texts("indexer_types")?.unwrap_or_default();
    transformer.each_layer(|index, layer| {
        let attention =
            layer.attention_mut().filter(|_| types.get(index as usize) == Some(&"shared"));
        if let Some(latent) = attention.and_then(|attention| attention.latent.as_mut()) {
            latent.indexer = None;
        }
        Ok(())
    })
}

/// Kimi K3: the input of each half of a layer is a weighted sum of the residual stream and of the streams at the
/// beginning of blocks of layers, with weights from a norm and a row of weights; the head reads such a sum, too. The
/// sum of routed experts' outputs has a norm before it is projected back.
pub(super) fn residuals_of_blocks(
    fields: Fields<'_>,
    shape: &Shape,
    transformer: &mut Transformer,
) -> Finished {
    // The streams at the beginning of blocks are no tensors of the graph; a warning says that the field is not read.
    let has_residuals = fields.unnoted().optional_size("attn_res_block_size")?.is_some();
    let has_norm = fields.flag_or("latent_moe_use_norm", false)?;
    transformer.each_layer(|index, layer| {
        if has_residuals {
            let ends = u64::from(index + 1 == shape.num_hidden_layers);
            let weights = (2 + ends).saturating_mul(2).saturating_mul(shape.hidden_size);
            layer.numbers.push(("block_residuals".to_owned(), weights));
        }
        if let FeedForward::Mixture(Mixture { latent_size: Some(width), .. }) = layer.feed_forward
            && has_norm
        {
            layer.numbers.push(("mlp.latent_norm".to_owned(), width));
        }
        Ok(())
    })
}
