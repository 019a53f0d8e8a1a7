//! Vision transformer with its classifier.

use super::heads;
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
    let num_classes = heads::num_labels(fields)?;
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
