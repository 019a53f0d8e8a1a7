//! Attention to blocks of keys: compressed to one key each (DeepSeek-V4), or chosen as a whole (MiniMax-M3).

use super::parts::{Finished, Shape};
use crate::graph::AttentionMask;
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::transformer::{
    ChosenBlocks, Compressed, Indexer, KeyBlocks, Layer, Norm, Transformer,
};

/// DeepSeek-V4: a window, and keys of blocks of two lengths, of which the shorter ones overlap and are chosen.
pub(super) fn compressed(
    fields: Fields<'_>,
    shape: &Shape,
    transformer: &mut Transformer,
) -> Finished {
    let output_groups = fields.size_or("o_groups", 8)?;
    if !shape.num_attention_heads.is_multiple_of(output_groups) {
        return Err(ModelError::NotDivisible {
            architecture: fields.architecture(),
            field: "num_attention_heads",
            value: shape.num_attention_heads,
            divisor_field: "o_groups",
            divisor: output_groups,
        });
    }
    let lengths = fields.object("compress_rates")?;
    let length =
        |kind: &str, usual: u64| lengths.map_or(Ok(usual), |lengths| lengths.size_or(kind, usual));
    let near = KeyBlocks {
        length: length(SPARSE, 4)?,
        overlap: true,
        indexer: Some(Indexer {
            num_heads: fields.size_or("index_n_heads", 64)?,
            head_dim: fields.size_or("index_head_dim", 128)?,
            keys: fields.size_or("index_topk", 512)?,
        }),
    };
    let far = KeyBlocks { length: length(HEAVY, 128)?, overlap: false, indexer: None };
    let window = fields.size_or("sliding_window", 128)?;
    let one = Compressed {
        q_lora_rank: fields.size_or("q_lora_rank", 1024)?,
        norm: transformer.final_norm.unwrap_or(Norm::rms(1e-6)),
        output_groups,
        output_rank: fields.size_or("o_lora_rank", 1024)?,
        blocks: None,
    };
    let types = fields.texts("layer_types")?.unwrap_or_default();
    let compress = |index: u64, layer: &mut Layer| {
        let blocks = match types.get(index as usize).copied().unwrap_or(SLIDING) {
            SPARSE => Some(near),
            HEAVY => Some(far),
            SLIDING => None,
            other => return Err(fields.unsupported(format!("`layer_types` `{other}`"))),
        };
        if let Some(attention) = layer.attention_mut() {
            attention.compressed = Some(Compressed { blocks, ..one });
            attention.mask = match blocks {
                Some(KeyBlocks { length: block, indexer, .. }) => {
                    let keys = indexer.map(|indexer| indexer.keys);
                    AttentionMask::Compressed { window, block, keys }
                }
                None => AttentionMask::SlidingWindow { window },
            };
        }
        Ok(())
    };
    transformer.each_layer(compress)?;
    for layer in &mut transformer.prediction_modules {
        compress(shape.num_hidden_layers, layer)?;
    }
    Ok(())
}

const SLIDING: &str = "sliding_attention";
const SPARSE: &str = "compressed_sparse_attention";
const HEAVY: &str = "heavily_compressed_attention";

/// MiniMax-M3: layers that choose blocks of keys, and layers without a choice.
pub(super) fn chosen(fields: Fields<'_>, _: &Shape, transformer: &mut Transformer) -> Finished {
    let length = fields.size_or("index_block_size", 128)?;
    let blocks = fields.size_or("index_topk_blocks", 16)?;
    let indexer = Indexer {
        num_heads: fields.size_or("index_n_heads", 4)?,
        head_dim: fields.size_or("index_head_dim", 128)?,
        keys: blocks.saturating_mul(length),
    };
    let norm = transformer.final_norm.unwrap_or(Norm::rms(1e-6));
    let choice = ChosenBlocks { indexer, length, norm };
    let types = fields.texts("layer_types")?.unwrap_or_default();
    transformer.each_layer(|index, layer| {
        match types.get(index as usize).copied().unwrap_or("full_attention") {
            "full_attention" => return Ok(()),
            "minimax_m3_sparse" => {}
            other => return Err(fields.unsupported(format!("`layer_types` `{other}`"))),
        }
        if let Some(attention) = layer.attention_mut() {
            attention.chosen_blocks = Some(choice);
            attention.mask = AttentionMask::Chosen { keys: indexer.keys };
        }
        Ok(())
    })
}
