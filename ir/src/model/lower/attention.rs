//! Lowering of attention: plain, grouped-query and latent; fused and unfused.

use super::{AttentionKernel, Carried, CarriedValues, Lowering, linear};
use crate::graph::{
    Activation, AttentionMask, BlockBuilder, Dim, DimName, GraphError, OpKind, Parameter,
    PositionBias, Value,
};
use crate::model::transformer::{
    Attention, AttentionGate, ChosenBlocks, Indexer, KeyValues, Latent, Norm, QkNorm,
};

impl Lowering {
    /// Attention of `x` to `context`, with its projections. Operators are named `name.…`.
    pub(super) fn attention(
        &self,
        block: &mut BlockBuilder,
        name: &str,
        attention: &Attention,
        [x, context]: [Value; 2],
        carried: &mut CarriedValues,
    ) -> Result<Value, GraphError> {
        let mut scope = Scope { block, name };
        let mut values_up = None;
        // Queries, keys and values, then the inputs that a choice of keys adds.
        let inputs = match (&attention.latent, &attention.compressed) {
            (Some(latent), _) => {
                let (inputs, weight) = self.latent_projections(&mut scope, attention, latent, x)?;
                values_up = weight;
                inputs
            }
            (None, Some(one)) => self.compressed_projections(&mut scope, attention, one, x)?,
            (None, None) => {
                let all = self.projections(&mut scope, attention, [x, context], carried)?;
                let choice = attention.chosen_blocks.as_ref();
                let chosen = choice.map(|it| self.chosen_blocks(&mut scope, attention, it, x));
                all.into_iter().chain(chosen.transpose()?).collect()
            }
        };
        let attended = match (self.kernel, &inputs[..]) {
            (AttentionKernel::Unfused, &[query, key, value, ..])
                if attention.compressed.is_none() && values_up.is_none() =>
            {
                self.unfused(&mut scope, attention, query, key, value)?
            }
            _ => self.fused(&mut scope, attention, &inputs)?,
        };
        let attended = match values_up {
            Some(weight) => self.values_of_latents(&mut scope, attention, attended, weight)?,
            None => attended,
        };
        let attended = self.gated_heads(&mut scope, attention, x, attended)?;
        if let Some(one) = &attention.compressed {
            return self.grouped_output(&mut scope, attention, one, attended);
        }
        let contracted = [DimName::Heads, DimName::HeadDim];
        scope.linear("output", &contracted, &[self.hidden], attention.output_bias, attended)
    }

    /// Outputs of heads, multiplied by the sigmoid of a linear layer of `x` where the model has such a gate.
    fn gated_heads(
        &self,
        scope: &mut Scope<'_>,
        attention: &Attention,
        x: Value,
        attended: Value,
    ) -> Result<Value, GraphError> {
        let Some(gate) = attention.gate else { return Ok(attended) };
        let heads = Dim::fixed(DimName::Heads, attention.num_heads);
        let features = Dim::fixed(DimName::HeadDim, attention.value_head_dim);
        let produced = match gate {
            AttentionGate::Features | AttentionGate::WithQuery => vec![heads, features],
            AttentionGate::Heads => vec![heads],
        };
        let bias = gate == AttentionGate::WithQuery && attention.query_bias;
        let score = scope.linear("gate", &[DimName::Hidden], &produced, bias, x)?;
        let weighted = match gate {
            AttentionGate::Features | AttentionGate::WithQuery => {
                let kind = OpKind::GatedActivation(Activation::Sigmoid);
                scope.push("gated", kind, &[score, attended])?
            }
            AttentionGate::Heads => {
                let sigmoid = OpKind::Activation(Activation::Sigmoid);
                let weight = scope.push("gate_activation", sigmoid, &[score])?;
                self.recompute_if_flash(scope.block, weight);
                scope.push("gated", OpKind::Multiply, &[attended, weight])?
            }
        };
        self.recompute_if_flash(scope.block, weighted);
        Ok(weighted)
    }

