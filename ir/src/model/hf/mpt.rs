//! MPT. Positions are by ALiBi; the transformers library has no biases and a feed-forward block of
//! four times the width, whatever `no_bias`, `learned_pos_emb` and `expansion_ratio` say.

use super::parts::{self, Defaults, LAYER_NORM_WITHOUT_BIAS, Shape};
use crate::graph::Activation;
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::transformer::{Attention, FeedForward, NormPlacement, Transformer};

const DEFAULTS: Defaults = Defaults {
    vocab_size: 50_368,
    num_attention_heads: 16,
    num_key_value_heads: None,
    head_dim: None,
    intermediate_size: None,
    max_position_embeddings: 2048,
    tie_word_embeddings: true,
};

pub(super) fn mpt(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let shape = Shape::read(fields, DEFAULTS)?.with_derived_head_dim(fields)?;
    let shape = Shape { intermediate_size: 4 * shape.hidden_size, ..shape };
    let attention =
        Attention { num_kv_heads: shape.num_attention_heads, rotary: false, ..shape.attention() };
    let layer = parts::layer(
        attention,
        FeedForward::Dense(shape.plain_mlp(Activation::Gelu, false)),
        LAYER_NORM_WITHOUT_BIAS,
        NormPlacement::Pre,
    );
    let attention_dropout = match fields.within("attn_config") {
        Some(attention) => attention.has_rate("attn_pdrop", 0.0)?,
        None => false,
    };
    Ok(Transformer {
        hidden_dropout: fields.has_rate("resid_pdrop", 0.0)?,
        attention_dropout,
        ..shape.decoder(shape.equal_layers(layer), LAYER_NORM_WITHOUT_BIAS)
    })
}
