//! Vision transformer with its classifier.

use super::heads;
use super::parts::{Finished, Shape};
use crate::graph::AttentionMask;
use crate::model::fields::Fields;
use crate::model::transformer::{Embedding, Transformer};

pub(super) fn vit(fields: Fields<'_>, _: &Shape, transformer: &mut Transformer) -> Finished {
    transformer.each_attention(|attention| attention.mask = AttentionMask::Full);
    transformer.head.num_classes = heads::num_labels(fields)?;
    transformer.head.tied = false;
    transformer.head.first_token_only = true;
    transformer.embedding = Embedding::Patches {
        image_size: fields.square_or("image_size", 224)?,
        patch_size: fields.square_or("patch_size", 16)?,
        num_channels: fields.size_or("num_channels", 3)?,
    };
    transformer.max_position_embeddings = None;
    Ok(())
}
