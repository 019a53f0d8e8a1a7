//! EleutherAI's GPT-NeoX (also Pythia) and GPT-J.

use super::parts::{self, Defaults, Shape};
use crate::graph::{RotaryPairs, Rotation};
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::rotary::{self, RotaryDefaults};
use crate::model::transformer::{Attention, FeedForward, Head, Norm, NormPlacement, Transformer};

const NEOX: Defaults = Defaults {
    vocab_size: 50_432,
    num_attention_heads: 64,
    num_key_value_heads: None,
    head_dim: None,
    intermediate_size: Some(24_576),
    max_position_embeddings: 2048,
    tie_word_embeddings: false,
};
const GPTJ: Defaults =
    Defaults { vocab_size: 50_400, num_attention_heads: 16, intermediate_size: None, ..NEOX };

pub(super) fn gpt_neox(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, NEOX)?.with_derived_head_dim(fields)?;
    let bias = fields.flag_or("attention_bias", true)?;
    let placement = if fields.flag_or("use_parallel_residual", true)? {
        NormPlacement::ParallelSeparate
    } else {
        NormPlacement::Pre
    };
    let mlp = shape.plain_mlp(fields.activation_or("hidden_act", "gelu")?, true);
    let norm = Norm::layer(fields.real_or("layer_norm_eps", 1e-5)?);
    let defaults = RotaryDefaults {
        theta: fields.real_or("rotary_emb_base", rotary::THETA)?,
        share: fields.real_or("rotary_pct", 0.25)?,
        pairs: RotaryPairs::Halves,
    };
    let rotary = Some(rotary::rotation(fields, shape.head_dim, defaults)?);
    let attention = Attention { rotary, ..parts::with_biases(shape.attention(), bias) };
    let layer = parts::layer(attention, FeedForward::Dense(mlp), norm, placement);
    let (hidden, attention) = (("hidden_dropout", 0.0), ("attention_dropout", 0.0));
    Ok(Transformer {
        dropout: parts::dropout(fields, [Some(hidden), Some(hidden), Some(attention)])?,
        ..shape.decoder(shape.equal_layers(layer), norm)
    })
}

pub(super) fn gptj(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, GPTJ)?.with_derived_head_dim(fields)?;
    let mlp = shape.plain_mlp(fields.activation_or("activation_function", "gelu_new")?, true);
    let norm = Norm::layer(fields.real_or("layer_norm_epsilon", 1e-5)?);
    let rotated = fields.nullable_size_or("rotary_dim", Some(64))?;
    let rotary = Rotation {
        features: rotated.filter(|features| *features < shape.head_dim),
        pairs: RotaryPairs::Neighbours,
        ..Rotation::plain(rotary::THETA)
    };
    let attention = Attention { rotary: Some(rotary), ..shape.attention() };
    let mlp = FeedForward::Dense(mlp);
    let layer = parts::layer(attention, mlp, norm, NormPlacement::ParallelShared);
    let decoder = shape.decoder(shape.equal_layers(layer), norm);
    Ok(Transformer {
        head: Head { bias: true, ..decoder.head },
        dropout: parts::dropout(
            fields,
            [Some(("embd_pdrop", 0.0)), Some(("resid_pdrop", 0.0)), Some(("attn_pdrop", 0.0))],
        )?,
        ..decoder
    })
}
