//! Sizes of a configuration, and parts common to several families.

use ordered_float::OrderedFloat;
use serde::Deserialize;

use crate::graph::{Activation, AttentionMask, Real, Rotation, Routing, Scores};
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::rotary;
use crate::model::transformer::{
    Attention, Correction, DropoutRates, Embedding, FeedForward, Head, KeyValues, Layer, Layers,
    Mixer, Mixture, Mlp, Norm, NormPlacement, Positions, Scales, Transformer,
};

/// Result of such a function: an error where the configuration has features that are not modelled.
pub(super) type Finished = Result<(), ModelError>;

/// Default sizes of a family's configuration class.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::model) struct Defaults {
    pub(in crate::model) vocab_size: u64,
    pub(in crate::model) num_attention_heads: u64,
    /// `None` means the number of query heads.
    pub(in crate::model) num_key_value_heads: Option<u64>,
    /// `None` means hidden size / heads.
    pub(in crate::model) head_dim: Option<u64>,
    /// `None` means four times the hidden size.
    pub(in crate::model) intermediate_size: Option<u64>,
    pub(in crate::model) max_position_embeddings: u64,
    pub(in crate::model) tie_word_embeddings: bool,
}

/// Sizes that nearly all configurations have.
#[derive(Clone, Copy)]
pub(in crate::model) struct Shape {
    pub(in crate::model) hidden_size: u64,
    pub(in crate::model) num_hidden_layers: u64,
    pub(in crate::model) num_attention_heads: u64,
    pub(in crate::model) num_key_value_heads: u64,
    pub(in crate::model) head_dim: u64,
    pub(in crate::model) intermediate_size: u64,
    pub(in crate::model) vocab_size: u64,
    pub(in crate::model) max_position_embeddings: Option<u64>,
    pub(in crate::model) tie_word_embeddings: bool,
}

impl Shape {
    pub(in crate::model) fn read(
        fields: Fields<'_>,
        defaults: Defaults,
    ) -> Result<Self, ModelError> {
        let hidden_size = fields.size("hidden_size")?;
        let num_attention_heads =
            fields.size_or("num_attention_heads", defaults.num_attention_heads)?;
        let head_dim = match fields.nullable_size_or("head_dim", defaults.head_dim)? {
            Some(head_dim) => head_dim,
            // Rounded down, as transformers does; families that refuse a remainder are checked separately.
            None => hidden_size / num_attention_heads,
        };
        // Where a family has a default width, transformers rejects null, so null is an error here too.
        let intermediate_size = match defaults.intermediate_size {
            Some(default) => fields.size_or("intermediate_size", default)?,
            None => fields.optional_size("intermediate_size")?.unwrap_or(4 * hidden_size),
        };
        Ok(Self {
            hidden_size,
            num_hidden_layers: fields.num_layers("num_hidden_layers")?,
            num_attention_heads,
            num_key_value_heads: fields
                .nullable_size_or("num_key_value_heads", defaults.num_key_value_heads)?
                .unwrap_or(num_attention_heads),
            head_dim,
            intermediate_size,
            vocab_size: fields.size_or("vocab_size", defaults.vocab_size)?,
            max_position_embeddings: fields.nullable_size_or(
                "max_position_embeddings",
                Some(defaults.max_position_embeddings),
            )?,
            tie_word_embeddings: fields
                .flag_or("tie_word_embeddings", defaults.tie_word_embeddings)?,
        })
    }

    /// Table of learned positions; `max_position_embeddings` is then required.
    pub(in crate::model) fn positions(&self, fields: Fields<'_>) -> Result<Positions, ModelError> {
        let rows = self.max_position_embeddings;
        let rows = rows.ok_or_else(|| fields.missing("max_position_embeddings"))?;
        Ok(Positions { rows, first: 0 })
    }

    /// Causal attention without biases, with plain rotary embedding.
    pub(in crate::model) fn attention(&self) -> Attention {
        Attention {
            num_heads: self.num_attention_heads,
            num_kv_heads: self.num_key_value_heads,
            head_dim: self.head_dim,
            value_head_dim: self.head_dim,
            query_bias: false,
            key_bias: false,
            value_bias: false,
            output_bias: false,
            qk_norm: None,
            clamp: None,
            rotary: Some(Rotation::plain(rotary::THETA)),
            mask: AttentionMask::Causal,
            scores: Scores::default(),
            shares_bias: false,
            latent: None,
            compressed: None,
            chosen_blocks: None,
            sinks: false,
            gate: None,
            value_norm: None,
            key_values: KeyValues::Projected,
            adapter_rank: None,
        }
    }

    /// Default factor on attention scores, `head_dim^-0.5`.
    pub(in crate::model) fn attention_scale(&self) -> Real {
        OrderedFloat((self.head_dim as f64).powf(-0.5))
    }

    /// A gated feed-forward block without biases.
    pub(in crate::model) fn gated_mlp(&self, activation: Activation) -> Mlp {
        Mlp {
            intermediate_size: self.intermediate_size,
            gated: true,
            up_bias: false,
            down_bias: false,
            activation,
            clamp: None,
            adapter_rank: None,
        }
    }

    /// A feed-forward block of two linear layers.
    pub(in crate::model) fn plain_mlp(&self, activation: Activation, bias: bool) -> Mlp {
        Mlp { gated: false, ..with_mlp_biases(self.gated_mlp(activation), bias) }
    }

    /// A token table, with learned positions and a norm where a model has them.
    pub(in crate::model) fn embedding(
        &self,
        positions: Option<Positions>,
        norm: Option<Norm>,
    ) -> Embedding {
        let vocab_size = self.vocab_size;
        Embedding::Tokens { vocab_size, projected_from: None, positions, token_types: None, norm }
    }

