//! A family of models as data: what its configuration class in the transformers library has and builds.
//!
//! The files in `ir/families/` are these structures as JSON. A file may be `like` another, whose values it has where it
//! states none of its own. What no file can say of a family is code, in a module of this folder.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::experts::Experts;
use super::parts::Defaults;
use super::stated::{self, Field, Stated};
use super::tensors::Modules;
use crate::graph::{AlibiSlopes, RotaryPairs};
use crate::model::rotary::THETA;
use crate::model::transformer::{NormPlacement, NormType};

/// A `model_type`.
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one family")]
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Family {
    /// What is remarkable about the family, for whoever reads the file.
    #[serde(default, rename = "notes")]
    _notes: IgnoredAny,
    pub(super) model_type: String,
    /// The classes whose head is built, the first by default.
    pub(super) classes: Vec<String>,
    /// The field that holds the configuration of the language model, for a family that reads more than text.
    pub(super) within: Option<String>,
    /// Fields that must have the value given here, since what they ask for otherwise is not modelled.
    #[serde(default)]
    pub(super) only: Map<String, Value>,
    /// The sizes of models whose configurations leave them out.
    pub(super) defaults: Defaults,
    #[serde(default)]
    pub(super) head_dim: HeadDim,
    /// The inner width over the hidden size, where no field changes it.
    pub(super) expansion: Option<u64>,
    /// The field that states the longest sequence, where it is not `max_position_embeddings`.
    pub(super) max_length: Option<String>,
    pub(super) positions: Option<LearnedPositions>,
    /// Whether a norm follows the embedding.
    #[serde(default)]
    pub(super) embedding_norm: bool,
    pub(super) norm: NormRule,
    #[serde(default)]
    pub(super) norm_placement: PlacementRule,
    /// Whether a norm follows the last layer.
    #[serde(default = "yes")]
    pub(super) final_norm: bool,
    pub(super) attention: AttentionRule,
    pub(super) feed_forward: FeedForwardRule,
    pub(super) experts: Option<Experts>,
    /// Whether `num_nextn_predict_layers` are described, although transformers builds none; a graph has them only on
    /// request.
    #[serde(default)]
    pub(super) prediction_modules: bool,
    /// Whether the head has a bias.
    #[serde(default)]
    pub(super) head_bias: bool,
    #[serde(default)]
    pub(super) scales: ScalesRule,
    #[serde(default)]
    pub(super) dropout: DropoutRule,
    /// The names of tensors in files.
    pub(super) tensors: Modules,
    /// Those that go before them where feed-forward blocks are gated.
    #[serde(default)]
    pub(super) gated_tensors: Modules,
}

const fn yes() -> bool {
    true
}

/// Where the size of a head comes from.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum HeadDim {
    /// `head_dim`, or the hidden size over the heads.
    #[default]
    Stated,
    /// The same, and the heads must divide the hidden size all the same.
    StatedAndWhole,
    /// The hidden size over the heads, whatever is stated.
    Derived,
}

/// A table of learned positions, whose first rows stand for no position.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LearnedPositions {
    #[serde(default)]
    pub(super) offset: u64,
}

/// The norm of all layers, and after the last.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NormRule {
    pub(super) kind: NormType,
    pub(super) epsilon: Stated<f64>,
    /// Whether it trains a scale.
    #[serde(default = "stated::always")]
    pub(super) weight: Stated<bool>,
    /// Whether it trains a shift; a layer norm does if nothing is said.
    pub(super) bias: Option<Stated<bool>>,
    #[serde(default)]
    pub(super) unit_offset: bool,
}

/// Where the norms of a layer stand.
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
    /// Whether queries, keys, values and output are compressed as DeepSeek's.
    #[serde(default)]
    pub(super) latent: bool,
    /// Whether the projections have biases.
    #[serde(default)]
    pub(super) bias: Stated<bool>,
    /// Whether the output projection has one, where that is another question.
    pub(super) output_bias: Option<Stated<bool>>,
    #[serde(default)]
    pub(super) key_value_heads: KeyValueHeads,
    pub(super) qk_norm: Option<QkNormRule>,
    /// The field that states where queries, keys and values are cut off.
    pub(super) clip: Option<String>,
    /// Whether each head has a trained sink.
    #[serde(default)]
    pub(super) sinks: bool,
    pub(super) rotary: Option<RotaryRule>,
    pub(super) window: Option<WindowRule>,
    pub(super) scale: Option<ScoreScale>,
    pub(super) soft_cap: Option<SoftCap>,
    pub(super) alibi: Option<AlibiSlopes>,
}

