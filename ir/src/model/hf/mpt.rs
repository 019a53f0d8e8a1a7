//! MPT. Positions are by ALiBi; the transformers library has no biases and a feed-forward block of
//! four times the width, whatever `no_bias`, `learned_pos_emb` and `expansion_ratio` say.

use super::parts::{self, Defaults, Shape};
use crate::graph::{Activation, AlibiSlopes, PositionBias, Real, Scores};
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::transformer::{Attention, DropoutRates, FeedForward, NormPlacement, Transformer};

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
    let of_attention = fields.within("attn_config");
    let stated = |name: &str| match of_attention {
        Some(attention) => attention.optional_real(name),
        None => Ok(None),
    };
    let attention = Attention {
        num_kv_heads: shape.num_attention_heads,
        rotary: None,
        clamp: stated("clip_qkv")?,
        scores: Scores {
            scale: stated("softmax_scale")?,
            bias: PositionBias::Alibi(AlibiSlopes::PowerAbove),
            ..Scores::default()
        },
        ..shape.attention()
    };
    let norm = parts::layer_norm_without_bias(fields.real_or("layer_norm_epsilon", 1e-5)?);
    let mlp = FeedForward::Dense(shape.plain_mlp(Activation::Gelu, false));
    let layer = parts::layer(attention, mlp, norm, NormPlacement::Pre);
    // The library has one rate for all, whatever `resid_pdrop` and `emb_pdrop` say.
    let rate =
        of_attention.map_or(Ok(Real::default()), |fields| fields.rate_or("attn_pdrop", 0.0))?;
    Ok(Transformer {
        dropout: DropoutRates {
            attention: rate,
            attention_output: rate,
            feed_forward_output: rate,
            ..DropoutRates::default()
        },
        ..shape.decoder(shape.equal_layers(layer), norm)
    })
}
