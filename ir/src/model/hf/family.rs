//! Data of a model family: its configuration class's defaults in the transformers library, and what the class builds.
//!
//! The files in `ir/families/` are these structures as JSON. A file may be `like` another, from which it inherits all
//! values that it does not state. Features that the data cannot express are code, in the modules of this folder.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::experts::Experts;
use super::heads::OtherHeads;
use super::mixers::Mixers;
use super::parts::Defaults;
use super::stated::{self, Field, Stated};
use super::tensors::Modules;
use crate::graph::{AlibiSlopes, RotaryPairs};
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::rotary::THETA;
use crate::model::transformer::{AttentionGate, NormPlacement, NormType, Streams};

/// A model family, by its `model_type`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Family {
    /// Remarks for readers of the file; not used.
    #[serde(default, rename = "notes")]
    _notes: IgnoredAny,
    pub(super) model_type: String,
    /// Part of the computation that is not known here, though its costs are: such a model can be planned, but not run.
    pub(super) planned_without: Option<String>,
    /// Supported classes, by their heads; the first is the default.
    pub(super) classes: Vec<String>,
    /// Field with the nested configuration of the language model, for a multimodal family.
    pub(super) within: Option<String>,
    /// Defaults of fields that may be absent in a configuration inside another one, though never in a model's own.
    #[serde(default)]
    pub(super) nested: Map<String, Value>,
    /// Sections whose fields are read as if they stood at the top.
    #[serde(default)]
    pub(super) sections: Vec<String>,
    /// Fields that must have this value, since other values are not modelled. Either the value alone, or `is` with the
    /// value and `mean` with a description of the other values.
    #[serde(default)]
    pub(super) only: Map<String, Value>,
    /// Default sizes where a configuration leaves them out.
    pub(super) defaults: Defaults,
    #[serde(default)]
    pub(super) head_dim: HeadDim,
    /// Inner width over hidden size, where it is fixed.
    pub(super) expansion: Option<u64>,
    /// Field of the longest sequence, where it is not `max_position_embeddings`.
    pub(super) max_length: Option<String>,
    pub(super) positions: Option<LearnedPositions>,
    /// True where a norm follows the embedding.
    #[serde(default)]
    pub(super) embedding_norm: bool,
    pub(super) norm: NormRule,
    #[serde(default)]
    pub(super) norm_placement: PlacementRule,
    /// True where a norm follows the last layer.
    #[serde(default = "yes")]
    pub(super) final_norm: bool,
    pub(super) attention: AttentionRule,
    /// Trained numbers that belong to no operator.
    #[serde(default)]
    pub(super) numbers: Vec<NumbersRule>,
    /// Mixers that some layers have in place of attention.
    pub(super) mixers: Option<Mixers>,
    pub(super) feed_forward: FeedForwardRule,
    pub(super) experts: Option<Experts>,
    /// True where `num_nextn_predict_layers` modules are read, although transformers builds none; graphs include them
    /// only on request.
    #[serde(default)]
    pub(super) prediction_modules: bool,
    /// True where the head has a bias.
    #[serde(default)]
    pub(super) head_bias: Stated<bool>,
    /// Dense layers before other heads of the family's classes.
    #[serde(default)]
    pub(super) other_heads: OtherHeads,
    #[serde(default)]
    pub(super) scales: ScalesRule,
    pub(super) streams: Option<StreamsRule>,
    #[serde(default)]
    pub(super) dropout: DropoutRule,
    /// Names of tensors in checkpoints.
    pub(super) tensors: Modules,
    /// Names that override `tensors` where feed-forward blocks are gated.
    #[serde(default)]
    pub(super) gated_tensors: Modules,
}

const fn yes() -> bool {
    true
}

/// Source of the head dimension.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum HeadDim {
    /// `head_dim`, or hidden size / heads where absent.
    #[default]
    Stated,
    /// As `Stated`, but the number of heads must still divide the hidden size.
    StatedAndWhole,
    /// Hidden size / heads; a stated `head_dim` is ignored.
    Derived,
}

/// Table of learned positions; its first `offset` rows are not positions.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LearnedPositions {
    #[serde(default)]
    pub(super) offset: u64,
}

/// Norm of all layers, and after the last one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NormRule {
    pub(super) kind: NormType,
    pub(super) epsilon: Stated<f64>,
    /// True where the norm has a trained scale.
    #[serde(default = "stated::always")]
    pub(super) weight: Stated<bool>,
    /// True where the norm has a trained shift; by default only layer norms do.
    pub(super) bias: Option<Stated<bool>>,
    #[serde(default)]
    pub(super) unit_offset: bool,
}

/// Placement of the norms of a layer.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum PlacementRule {
    Fixed(NormPlacement),
    Either {
        #[serde(rename = "if")]
        flag: Field<bool>,
        then: NormPlacement,
        otherwise: NormPlacement,
    },
}

