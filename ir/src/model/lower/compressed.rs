//! Lowering of attention to one key for all heads and to compressed keys (DeepSeek-AI 2026, *DeepSeek-V4*, section 2.3).

use super::attention::Scope;
use super::{Lowering, Norm};
use crate::graph::{Dim, DimName, GraphError, OpKind, Value};
use crate::model::transformer::{Attention, Compressed, KeyBlocks};

impl Lowering {
    /// Queries; keys, which are also the values; and, where a layer has them, keys of blocks and the choice among
    /// these.
    pub(super) fn compressed_projections(
        &self,
        scope: &mut Scope<'_>,
        attention: &Attention,
        one: &Compressed,
        x: Value,
    ) -> Result<Vec<Value>, GraphError> {
        let hidden = [DimName::Hidden];
        let down = (Some(one.q_lora_rank), false, one.norm);
        let (query, narrow) = self.latent_query(scope, attention, down, x)?;
        let untrained = Norm { weight: false, ..one.norm };
        let query = self.positioned(scope, "query_head", attention, untrained, query)?;
        let key_head = Dim::fixed(DimName::KvHeads, attention.num_kv_heads);
        let head_dim = Dim::fixed(DimName::HeadDim, attention.head_dim);
        let key = scope.linear("key", &hidden, &[key_head, head_dim], false, x)?;
        let key = self.positioned(scope, "key", attention, one.norm, key)?;
        let mut inputs = vec![query, key, key];
        let Some(blocks) = one.blocks else { return Ok(inputs) };
        let width = attention.head_dim;
        inputs.push(self.keys_of_blocks(
            scope,
            "block",
            attention,
            one.norm,
            (blocks, width),
            x,
        )?);
        if let Some(indexer) = blocks.indexer {
            let heads = Dim::fixed(DimName::Features, indexer.num_heads);
            let features = Dim::fixed(DimName::HeadDim, indexer.head_dim);
            let latent = [DimName::Latent];
            let query = scope.linear("index_query", &latent, &[heads, features], false, narrow)?;
            let query = Self::rotated(scope, "index_query", attention, query)?;
            let of_index = (blocks, indexer.head_dim);
            let key = self.keys_of_blocks(scope, "index", attention, one.norm, of_index, x)?;
            let weights = scope.linear("index_weights", &hidden, &[heads], false, x)?;
            let kind = OpKind::Indexer { keys: indexer.keys, block: 1 };
            inputs.push(scope.push("index", kind, &[query, key, weights])?);
        }
        Ok(inputs)
    }

    /// One key, of the given number of features, for each block of positions.
    fn keys_of_blocks(
        &self,
        scope: &mut Scope<'_>,
        part: &str,
        attention: &Attention,
        norm: Norm,
        (blocks, features): (KeyBlocks, u64),
        x: Value,
    ) -> Result<Value, GraphError> {
        let KeyBlocks { length: block, overlap: overlaps, .. } = blocks;
        let width = if overlaps { features.saturating_mul(2) } else { features };
        let width = [Dim::fixed(DimName::HeadDim, width)];
        let hidden = [DimName::Hidden];
        let values = scope.linear(&format!("{part}_value"), &hidden, &width, false, x)?;
        let gates = scope.linear(&format!("{part}_gate"), &hidden, &width, false, x)?;
        let kind = OpKind::Compress { block, overlaps };
        let key = scope.push(&format!("{part}_sum"), kind, &[values, gates])?;
        self.positioned(scope, &format!("{part}_key"), attention, norm, key)
    }

    /// `x` after a norm over the features of a head and the rotation by positions.
    pub(super) fn positioned(
        &self,
        scope: &mut Scope<'_>,
        part: &str,
        attention: &Attention,
        norm: Norm,
        x: Value,
    ) -> Result<Value, GraphError> {
        let y = self.named_norm(scope, &format!("{part}_norm"), norm, &[DimName::HeadDim], x)?;
        Self::rotated(scope, part, attention, y)
    }

    /// The output of attention: rotated back, each group of heads projected separately, then all groups together.
    pub(super) fn grouped_output(
        &self,
        scope: &mut Scope<'_>,
        attention: &Attention,
        one: &Compressed,
        attended: Value,
    ) -> Result<Value, GraphError> {
        let attended = Self::rotated(scope, "output", attention, attended)?;
        let of_group = attention.num_heads / one.output_groups * attention.head_dim;
        let groups = Dim::fixed(DimName::Groups, one.output_groups);
        let features = Dim::fixed(DimName::HeadDim, of_group);
        let rank = Dim::fixed(DimName::Latent, one.output_rank);
        let dims = vec![Dim::BATCH, self.sequence, groups, features];
        let grouped = scope.push("output_groups", OpKind::Reshape { dims }, &[attended])?;
        let weight = OpKind::Parameter { dims: vec![groups, features, rank] };
        let weight = scope.push("output_down", weight, &[])?;
        let product = OpKind::Product { over: vec![DimName::HeadDim] };
        let narrow = scope.push("output_narrow", product, &[grouped, weight])?;
        let contracted = [DimName::Groups, DimName::Latent];
        scope.linear("output", &contracted, &[self.hidden], false, narrow)
    }
}
