//! Zamba 2: Mamba-2, and blocks of attention whose weights several layers share.

use super::parts::{self, Finished, Shape};
use crate::graph::Real;
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::rotary::{self, RotaryDefaults};
use crate::model::transformer::{Attention, Mlp, SharedBlock, Transformer};

/// Layers with a shared block in models of 54 layers that do not list theirs.
const USUAL: [u64; 9] = [6, 12, 18, 24, 30, 36, 42, 47, 51];
/// Number of layers of such models.
const USUAL_LAYERS: u64 = 54;

pub(super) fn zamba2(fields: Fields<'_>, shape: &Shape, transformer: &mut Transformer) -> Finished {
    let hybrid = hybrid_layers(fields, shape)?;
    let blocks = fields.size_or("num_mem_blocks", 1)?;
    let (attention, mlp) = (attention(fields, shape)?, mlp(fields, shape)?);
    transformer.each_layer(|layer_index, layer| {
        let index = hybrid.iter().position(|it| *it == layer_index).map(|it| it as u64);
        layer.shared_block = index.map(|index| {
            let (attention, owner) = (attention.clone(), index % blocks);
            Box::new(SharedBlock { attention, mlp, index, owner })
        });
        Ok(())
    })
}

/// Indices of the layers with a shared block.
fn hybrid_layers(fields: Fields<'_>, shape: &Shape) -> Result<Vec<u64>, ModelError> {
    const FIELD: &str = "layers_block_type";
    let layers = shape.num_hidden_layers;
    let types = match fields.texts(FIELD)? {
        Some(types) => Some(types),
        None => fields.texts("layer_types")?,
    };
    match types {
        Some(types) if types.len() as u64 == layers => {
            let is_hybrid = types.iter().zip(0..).filter(|(word, _)| **word == "hybrid");
            Ok(is_hybrid.map(|(_, index)| index).collect())
        }
        Some(types) => {
            let given = types.len();
            Err(fields.unsupported(format!("{given} `{FIELD}` for {layers} layers")))
        }
        None if layers == USUAL_LAYERS => Ok(USUAL.to_vec()),
        None => Err(fields.missing(FIELD)),
    }
}

/// Attention whose heads divide twice the width.
fn attention(fields: Fields<'_>, shape: &Shape) -> Result<Attention, ModelError> {
    let wide = shape.hidden_size.saturating_mul(2);
    let head_dim = wide / shape.num_attention_heads;
    for (field, usual) in [("attention_hidden_size", wide), ("attention_head_dim", head_dim)] {
        let stated = fields.size_or(field, usual)?;
        if stated != usual {
            return Err(fields.unsupported(format!("`{field}` {stated} in place of {usual}")));
        }
    }
    let is_adapted = fields.flag_or("use_shared_attention_adapter", false)?;
    let adapter_rank = is_adapted.then(|| fields.size_or("adapter_rank", 128)).transpose()?;
    // Adapters have the same number of output features for keys as for queries.
    if adapter_rank.is_some() && shape.num_key_value_heads != shape.num_attention_heads {
        let heads = shape.num_key_value_heads;
        return Err(fields.unsupported(format!("an adapter of {heads} key-value heads")));
    }
    let is_rotated = fields.flag_or("use_mem_rope", false)?;
    let rotary = || rotary::rotation(fields, None, head_dim, RotaryDefaults::default());
    let rotary = is_rotated.then(rotary).transpose()?;
    let mut attention =
        Attention { head_dim, value_head_dim: head_dim, rotary, ..shape.attention() };
    attention.scores.scale = Some(Real::from((head_dim as f64 / 2.0).powf(-0.5)));
    attention.adapter_rank = adapter_rank;
    Ok(attention)
}

fn mlp(fields: Fields<'_>, shape: &Shape) -> Result<Mlp, ModelError> {
    let mlp = shape.gated_mlp(fields.activation_or("hidden_act", "gelu")?);
    let mlp = parts::with_mlp_biases(mlp, fields.flag_or("add_bias_linear", false)?);
    Ok(Mlp { adapter_rank: Some(fields.size_or("adapter_rank", 128)?), ..mlp })
}
