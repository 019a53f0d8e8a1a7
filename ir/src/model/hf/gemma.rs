//! Gemma 4: attention of two widths, keys and values that layers share, and embeddings for each layer.

use super::parts::{Finished, Shape};
use crate::graph::AttentionMask;
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::transformer::{
    Attention, FeedForward, KeyValues, Layer, LayerEmbedding, Norm, SharedBy, Transformer,
};

/// Gemma 4, whose layers may have embeddings of their own.
pub(super) fn gemma4(fields: Fields<'_>, shape: &Shape, transformer: &mut Transformer) -> Finished {
    unified(fields, shape, transformer)?;
    embed_for_each(fields, transformer)
}

/// Gemma 4: layers without a window have heads of their own width, and may have one projection for keys and values.
pub(super) fn unified(
    fields: Fields<'_>,
    shape: &Shape,
    transformer: &mut Transformer,
) -> Finished {
    const BOTH_WAYS: &str = "use_bidirectional_attention";
    if fields.find(BOTH_WAYS).is_some_and(|(_, value)| value == "all") {
        return Err(fields.unsupported(format!("`{BOTH_WAYS}` `all`")));
    }
    let full = FullAttention::read(fields)?;
    let norm = Norm { weight: false, ..layer_norm(transformer) };
    let double_wide = fields.flag_or("use_double_wide_mlp", false)?;
    transformer.each_attention(|attention| {
        attention.value_norm = Some(norm);
        if is_full(attention) {
            full.set(attention);
        } else if let Some(rotary) = &mut attention.rotary {
            rotary.features = None;
        }
    });
    share_keys(fields, shape, transformer)?;
    if double_wide {
        transformer.each_layer(|_, layer| {
            let shares = layer.attention().map(|attention| attention.key_values);
            let width = match (shares, &mut layer.feed_forward) {
                (Some(KeyValues::Reused(_)), FeedForward::Dense(mlp)) => mlp,
                (Some(KeyValues::Reused(_)), FeedForward::Mixture(mixture)) => {
                    let Some(shared) = &mut mixture.shared else { return Ok(()) };
                    shared
                }
                _ => return Ok(()),
            };
            width.intermediate_size = width.intermediate_size.saturating_mul(2);
            Ok(())
        })?;
    }
    Ok(())
}

/// Attention of layers without a window.
struct FullAttention {
    head_dim: u64,
    num_kv_heads: Option<u64>,
    one_projection: bool,
}

impl FullAttention {
    /// Sizes from `per_layer_config`, which later configurations have for each such layer; otherwise from separate
    /// fields.
    fn read(fields: Fields<'_>) -> Result<Self, ModelError> {
        let one_projection = fields.flag_or("attention_k_eq_v", false)?;
        let stated = fields.equal_objects("per_layer_config")?;
        let num_kv_heads = match stated {
            Some(stated) => stated.optional_size("num_key_value_heads")?,
            None => fields.optional_size("num_global_key_value_heads")?.filter(|_| one_projection),
        };
        let head_dim = match stated {
            Some(stated) => stated.size_or("head_dim", 512)?,
            None => fields.size_or("global_head_dim", 512)?,
        };
        Ok(Self { head_dim, num_kv_heads, one_projection })
    }

    fn set(&self, attention: &mut Attention) {
        if let Some(features) = attention.rotary.as_mut().and_then(|it| it.features.as_mut()) {
            *features = *features * self.head_dim / attention.head_dim;
        }
        attention.head_dim = self.head_dim;
        attention.value_head_dim = self.head_dim;
        attention.num_kv_heads = self.num_kv_heads.unwrap_or(attention.num_kv_heads);
        if self.one_projection {
            attention.key_values = KeyValues::OneProjection;
        }
    }
}

fn is_full(attention: &Attention) -> bool {
    !matches!(attention.mask, AttentionMask::SlidingWindow { .. })
}

fn layer_norm(transformer: &Transformer) -> Norm {
    transformer.layers.first().map_or(Norm::rms(1e-6), |layers| layers.layer.norm)
}

/// The last `num_kv_shared_layers` layers reuse keys and values: layers with a window, those of the last earlier layer
/// with a window; layers without one, those of the last earlier layer without one.
fn share_keys(fields: Fields<'_>, shape: &Shape, transformer: &mut Transformer) -> Finished {
    const FIELD: &str = "num_kv_shared_layers";
    let shared = fields.count_or(FIELD, 0)?;
    let layers = shape.num_hidden_layers;
    let by = |attention: &Attention| {
        if is_full(attention) { SharedBy::Full } else { SharedBy::Sliding }
    };
    let kinds = transformer.layers.iter().flat_map(|it| {
        let kind = it.layer.attention().map(by);
        std::iter::repeat_n(kind, it.count as usize)
    });
    let kinds: Vec<_> = kinds.collect();
    let first = layers.checked_sub(shared).filter(|first| *first > 0);
    let first = first
        .ok_or_else(|| fields.unsupported(format!("`{FIELD}` {shared} of {layers} layers")))?
        as usize;
    let keeper = |kind| kinds[..first].iter().rposition(|it| *it == kind);
    if let Some(layer) = (first..kinds.len()).find(|it| keeper(kinds[*it]).is_none()) {
        return Err(fields.unsupported(format!("layer {layer}, which shares with none,")));
    }
    let is_used = |index: usize| kinds[first..].iter().any(|kind| keeper(*kind) == Some(index));
    transformer.each_layer(|index, layer| {
        let index = index as usize;
        let Some(attention) = layer.attention_mut() else { return Ok(()) };
        let one_projection = attention.key_values == KeyValues::OneProjection;
        if index >= first {
            attention.key_values = KeyValues::Reused(by(attention));
        } else if is_used(index) {
            attention.key_values = KeyValues::Kept { by: by(attention), one_projection };
        }
        Ok(())
    })
}

/// Embeddings of tokens for each layer, where their width is not zero.
fn embed_for_each(fields: Fields<'_>, transformer: &mut Transformer) -> Finished {
    let size = fields.count_or("hidden_size_per_layer_input", 256)?;
    if size == 0 {
        return Ok(());
    }
    let vocab_size = fields.size_or("vocab_size_per_layer_input", 262_144)?;
    let activation = fields.activation_or("hidden_activation", "gelu_pytorch_tanh")?;
    let norm = layer_norm(transformer);
    transformer.each_layer(|index, layer: &mut Layer| {
        let has_norm = index == 0;
        layer.own_embedding = Some(LayerEmbedding { vocab_size, size, activation, norm, has_norm });
        Ok(())
    })
}
