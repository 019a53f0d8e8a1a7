//! MPT, whose configuration has a nested one for attention. Whatever `no_bias`, `learned_pos_emb` and
//! `expansion_ratio` say, the library has no biases, and its feed-forward block is four times as wide as the model.

use super::parts::{Finished, Shape};
use crate::graph::Real;
use crate::model::fields::Fields;
use crate::model::transformer::{DropoutRates, Transformer};

pub(super) fn mpt(fields: Fields<'_>, _: &Shape, transformer: &mut Transformer) -> Finished {
    let Some(of_attention) = fields.within("attn_config") else { return Ok(()) };
    let clamp = of_attention.optional_real("clip_qkv")?;
    let scale = of_attention.optional_real("softmax_scale")?;
    transformer.each_attention(|attention| {
        attention.clamp = clamp;
        attention.scores.scale = scale;
    });
    // The library uses one rate everywhere; `resid_pdrop` and `emb_pdrop` are ignored.
    let rate: Real = of_attention.rate_or("attn_pdrop", 0.0)?;
    transformer.dropout = DropoutRates {
        attention: rate,
        attention_output: rate,
        feed_forward_output: rate,
        ..DropoutRates::default()
    };
    Ok(())
}