/// How many key and value heads there are.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum KeyValueHeads {
    /// `num_key_value_heads`.
    #[default]
    Stated,
    /// As many as query heads, whatever is stated.
    AsQueries,
    /// One if a field is true, else as many as query heads.
    OneIf(Field<bool>),
}

/// Norms of queries and keys.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QkNormRule {
    pub(super) over: NormedHeads,
    /// The field that turns them on.
    #[serde(rename = "if", default = "stated::always")]
    pub(super) used: Stated<bool>,
}

/// What one norm of queries or keys is over; see `QkNorm`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum NormedHeads {
    PerHead,
    AllHeads,
    EachHead,
}

/// How queries and keys are rotated, where a configuration says nothing else.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RotaryRule {
    #[serde(default = "usual_base")]
    pub(super) theta: Stated<f64>,
    /// The share of a head's features that is rotated.
    #[serde(default = "stated::one")]
    pub(super) share: Stated<f64>,
    /// The field that states instead how many of a head's features are rotated.
    pub(super) features: Option<String>,
    #[serde(default)]
    pub(super) pairs: RotaryPairs,
    /// What `rope_scaling` is where it is left out.
    pub(super) scaling: Option<Map<String, Value>>,
    #[serde(default)]
    pub(super) layers: RotatedLayers,
    /// Layers with a sliding window, where they rotate in a way of their own.
    pub(super) sliding: Option<SlidingRotation>,
}

const fn usual_base() -> Stated<f64> {
    Stated::Fixed(THETA)
}

/// Which layers rotate queries and keys.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RotatedLayers {
    #[default]
    All,
    /// Those with a sliding window.
    Sliding,
    /// Those with a 1 in `no_rope_layers`, or else all but every so many.
    AllButEvery(Field<u64>),
}

/// The rotation of layers with a sliding window, unless `rope_parameters` states theirs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SlidingRotation {
    /// The base; if none is stated it is that of the other layers. Angles are not scaled.
    pub(super) theta: Option<Field<f64>>,
}

/// `sliding_window`, and the layers that have it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WindowRule {
    pub(super) default: Option<u64>,
    /// The field that turns it on.
    #[serde(rename = "if", default = "stated::always")]
    pub(super) used: Stated<bool>,
    #[serde(default)]
    pub(super) layers: WindowLayers,
    /// Whether layers with and without a window are modelled.
    #[serde(default = "yes")]
    pub(super) supported: bool,
}

/// The layers with a sliding window, unless `layer_types` names them.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum WindowLayers {
    /// All, whatever `layer_types` says.
    #[default]
    All,
    /// All but every so many.
    AllButEvery(Stated<u64>),
    /// Those from an index on.
    From(Field<u64>),
    /// Every other of those before an index.
    EvenBefore(Field<u64>),
    /// Those that do not rotate.
    Unrotated,
}

/// What scores are multiplied by, where it is not one over the root of the size of a head.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ScoreScale {
    Value(Field<f64>),
    InverseRoot(Field<f64>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FeedForwardRule {
    #[serde(default)]
    pub(super) gated: Gating,
    pub(super) activation: Stated<String>,
    /// Whether `gelu` stands for its approximation.
    #[serde(default)]
    pub(super) gelu_is_approximate: bool,
    #[serde(default)]
    pub(super) bias: Stated<bool>,
    /// Where gate and value are cut off.
    pub(super) clamp: Option<Field<f64>>,
}

/// Whether the activation of one projection gates another.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Gating {
    #[default]
    Always,
    Never,
    /// If `gated-` stands before the activation.
    ByPrefix,
}

/// What the residual stream and the logits are multiplied by.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScalesRule {
    pub(super) embedding: Option<EmbeddingScale>,
    /// The field that states the factor of what each sublayer adds.
    pub(super) residual: Option<String>,
    pub(super) logits: Option<LogitScale>,
    pub(super) logit_soft_cap: Option<SoftCap>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum EmbeddingScale {
    /// The root of the hidden size, so that elements have a variance of 1.
    RootOfWidth,
    Field(String),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum LogitScale {
    Multiply(Field<f64>),
    /// The field that states a divisor.
    Divide(String),
}

/// A cap that is none where the field is null.
pub(super) type SoftCap = Field<Option<f64>>;

/// Rates of dropout by the names that a family has for them; zero where it has no name.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DropoutRule {
    pub(super) embedding: Option<Field<f64>>,
    /// After both sublayers.
    pub(super) hidden: Option<Field<f64>>,
    /// Of attention probabilities.
    pub(super) attention: Option<Field<f64>>,
}