    /// A language model of `layers`, without dropout or learned positions.
    pub(in crate::model) fn decoder(&self, layers: Vec<Layers>, final_norm: Norm) -> Transformer {
        Transformer {
            embedding: self.embedding(None, None),
            encoder: None,
            layers,
            final_norm: Some(final_norm),
            head: Head {
                num_classes: self.vocab_size,
                tied: self.tie_word_embeddings,
                bias: false,
                transform: None,
                first_token_only: false,
                projected_to: None,
                is_missing: false,
            },
            prediction_modules: Vec::new(),
            hidden_size: self.hidden_size,
            streams: None,
            scales: Scales::default(),
            dropout: DropoutRates::default(),
            max_position_embeddings: self.max_position_embeddings,
        }
    }

    /// All layers equal; the configuration states their number.
    pub(in crate::model) fn equal_layers(&self, layer: Layer) -> Vec<Layers> {
        vec![Layers { count: self.num_hidden_layers as u32, layer }]
    }

    /// Layers by index, with equal neighbours merged; equal keys mean equal layers.
    pub(in crate::model) fn layers_by<K: Copy + PartialEq>(
        &self,
        key: impl Fn(u64) -> K,
        layer: impl Fn(K) -> Layer,
    ) -> Vec<Layers> {
        let mut layers: Vec<Layers> = Vec::new();
        let mut last_key = None;
        for key in (0..self.num_hidden_layers).map(key) {
            let is_repeated = last_key.replace(key) == Some(key);
            match layers.last_mut() {
                Some(last) if is_repeated => last.count += 1,
                last => {
                    let layer = layer(key);
                    match last {
                        Some(last) if last.layer == layer => last.count += 1,
                        _ => layers.push(Layers { count: 1, layer }),
                    }
                }
            }
        }
        layers
    }

    /// True for each layer with a sliding window: by `layer_types`, else by `default`. In a `mixed` model, some have no
    /// attention.
    pub(in crate::model) fn sliding_layers(
        &self,
        fields: Fields<'_>,
        mixed: bool,
        default: impl Fn(u64) -> bool,
    ) -> Result<Vec<bool>, ModelError> {
        let Some(types) = fields.texts("layer_types")? else {
            return Ok((0..self.num_hidden_layers).map(default).collect());
        };
        if types.len() as u64 != self.num_hidden_layers {
            let (given, layers) = (types.len(), self.num_hidden_layers);
            return Err(fields.unsupported(format!("{given} `layer_types` for {layers} layers")));
        }
        let sliding = |word: &&str| match *word {
            "sliding_attention" => Ok(true),
            "full_attention" => Ok(false),
            _ if mixed => Ok(false),
            _ => Err(fields.unsupported(format!("`layer_types` `{word}`"))),
        };
        types.iter().map(sliding).collect()
    }
}

/// Sets the biases of all four projections.
pub(in crate::model) fn with_biases(attention: Attention, bias: bool) -> Attention {
    Attention { query_bias: bias, key_bias: bias, value_bias: bias, output_bias: bias, ..attention }
}

/// Sets the biases of both projections.
pub(in crate::model) fn with_mlp_biases(mlp: Mlp, bias: bool) -> Mlp {
    Mlp { up_bias: bias, down_bias: bias, ..mlp }
}

/// A mixture of experts without shared ones.
pub(in crate::model) fn mixture(num_experts: u64, top_k: u64, expert: Mlp) -> Mixture {
    Mixture {
        num_experts,
        top_k,
        expert,
        shared: None,
        shared_gate: false,
        router_bias: false,
        routing: Routing::NORMALIZED,
        latent_size: None,
        correction: Correction::None,
        zero_experts: None,
        own_norms: None,
    }
}

/// A layer without attention to an encoder.
pub(in crate::model) fn layer(
    mixer: Mixer,
    feed_forward: FeedForward,
    norm: Norm,
    norm_placement: NormPlacement,
) -> Layer {
    Layer {
        mixer,
        cross_attention: None,
        feed_forward,
        norm,
        norm_placement,
        shared_block: None,
        shortcut: None,
        own_embedding: None,
        numbers: Vec::new(),
    }
}

/// Attention mask for an optional sliding window.
pub(in crate::model) fn mask(window: Option<u64>) -> AttentionMask {
    window.map_or(AttentionMask::Causal, |window| AttentionMask::SlidingWindow { window })
}

/// Hidden size / heads; an error where this is not an integer.
pub(in crate::model) fn head_dim(
    fields: Fields<'_>,
    hidden_size: u64,
    num_heads: u64,
) -> Result<u64, ModelError> {
    if hidden_size.is_multiple_of(num_heads) {
        return Ok(hidden_size / num_heads);
    }
    Err(ModelError::NotDivisible {
        architecture: fields.architecture(),
        field: "hidden_size",
        value: hidden_size,
        divisor_field: "num_attention_heads",
        divisor: num_heads,
    })
}

impl Transformer {
    /// Changes each layer by its index.
    pub(super) fn each_layer(
        &mut self,
        mut change: impl FnMut(u64, &mut Layer) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let mut changed: Vec<Layers> = Vec::new();
        let mut index = 0;
        for Layers { count, layer } in &self.layers {
            for _ in 0..*count {
                let mut layer = layer.clone();
                change(index, &mut layer)?;
                index += 1;
                match changed.last_mut() {
                    Some(last) if last.layer == layer => last.count += 1,
                    _ => changed.push(Layers { count: 1, layer }),
                }
            }
        }
        self.layers = changed;
        Ok(())
    }

    /// Changes the attention of every layer.
    pub(super) fn each_attention(&mut self, change: impl FnMut(&mut Attention)) {
        self.layers.iter_mut().filter_map(|layers| layers.layer.attention_mut()).for_each(change);
    }
}