impl Default for PlacementRule {
    fn default() -> Self {
        Self::Fixed(NormPlacement::Pre)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AttentionRule {
    /// Multi-head latent attention, as in DeepSeek, with the family's default sizes.
    pub(super) latent: Option<LatentRule>,
    /// True where the projections have biases.
    #[serde(default)]
    pub(super) bias: Stated<bool>,
    /// True where the output projection has a bias; `bias` by default.
    pub(super) output_bias: Option<Stated<bool>>,
    #[serde(default)]
    pub(super) key_value_heads: KeyValueHeads,
    pub(super) qk_norm: Option<QkNormRule>,
    /// Features of a value head, where they differ from those of a key head.
    pub(super) value_head_dim: Option<Field<u64>>,
    /// Rule of layers with a sliding window, where they differ from others.
    pub(super) sliding: Option<SlidingRule>,
    /// Field with the clamp limit of queries, keys and values.
    pub(super) clip: Option<String>,
    /// True where each head has a trained attention sink.
    #[serde(default)]
    pub(super) sinks: Stated<bool>,
    pub(super) gate: Option<GateRule>,
    pub(super) rotary: Option<RotaryRule>,
    pub(super) window: Option<WindowRule>,
    pub(super) scale: Option<ScoreScale>,
    pub(super) soft_cap: Option<SoftCap>,
    pub(super) alibi: Option<AlibiSlopes>,
}

/// Sizes of attention in layers with a sliding window, where they differ.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SlidingRule {
    /// Field with the number of query heads.
    pub(super) heads: Option<String>,
    /// Field with the number of key and value heads.
    pub(super) key_value_heads: Option<String>,
    /// Number of key and value heads as a multiple of that of the other layers, where no field states it.
    #[serde(default = "once")]
    pub(super) key_value_heads_times: u64,
    /// Field with the features of a query or key head.
    pub(super) head_dim: Option<String>,
    /// Field with the features of a value head.
    pub(super) value_head_dim: Option<String>,
    /// True where each head has a trained attention sink; by default as in other layers.
    pub(super) sinks: Option<Stated<bool>>,
}

const fn once() -> u64 {
    1
}

/// Trained numbers of a layer that belong to no operator, such as scales of the residual stream.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NumbersRule {
    pub(super) name: String,
    /// A formula of the configuration's sizes.
    pub(super) count: String,
    #[serde(default, rename = "in")]
    pub(super) layers: NumberedLayers,
}

/// Layers with such numbers.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum NumberedLayers {
    #[default]
    All,
    /// Layers with attention.
    Attention,
    /// Layers with experts.
    Experts,
}

/// Gate of attention's output.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GateRule {
    pub(super) over: Stated<AttentionGate>,
    /// Field that enables the gate.
    #[serde(rename = "if", default = "stated::always")]
    pub(super) used: Stated<bool>,
}

/// Number of key and value heads.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum KeyValueHeads {
    /// `num_key_value_heads`.
    #[default]
    Stated,
    /// The number of query heads; a stated number is ignored.
    AsQueries,
    /// One where a field is true, else the number of query heads.
    OneIf(Field<bool>),
}

/// Norms of queries and keys.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QkNormRule {
    pub(super) over: NormedHeads,
    /// True where the norms have trained scales.
    #[serde(default = "yes")]
    pub(super) weight: bool,
    /// Kind of the norms, where it differs from the layer's.
    pub(super) kind: Option<NormType>,
    /// False where these norms have no shifts, though the layer's norms do.
    #[serde(default = "yes")]
    pub(super) bias: bool,
    /// Field that enables the norms.
    #[serde(rename = "if", default = "stated::always")]
    pub(super) used: Stated<bool>,
}

/// Features that one norm of queries or keys covers; see `QkNorm`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum NormedHeads {
    PerHead,
    AllHeads,
    EachHead,
}

/// Rotary embedding of queries and keys, with defaults for a configuration's fields.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RotaryRule {
    #[serde(default = "usual_base")]
    pub(super) theta: Stated<f64>,
    /// Share of a head's features that are rotated.
    #[serde(default = "stated::one")]
    pub(super) share: Stated<f64>,
    /// Field with the number of rotated features of a head, which overrides `share`.
    pub(super) features: Option<String>,
    #[serde(default)]
    pub(super) pairs: RotaryPairs,
    /// Default of `rope_scaling`.
    pub(super) scaling: Option<Map<String, Value>>,
    #[serde(default)]
    pub(super) layers: RotatedLayers,
    /// A field and the text that it must have for queries and keys to be rotated.
    pub(super) only: Option<Said>,
    /// Rotation of layers with a sliding window, where it differs.
    pub(super) sliding: Option<SlidingRotation>,
}

/// A field with a given text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Said {
    pub(super) field: String,
    pub(super) is: String,
}

const fn usual_base() -> Stated<f64> {
    Stated::Fixed(THETA)
}

/// Layers that rotate queries and keys.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RotatedLayers {
    #[default]
    All,
    /// Layers with a sliding window.
    Sliding,
    /// Layers with a sliding window; all layers where the model has no window.
    SlidingIfAny,
    /// Layers with a 1 in `no_rope_layers`; without that list, all but every n-th, with n from this field.
    AllButEvery(Field<u64>),
}

