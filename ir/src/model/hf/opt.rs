//! OPT, whose smallest releases have a projected embedding and other placements of norms.

use super::parts::{Finished, Shape};
use crate::model::fields::Fields;
use crate::model::transformer::{Embedding, Transformer};

pub(super) fn opt(fields: Fields<'_>, shape: &Shape, transformer: &mut Transformer) -> Finished {
    let projection =
        fields.optional_size("word_embed_proj_dim")?.filter(|width| *width != shape.hidden_size);
    if let Embedding::Tokens { projected_from, .. } = &mut transformer.embedding {
        *projected_from = projection;
    }
    transformer.head.projected_to = projection;
    let norm_first = fields.flag_or("do_layer_norm_before", true)?;
    if !norm_first || fields.flag_or("_remove_final_layer_norm", false)? {
        transformer.final_norm = None;
    }
    transformer.dropout.layers = fields.rate_or("layerdrop", 0.0)?;
    Ok(())
}
