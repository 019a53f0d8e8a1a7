//! BERT, RoBERTa and XLM-RoBERTa: token types, and a masked-language-model head.

use super::parts::{Finished, Shape};
use crate::graph::{Activation, AttentionMask};
use crate::model::fields::Fields;
use crate::model::transformer::{Embedding, HeadTransform, Positions, Transformer};

/// BERT: the head has the activation function of the layers.
pub(super) fn bert(fields: Fields<'_>, _: &Shape, transformer: &mut Transformer) -> Finished {
    let activation = fields.activation_or("hidden_act", "gelu")?;
    finish(fields, transformer, 0, activation)
}

/// RoBERTa: the head has GELU, and position indices start after the row of the padding token.
pub(super) fn roberta(fields: Fields<'_>, _: &Shape, transformer: &mut Transformer) -> Finished {
    let first = fields.count_or("pad_token_id", 1)? + 1;
    finish(fields, transformer, first, Activation::Gelu)
}

fn finish(
    fields: Fields<'_>,
    transformer: &mut Transformer,
    first: u64,
    activation: Activation,
) -> Finished {
    if !fields.flag_or("is_decoder", false)? {
        transformer.each_attention(|attention| attention.mask = AttentionMask::Full);
    }
    if let Embedding::Tokens { positions, token_types, norm, .. } = &mut transformer.embedding {
        *token_types = Some(fields.size_or("type_vocab_size", 2)?);
        *positions = positions.map(|positions| Positions { first, ..positions });
        transformer.head.transform =
            norm.map(|norm| HeadTransform { activation, bias: true, norm: Some(norm) });
    }
    Ok(())
}

/// Attention to all positions.
#[expect(clippy::unnecessary_wraps, reason = "functions that finish a family may fail")]
pub(super) fn both_ways(_: Fields<'_>, _: &Shape, transformer: &mut Transformer) -> Finished {
    transformer.each_attention(|attention| attention.mask = AttentionMask::Full);
    Ok(())
}

/// ModernBERT: attention in both directions, global or local, and a dense layer before the head. A window of `w`
/// positions, both sides together, is counted as `w` positions before the query.
pub(super) fn modern(fields: Fields<'_>, shape: &Shape, transformer: &mut Transformer) -> Finished {
    transformer.each_attention(|attention| {
        if attention.mask == AttentionMask::Causal {
            attention.mask = AttentionMask::Full;
        }
    });
    modern_decoder(fields, shape, transformer)
}

/// ModernBERT as a decoder: attention to earlier positions only, and a dense layer before the head.
pub(super) fn modern_decoder(
    fields: Fields<'_>,
    _: &Shape,
    transformer: &mut Transformer,
) -> Finished {
    let (norm, bias) = (transformer.final_norm, fields.flag_or("classifier_bias", false)?);
    let activation = fields.activation_or("classifier_activation", "gelu")?;
    let transform = norm.map(|norm| HeadTransform { activation, bias, norm: Some(norm) });
    transformer.head.transform = transform;
    Ok(())
}
