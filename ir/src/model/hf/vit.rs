//! Vision transformer with its classifier.

use super::parts::Shape;
use crate::graph::AttentionMask;
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::transformer::{Embedding, Head, Transformer};

pub(super) fn vit(
    fields: Fields<'_>,
    _: &Shape,
    mut transformer: Transformer,
) -> Result<Transformer, ModelError> {
    transformer.each_attention(|attention| attention.mask = AttentionMask::Full);
    let num_classes = num_labels(fields)?;
    Ok(Transformer {
        embedding: Embedding::Patches {
            image_size: fields.square_or("image_size", 224)?,
            patch_size: fields.square_or("patch_size", 16)?,
            num_channels: fields.size_or("num_channels", 3)?,
        },
        head: Head { num_classes, tied: false, first_token_only: true, ..transformer.head },
        max_position_embeddings: None,
        ..transformer
    })
}

/// Number of a classifier's labels.
pub(super) fn num_labels(fields: Fields<'_>) -> Result<u64, ModelError> {
    match fields.num_entries("id2label") {
        Some(labels) => Ok(labels),
        None => fields.size_or("num_labels", 2),
    }
}