    /// Attention in one kernel. A trained position bias belongs to the first layer of the stack; that layer's operator
    /// has a unique name, to which the other layers are tied.
    fn fused(
        &self,
        scope: &mut Scope<'_>,
        attention: &Attention,
        inputs: &[Value],
    ) -> Result<Value, GraphError> {
        let Attention { mask, scores, sinks, shares_bias, .. } = *attention;
        let kind = OpKind::Attention { mask, scores, sinks, dropout: self.dropout.attention };
        let is_relative = matches!(scores.bias, PositionBias::Relative { .. });
        let owner = format!("{}.{}_core", scope.name, scope.block.name());
        if is_relative && !shares_bias {
            return scope.block.push(owner, kind, inputs);
        }
        let core = scope.push("core", kind, inputs)?;
        if is_relative {
            scope.block.tie(core, "relative_bias", owner);
        }
        Ok(core)
    }

    /// Queries, keys and values, each from one linear layer; or those that an earlier layer kept.
    fn projections(
        &self,
        scope: &mut Scope<'_>,
        attention: &Attention,
        [x, context]: [Value; 2],
        carried: &mut CarriedValues,
    ) -> Result<[Value; 3], GraphError> {
        let heads = Dim::fixed(DimName::Heads, attention.num_heads);
        let head_dim = Dim::fixed(DimName::HeadDim, attention.head_dim);
        let project = |scope: &mut Scope<'_>, part: &str, dims: &[Dim], bias: bool, x: Value| {
            let y = scope.linear(part, &[DimName::Hidden], dims, bias, x)?;
            let narrow = scope.adapter(part, attention.adapter_rank, x)?;
            scope.adapted(part, narrow, dims, y)
        };
        let query = project(scope, "query", &[heads, head_dim], attention.query_bias, x)?;
        if let KeyValues::Reused(by) = attention.key_values
            && let Some(key) = carried.get(&Carried::Keys(by)).copied()
            && let Some(value) = carried.get(&Carried::Values(by)).copied()
        {
            let query = self.prepare(scope, "query", attention, heads, query)?;
            return Ok([query, key, value]);
        }
        let kv_heads = Dim::fixed(DimName::KvHeads, attention.num_kv_heads);
        let key = project(scope, "key", &[kv_heads, head_dim], attention.key_bias, context)?;
        let is_one = matches!(
            attention.key_values,
            KeyValues::OneProjection | KeyValues::Kept { one_projection: true, .. }
        );
        let value = if is_one {
            key
        } else {
            let values = [kv_heads, Dim::fixed(DimName::HeadDim, attention.value_head_dim)];
            project(scope, "value", &values, attention.value_bias, context)?
        };
        let query = self.prepare(scope, "query", attention, heads, query)?;
        let key = self.prepare(scope, "key", attention, kv_heads, key)?;
        let mut value = Self::clamped(scope, "value", attention, value)?;
        if let Some(norm) = attention.value_norm {
            value = self.named_norm(scope, "value_norm", norm, &[DimName::HeadDim], value)?;
        }
        if let KeyValues::Kept { by, .. } = attention.key_values {
            carried.insert(Carried::Keys(by), key);
            carried.insert(Carried::Values(by), value);
        }
        Ok([query, key, value])
    }

    /// Applies norm, clamp and rotation to queries or keys, where the model has them.
    fn prepare(
        &self,
        scope: &mut Scope<'_>,
        part: &str,
        attention: &Attention,
        heads: Dim,
        x: Value,
    ) -> Result<Value, GraphError> {
        let name = format!("{}.{part}_norm", scope.name);
        let over_head = [DimName::HeadDim];
        let normed = match attention.qk_norm {
            None => x,
            Some(QkNorm::PerHead(norm)) => self.norm(scope.block, &name, norm, &over_head, x)?,
            Some(QkNorm::AllHeads(norm)) => {
                self.norm(scope.block, &name, norm, &[heads.name, DimName::HeadDim], x)?
            }
            Some(QkNorm::EachHead(norm)) => {
                let untrained = Norm { weight: false, bias: false, ..norm };
                let y = self.norm(scope.block, &name, untrained, &over_head, x)?;
                let dims = vec![heads, Dim::fixed(DimName::HeadDim, attention.head_dim)];
                for (name, _) in
                    [("weight", norm.weight), ("bias", norm.bias)].iter().filter(|p| p.1)
                {
                    scope.block.add_parameter(y, parameter(name, dims.clone()));
                }
                y
            }
        };
        let normed = Self::clamped(scope, part, attention, normed)?;
        Self::rotated(scope, part, attention, normed)
    }

    /// Rotates heads by their positions, where the model does so.
    pub(super) fn rotated(
        scope: &mut Scope<'_>,
        part: &str,
        attention: &Attention,
        x: Value,
    ) -> Result<Value, GraphError> {
        let Some(rotation) = &attention.rotary else { return Ok(x) };
        scope.push(&format!("{part}_rotary"), OpKind::Rotary(rotation.clone()), &[x])
    }

    /// Clamps queries, keys or values, where the model has a limit.
    fn clamped(
        scope: &mut Scope<'_>,
        part: &str,
        attention: &Attention,
        x: Value,
    ) -> Result<Value, GraphError> {
        match attention.clamp {
            Some(limit) => scope.push(&format!("{part}_clamp"), OpKind::Clamp { limit }, &[x]),
            None => Ok(x),
        }
    }

    /// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1).
    ///
    /// The projection `kv_a_proj_with_mqa` of transformers is split in two here, `key_value_down` and `key_rope`,
    /// since only the first is normalised; together they have the same parameters.
    ///
    /// Where keys are chosen, queries attend to the latents themselves: queries are projected to the width of the
    /// latents, and the output is projected back with the weight that is the second result (DeepSeek-AI 2025,
    /// *DeepSeek-V3.2*, section 2.1; Megatron-Core, `absorbed_mla.py`).
    fn latent_projections(
        &self,
        scope: &mut Scope<'_>,
        attention: &Attention,
        latent: &Latent,
        x: Value,
    ) -> Result<(Vec<Value>, Option<Value>), GraphError> {
        let bias = latent.down_bias;
        let hidden = [DimName::Hidden];
        let features = |size: u64| Dim::fixed(DimName::HeadDim, size);
        let (nope, rope) = (features(latent.qk_nope_head_dim), features(latent.qk_rope_head_dim));
        let value_dim = features(attention.value_head_dim);
        let kv_heads = Dim::fixed(DimName::KvHeads, attention.num_kv_heads);

        let slice = |dim: Dim, start: u64| OpKind::Slice { dim, start };
        let first = latent.qk_nope_head_dim;
        let down = (latent.q_lora_rank, bias, latent.norm);
        let (query, compressed) = self.latent_query(scope, attention, down, x)?;
        let chosen = latent.indexer.map(|indexer| self.chosen(scope, indexer, compressed, x));
        let query_nope = scope.push("query_nope", slice(nope, 0), &[query])?;
        let query_rope = scope.push("query_rope", slice(rope, first), &[query])?;
        let query_rope = Self::rotated(scope, "query", attention, query_rope)?;
        let over_features = OpKind::Concat { over: DimName::HeadDim };
        let is_absorbed = matches!(attention.mask, AttentionMask::Chosen { .. });
        let joined = if is_absorbed {
            query_nope
        } else {
            scope.push("query_joined", over_features.clone(), &[query_nope, query_rope])?
        };

        let rank = Dim::fixed(DimName::Latent, latent.kv_lora_rank);
        let down = scope.linear("key_value_down", &hidden, &[rank], bias, x)?;
        let key_rope = scope.linear("key_rope", &hidden, &[rope], bias, x)?;
        let key_rope = Self::rotated(scope, "key", attention, key_rope)?;
        let latents = [DimName::Latent];
        let down = self.named_norm(scope, "key_value_norm", latent.norm, &latents, down)?;
        let both = features(latent.qk_nope_head_dim.saturating_add(attention.value_head_dim));
        if is_absorbed {
            let heads = Dim::fixed(DimName::Heads, attention.num_heads);
            let weight = OpKind::Parameter { dims: vec![rank, heads, both] };
            let weight = scope.push("key_value_up", weight, &[])?;
            let of_keys = scope.push("key_weight", slice(nope, 0), &[weight])?;
            let of_values = scope.push("value_weight", slice(value_dim, first), &[weight])?;
            let product = OpKind::Product { over: vec![DimName::HeadDim] };
            let query = scope.push("query_absorbed", product, &[query_nope, of_keys])?;
            let width = features(latent.kv_lora_rank);
            let dims = vec![Dim::BATCH, self.sequence, heads, width];
            let query = scope.push("query_latent", OpKind::Reshape { dims }, &[query])?;
            let query = scope.push("query_joined", over_features.clone(), &[query, query_rope])?;
            let one = Dim::fixed(DimName::KvHeads, 1);
            let dims = vec![Dim::BATCH, self.sequence, one, width];
            let value = scope.push("value", OpKind::Reshape { dims }, &[down])?;
            let key = scope.push("key_joined", over_features, &[value, key_rope])?;
            let inputs = [query, key, value].into_iter().chain(chosen.transpose()?);
            return Ok((inputs.collect(), Some(of_values)));
        }
        let produced = [kv_heads, both];
        let up = scope.linear("key_value_up", &latents, &produced, false, down)?;
        let key_nope = scope.push("key_nope", slice(nope, 0), &[up])?;
        let value = scope.push("value", slice(value_dim, first), &[up])?;
        let key = scope.push("key_joined", over_features, &[key_nope, key_rope])?;
        Ok((vec![joined, key, value], None))
    }

    /// Outputs of heads from sums of latents, by the heads' part of the weight that computes values.
    fn values_of_latents(
        &self,
        scope: &mut Scope<'_>,
        attention: &Attention,
        attended: Value,
        weight: Value,
    ) -> Result<Value, GraphError> {
        let heads = Dim::fixed(DimName::Heads, attention.num_heads);
        let rank = attention.latent.map_or(1, |latent| latent.kv_lora_rank);
        let rank = Dim::fixed(DimName::Latent, rank);
        let dims = vec![Dim::BATCH, self.sequence, heads, rank];
        let attended = scope.push("attended_latent", OpKind::Reshape { dims }, &[attended])?;
        let product = OpKind::Product { over: vec![DimName::Latent] };
        scope.push("values_of_heads", product, &[attended, weight])
    }

    /// Choice of the keys that queries attend to, from compressed queries and a separate key.
    fn chosen(
        &self,
        scope: &mut Scope<'_>,
        indexer: Indexer,
        compressed: Value,
        x: Value,
    ) -> Result<Value, GraphError> {
        let Indexer { num_heads, head_dim, keys } = indexer;
        let heads = Dim::fixed(DimName::Features, num_heads);
        let features = Dim::fixed(DimName::HeadDim, head_dim);
        let hidden = [DimName::Hidden];
        let query = scope.linear(
            "index_query",
            &[DimName::Latent],
            &[heads, features],
            false,
            compressed,
        )?;
        let key = scope.linear("index_key", &hidden, &[features], false, x)?;
        let norm = Norm::layer(1e-6);
        let key = self.named_norm(scope, "index_key_norm", norm, &[DimName::HeadDim], key)?;
        let weights = scope.linear("index_weights", &hidden, &[heads], false, x)?;
        scope.push("index", OpKind::Indexer { keys, block: 1 }, &[query, key, weights])
    }

    /// Choice of the blocks of keys that queries attend to, from separate queries and keys; each head makes its own
    /// choice.
    fn chosen_blocks(
        &self,
        scope: &mut Scope<'_>,
        attention: &Attention,
        choice: &ChosenBlocks,
        x: Value,
    ) -> Result<Value, GraphError> {
        let ChosenBlocks { indexer: Indexer { num_heads, head_dim, keys }, length, norm } = *choice;
        let heads = Dim::fixed(DimName::Features, num_heads);
        let features = Dim::fixed(DimName::HeadDim, head_dim);
        let mut prepared = |part: &str, produced: &[Dim]| {
            let y = scope.linear(part, &[DimName::Hidden], produced, false, x)?;
            self.positioned(scope, part, attention, norm, y)
        };
        let query = prepared("index_query", &[heads, features])?;
        let key = prepared("index_key", &[features])?;
        scope.push("index", OpKind::Indexer { keys, block: length }, &[query, key])
    }

    /// Queries of all heads, and their input: `x` itself where queries are not compressed. Compressed queries have a
    /// rank, perhaps a bias, and a norm.
    pub(super) fn latent_query(
        &self,
        scope: &mut Scope<'_>,
        attention: &Attention,
        (rank, down_bias, norm): (Option<u64>, bool, Norm),
        x: Value,
    ) -> Result<(Value, Value), GraphError> {
        let heads = Dim::fixed(DimName::Heads, attention.num_heads);
        let produced = [heads, Dim::fixed(DimName::HeadDim, attention.head_dim)];
        let hidden = [DimName::Hidden];
        let Some(rank) = rank else {
            let query = scope.linear("query", &hidden, &produced, attention.query_bias, x)?;
            return Ok((query, x));
        };
        let rank = Dim::fixed(DimName::Latent, rank);
        let down = scope.linear("query_down", &hidden, &[rank], down_bias, x)?;
        let (latents, bias) = ([DimName::Latent], attention.query_bias);
        let down = self.named_norm(scope, "query_norm", norm, &latents, down)?;
        Ok((scope.linear("query_up", &latents, &produced, bias, down)?, down))
    }

    /// A norm whose name has the scope's prefix.
    pub(super) fn named_norm(
        &self,
        scope: &mut Scope<'_>,
        part: &str,
        norm: Norm,
        over: &[DimName],
        x: Value,
    ) -> Result<Value, GraphError> {
        let name = format!("{}.{part}", scope.name);
        self.norm(scope.block, &name, norm, over, x)
    }

    /// Unfused attention: scores, softmax, dropout and weighted sum, which selective recompute recomputes.
    ///
    /// A relative position bias is a parameter of the scores; sinks are one of the softmax.
    fn unfused(
        &self,
        scope: &mut Scope<'_>,
        attention: &Attention,
        query: Value,
        key: Value,
        value: Value,
    ) -> Result<Value, GraphError> {
        let heads = Dim::fixed(DimName::Heads, attention.num_heads);
        let scores = scope.push("scores", OpKind::AttentionScores, &[query, key])?;
        if let PositionBias::Relative { num_buckets, .. } = attention.scores.bias
            && !attention.shares_bias
        {
            let dims = vec![Dim::fixed(DimName::Features, num_buckets), heads];
            scope.block.add_parameter(scores, parameter("relative_bias", dims));
        }
        let softmax = OpKind::Softmax { over: DimName::Context };
        let mut probabilities = scope.push("softmax", softmax, &[scores])?;
        if attention.sinks {
            scope.block.add_parameter(probabilities, parameter("sinks", vec![heads]));
        }
        scope.block.recompute_selectively(scores);
        scope.block.recompute_selectively(probabilities);
        let rate = self.dropout.attention;
        if *rate > 0.0 {
            let dropout = OpKind::Dropout { rate };
            probabilities = scope.push("probabilities_dropout", dropout, &[probabilities])?;
            scope.block.recompute_selectively(probabilities);
        }
        let values = scope.push("values", OpKind::AttentionValues, &[probabilities, value])?;
        scope.block.end_selective_region(values);
        Ok(values)
    }
}

