//! BERT, RoBERTa and XLM-RoBERTa: types of tokens, and a masked-language-model head.

use super::parts::Shape;
use crate::graph::{Activation, AttentionMask};
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::transformer::{Embedding, HeadTransform, Positions, Transformer};

/// The head of BERT has the activation of its layers.
pub(super) fn bert(
    fields: Fields<'_>,
    _: &Shape,
    transformer: Transformer,
) -> Result<Transformer, ModelError> {
    let activation = fields.activation_or("hidden_act", "gelu")?;
    finish(fields, transformer, 0, activation)
}

/// The head of RoBERTa has an activation of its own, and positions are counted from the row after that of padding.
pub(super) fn roberta(
    fields: Fields<'_>,
    _: &Shape,
    transformer: Transformer,
) -> Result<Transformer, ModelError> {
    let first = fields.count_or("pad_token_id", 1)? + 1;
    finish(fields, transformer, first, Activation::Gelu)
}

fn finish(
    fields: Fields<'_>,
    mut transformer: Transformer,
    first: u64,
    activation: Activation,
) -> Result<Transformer, ModelError> {
    if !fields.flag_or("is_decoder", false)? {
        transformer.each_attention(|attention| attention.mask = AttentionMask::Full);
    }
    if let Embedding::Tokens { positions, token_types, norm, .. } = &mut transformer.embedding {
        *token_types = Some(fields.size_or("type_vocab_size", 2)?);
        *positions = positions.map(|positions| Positions { first, ..positions });
        transformer.head.transform = norm.map(|norm| HeadTransform { activation, norm });
    }
    Ok(transformer)
}