/// Rotation of layers with a sliding window, unless `rope_parameters` has one for them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SlidingRotation {
    /// Base of the angles, by default that of the other layers. Angles are not scaled.
    pub(super) theta: Option<Field<f64>>,
}

/// Sizes of multi-head latent attention, where a configuration leaves them out.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LatentRule {
    pub(super) q_lora_rank: Option<u64>,
    #[serde(default = "usual_rank")]
    pub(super) kv_lora_rank: u64,
    pub(super) qk_nope_head_dim: u64,
    #[serde(default = "usual_rotated")]
    pub(super) qk_rope_head_dim: u64,
    pub(super) v_head_dim: u64,
    /// The choice of keys, where a family has one.
    pub(super) indexer: Option<IndexerRule>,
}

/// DeepSeek's width of compressed keys and values.
const fn usual_rank() -> u64 {
    512
}

/// DeepSeek's number of rotated features.
const fn usual_rotated() -> u64 {
    64
}

/// Rule for the choice of keys.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IndexerRule {
    pub(super) heads: Field<u64>,
    pub(super) head_dim: Field<u64>,
    pub(super) keys: Field<u64>,
}

/// Rule for the window, and the layers that have it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WindowRule {
    /// Field of the window, where it is not `sliding_window`.
    pub(super) field: Option<String>,
    pub(super) default: Option<u64>,
    /// Field that enables the window.
    #[serde(rename = "if", default = "stated::always")]
    pub(super) used: Stated<bool>,
    #[serde(default)]
    pub(super) layers: WindowLayers,
    /// True where a mix of layers with and without window is modelled.
    #[serde(default = "yes")]
    pub(super) supported: bool,
    /// True where positions are cut into chunks of this length, within which they attend.
    #[serde(default)]
    pub(super) chunks: bool,
}

/// Layers with a sliding window, unless `layer_types` lists them.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum WindowLayers {
    /// All layers; `layer_types` is ignored.
    #[default]
    All,
    /// All layers but every n-th.
    AllButEvery(Stated<u64>),
    /// All layers but every n-th and the last, even if `layer_types` differs for the last.
    AllButEveryAndLast(u64),
    /// All layers but the first and every n-th.
    AllButFirstAndEvery(u64),
    /// Layers from an index on.
    From(Field<u64>),
    /// Every other layer before an index, from the first.
    EvenBefore(Field<u64>),
    /// Layers without rotary embedding.
    Unrotated,
    /// Layers with rotary embedding.
    Rotated,
}

/// Factor on attention scores, where it is not `head_dim^-0.5`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ScoreScale {
    Value(Stated<f64>),
    InverseRoot(Field<f64>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FeedForwardRule {
    #[serde(default)]
    pub(super) gated: Gating,
    pub(super) activation: Stated<String>,
    /// True where `gelu` means the tanh approximation.
    #[serde(default)]
    pub(super) gelu_is_approximate: bool,
    #[serde(default)]
    pub(super) bias: Stated<bool>,
    /// Clamp limit of gate and value.
    pub(super) clamp: Option<Field<f64>>,
}

/// Gating of the feed-forward block: the activation of one projection multiplies another.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Gating {
    #[default]
    Always,
    Never,
    /// Gated where the activation's name begins with `gated-`.
    ByPrefix,
}

/// Factors on the residual stream and the logits.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScalesRule {
    pub(super) embedding: Option<EmbeddingScale>,
    /// Field with the factor on each sublayer's output.
    pub(super) residual: Option<String>,
    pub(super) logits: Option<LogitScale>,
    pub(super) logit_soft_cap: Option<SoftCap>,
}

/// Parallel residual streams (hyper-connections).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamsRule {
    count: Field<u64>,
    /// True where streams are mixed with each other.
    mixed: bool,
}

impl StreamsRule {
    pub(super) fn read(&self, fields: Fields<'_>) -> Result<Streams, ModelError> {
        /// Largest number of streams; the embedding is copied once for each.
        const MOST: u64 = 1024;
        let count = self.count.read(fields)?;
        if count > MOST {
            return Err(fields.unsupported(format!("{count} residual streams")));
        }
        Ok(Streams { count, are_mixed: self.mixed })
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum EmbeddingScale {
    /// The square root of the hidden size, which gives elements a variance of 1.
    RootOfWidth,
    /// The square root of the width, where a field is true.
    RootOfWidthIf(Field<bool>),
    Field(String),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum LogitScale {
    Multiply(Field<f64>),
    /// Field with a divisor.
    Divide(String),
}

/// Field of a cap; null means no cap.
pub(super) type SoftCap = Field<Option<f64>>;

/// Fields of dropout rates; the rate is zero where a family has no field.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DropoutRule {
    pub(super) embedding: Option<Field<f64>>,
    /// Rate after attention and after feed-forward.
    pub(super) hidden: Option<Field<f64>>,
    /// Rate after feed-forward alone.
    pub(super) feed_forward: Option<Field<f64>>,
    /// Rate of attention probabilities.
    pub(super) attention: Option<Field<f64>>,
}