/// A block under construction, with the prefix of its operators' names.
pub(super) struct Scope<'a> {
    pub(super) block: &'a mut BlockBuilder,
    pub(super) name: &'a str,
}

impl Scope<'_> {
    pub(super) fn push(
        &mut self,
        part: &str,
        kind: OpKind,
        inputs: &[Value],
    ) -> Result<Value, GraphError> {
        self.block.push(format!("{}.{part}", self.name), kind, inputs)
    }

    pub(super) fn linear(
        &mut self,
        part: &str,
        contracted: &[DimName],
        produced: &[Dim],
        bias: bool,
        x: Value,
    ) -> Result<Value, GraphError> {
        let name = format!("{}.{part}", self.name);
        linear(self.block, &name, contracted, produced, bias, x)
    }

    /// The narrow tensor of a low-rank product of `x`, where the model has such a product.
    pub(super) fn adapter(
        &mut self,
        part: &str,
        rank: Option<u64>,
        x: Value,
    ) -> Result<Option<Value>, GraphError> {
        let down = |rank| {
            let (name, rank) =
                (format!("{part}_{ADAPTER}_down"), Dim::fixed(DimName::Latent, rank));
            self.linear(&name, &[DimName::Hidden], &[rank], false, x)
        };
        rank.map(down).transpose()
    }

    /// `y` plus the low-rank product whose narrow tensor is `narrow`.
    pub(super) fn adapted(
        &mut self,
        part: &str,
        narrow: Option<Value>,
        produced: &[Dim],
        y: Value,
    ) -> Result<Value, GraphError> {
        let Some(narrow) = narrow else { return Ok(y) };
        let name = format!("{part}_{ADAPTER}_up");
        let up = self.linear(&name, &[DimName::Latent], produced, false, narrow)?;
        self.push(&format!("{part}_sum"), OpKind::Add, &[y, up])
    }
}

/// Part of the names of low-rank products that layers do not share.
pub(super) const ADAPTER: &str = "adapter";

pub(super) fn parameter(name: &str, dims: Vec<Dim>) -> Parameter {
    Parameter { name: name.to_owned(), dims, tied_to: None }
}
