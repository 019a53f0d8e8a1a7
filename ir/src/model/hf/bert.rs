//! BERT, RoBERTa and XLM-RoBERTa, with their masked-language-model heads.

use super::parts::{self, Defaults, Shape};
use crate::graph::{Activation, AttentionMask};
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::transformer::{
    Attention, Embedding, FeedForward, Head, HeadTransform, Norm, NormPlacement, Positions,
    Transformer,
};

const BERT: Defaults = Defaults {
    vocab_size: 30_522,
    num_attention_heads: 12,
    num_key_value_heads: None,
    head_dim: None,
    intermediate_size: Some(3072),
    max_position_embeddings: 512,
    tie_word_embeddings: true,
};

pub(super) fn bert(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let activation = fields.activation_or("hidden_act", "gelu")?;
    build(fields, BERT, 0, activation)
}

pub(super) fn roberta(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    let defaults = Defaults { vocab_size: 50_265, ..BERT };
    build(fields, defaults, after_padding(fields)?, Activation::Gelu)
}

pub(super) fn xlm_roberta(fields: Fields<'_>) -> Result<Transformer, ModelError> {
    build(fields, BERT, after_padding(fields)?, Activation::Gelu)
}

/// Positions are counted from the row after that of padding.
fn after_padding(fields: Fields<'_>) -> Result<u64, ModelError> {
    Ok(fields.count_or("pad_token_id", 1)? + 1)
}

/// The head of BERT has the activation of its layers, that of RoBERTa its own.
fn build(
    fields: Fields<'_>,
    defaults: Defaults,
    first: u64,
    of_head: Activation,
) -> Result<Transformer, ModelError> {
    let positions = fields.text_or("position_embedding_type", "absolute")?;
    if positions != "absolute" {
        return Err(fields.unsupported(format!("`position_embedding_type` `{positions}`")));
    }
    if fields.flag_or("add_cross_attention", false)? {
        return Err(fields.unsupported("`add_cross_attention`".to_owned()));
    }
    let shape = Shape::read(fields, defaults)?.with_derived_head_dim(fields)?;
    let is_decoder = fields.flag_or("is_decoder", false)?;
    let norm = Norm::layer(fields.real_or("layer_norm_eps", 1e-12)?);
    let attention = Attention {
        num_kv_heads: shape.num_attention_heads,
        rotary: None,
        mask: if is_decoder { AttentionMask::Causal } else { AttentionMask::Full },
        ..parts::with_biases(shape.attention(), true)
    };
    let activation = fields.activation_or("hidden_act", "gelu")?;
    let mlp = FeedForward::Dense(shape.plain_mlp(activation, true));
    let layer = parts::layer(attention, mlp, norm, NormPlacement::PostResidual);
    let decoder = shape.decoder(shape.equal_layers(layer), norm);
    Ok(Transformer {
        embedding: Embedding::Tokens {
            vocab_size: shape.vocab_size,
            projected_from: None,
            positions: Some(Positions { first, ..shape.positions(fields)? }),
            token_types: Some(fields.size_or("type_vocab_size", 2)?),
            norm: Some(norm),
        },
        final_norm: None,
        head: Head {
            bias: true,
            transform: Some(HeadTransform { activation: of_head, norm }),
            ..decoder.head
        },
        dropout: parts::dropout(
            fields,
            [
                Some(("hidden_dropout_prob", 0.1)),
                Some(("hidden_dropout_prob", 0.1)),
                Some(("attention_probs_dropout_prob", 0.1)),
            ],
        )?,
        ..decoder
    })
}
