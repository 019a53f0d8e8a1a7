//! Layers with a recurrence or a convolution instead of attention.

use serde::Deserialize;

use super::parts::Shape;
use super::stated::{Field, Stated, optional};
use crate::graph::{Activation, Real};
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::transformer::{
    Convolution, Decays, DeltaNet, Lightning, Mixer, Norm, NormPlacement, SelectiveScan, StateSpace,
};

/// Mixers of some layers of a family instead of attention, and which layers have them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mixers {
    kind: MixerRule,
    layers: MixedLayers,
    /// Placement of the norms of such layers, where it is not that of the others.
    pub(super) norm_placement: Option<NormPlacement>,
    /// True where a layer is either a mixer or a feed-forward block.
    #[serde(default)]
    single: bool,
    /// True where layers with the mixer have attention in addition to it.
    #[serde(default)]
    with_attention: bool,
}

/// A mixer, with the fields of its sizes.
#[expect(clippy::large_enum_variant, reason = "there is one for each family")]
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum MixerRule {
    StateSpace {
        heads: Field<u64>,
        head_dim: StateSpaceHead,
        groups: Field<u64>,
        state: Field<u64>,
        kernel: Field<u64>,
        chunk: Field<u64>,
        convolution_bias: Stated<bool>,
        bias: Stated<bool>,
        /// True where the output projection has a bias; `bias` by default.
        output_bias: Option<Stated<bool>>,
        /// Field with the function of the convolution's output; SiLU where there is none.
        activation: Option<String>,
        time_steps: TimeSteps,
        /// True where a norm follows the gate.
        norm: Stated<bool>,
    },
    SelectiveScan {
        /// Features, as a multiple of the hidden size; or this many, if that field is there.
        expand: Field<u64>,
        #[serde(default)]
        inner: Option<String>,
        state: Field<u64>,
        /// A number, or `auto`: a sixteenth of the hidden size.
        rank: String,
        kernel: Field<u64>,
        convolution_bias: Stated<bool>,
        bias: Stated<bool>,
        /// True where the inputs of time steps and states are normalised.
        #[serde(default)]
        norms: bool,
    },
    DeltaNet {
        key_heads: Field<u64>,
        key_dim: Field<u64>,
        value_heads: Field<u64>,
        value_dim: Field<u64>,
        kernel: Field<u64>,
        /// As of Mamba-2.
        activation: Option<String>,
        #[serde(default)]
        decays: DecayRule,
    },
    Lightning {
        chunk: Field<u64>,
    },
    Convolution {
        kernel: Field<u64>,
        bias: Stated<bool>,
    },
}

/// Features of a head of Mamba-2.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum StateSpaceHead {
    Stated(Field<u64>),
    /// Features of all heads together, divided by the number of heads. The features are in a field; where the field is
    /// null they are a multiple of the hidden size. An absent field has the value `default`, or null without a
    /// default.
    OfAll {
        inner: Option<String>,
        default: Option<u64>,
        expand: Field<u64>,
    },
}

impl StateSpaceHead {
    fn read(&self, fields: Fields<'_>, shape: &Shape, heads: u64) -> Result<u64, ModelError> {
        let (inner, default, expand) = match self {
            Self::Stated(field) => return field.read(fields),
            Self::OfAll { inner, default, expand } => (inner, default, expand),
        };
        let stated =
            optional(inner.as_ref(), |field| fields.nullable_size_or(field, *default))?.flatten();
        let all = match stated {
            Some(all) => all,
            None => shape.hidden_size.saturating_mul(expand.read(fields)?),
        };
        if all.is_multiple_of(heads) {
            return Ok(all / heads);
        }
        Err(fields.unsupported(format!("{all} features of a recurrence in {heads} heads")))
    }
}

/// Limits of Mamba-2's time steps.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum TimeSteps {
    /// A list of the smallest and the largest time step, where null stands for no limit.
    Limits(String),
    /// The least.
    Least(Field<f64>),
}

impl TimeSteps {
    fn read(&self, fields: Fields<'_>) -> Result<[Real; 2], ModelError> {
        Ok(match self {
            Self::Limits(name) => fields.limits(name)?,
            Self::Least(least) => [least.read(fields)?.into(), f64::INFINITY.into()],
        })
    }
}

/// Decays of a delta rule.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum DecayRule {
    #[default]
    Heads,
    Features,
    /// Decays of features, computed through the number of features that a value has.
    LowRankFeatures,
}

impl DecayRule {
    fn read(self, fields: Fields<'_>, value_dim: u64) -> Result<Decays, ModelError> {
        Ok(match self {
            Self::Heads => Decays::Heads,
            Self::Features => Decays::Features,
            Self::LowRankFeatures => Decays::LowRankFeatures {
                rank: value_dim,
                gate: !fields.flag_or("use_full_rank_gate", false)?,
            },
        })
    }
}

/// Layers without attention.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum MixedLayers {
    All,
    /// Layers that `layer_types` does not call attention; without `layer_types`, all layers, or all but every n-th.
    Typed {
        otherwise: Option<Field<u64>>,
    },
    /// Layers that `layer_types` does not call attention; without `layer_types`, all but those in a list of indices;
    /// without that list too, all layers or none.
    But {
        list: String,
        otherwise_all: bool,
    },
    /// Layers that `layer_types` does not call attention; without `layer_types`, those with a 0 in a list; without
    /// that list too, all but one in a period.
    Flagged {
        list: String,
        period: u64,
        offset: u64,
    },
    /// All but one in a period.
    ButOneOf {
        period: Field<u64>,
        offset: Field<u64>,
    },
    /// By a letter for each layer: `M` for the mixer, `*` for attention, `-` for a feed-forward block, `E` for
    /// experts; or by words in a list.
    Letters {
        field: String,
        list: String,
    },
}

/// Name of recurrences of all families in transformers since version 5.
const LINEAR: &str = "linear_attention";

/// The function applied to a convolution's output, from a field if there is one.
fn convolved(fields: Fields<'_>, field: Option<&str>) -> Result<Activation, ModelError> {
    field.map_or(Ok(Activation::Silu), |field| fields.activation_or(field, "silu"))
}

/// Parts of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LayerParts {
    /// Attention and a feed-forward block.
    Attention,
    /// The mixer and a feed-forward block.
    Mixer,
    /// Attention and the mixer on the same input, and a feed-forward block.
    Both,
    /// Attention alone.
    AttentionAlone,
    /// The mixer alone.
    MixerAlone,
    /// A dense feed-forward block alone.
    DenseAlone,
    /// Experts alone.
    ExpertsAlone,
}

impl Mixers {
    /// The mixer, and the parts of each layer.
    pub(super) fn read(
        &self,
        fields: Fields<'_>,
        shape: &Shape,
        norm: Norm,
    ) -> Result<(Mixer, Vec<LayerParts>), ModelError> {
        // Norms after gates have plain scales.
        let norm = Norm { unit_offset: false, ..norm };
        Ok((self.kind.read(fields, shape, norm)?, self.layers(fields, shape)?))
    }

    fn layers(&self, fields: Fields<'_>, shape: &Shape) -> Result<Vec<LayerParts>, ModelError> {
        let count = shape.num_hidden_layers;
        let layer_parts = |is_mixer: bool| match (is_mixer, self.single) {
            (true, false) if self.with_attention => LayerParts::Both,
            (true, true) => LayerParts::MixerAlone,
            (true, false) => LayerParts::Mixer,
            (false, true) => LayerParts::AttentionAlone,
            (false, false) => LayerParts::Attention,
        };
        let all = |is_mixer: &dyn Fn(u64) -> bool| -> Vec<LayerParts> {
            (0..count).map(|layer| layer_parts(is_mixer(layer))).collect()
        };
        let words = match &self.layers {
            MixedLayers::Typed { .. } | MixedLayers::But { .. } | MixedLayers::Flagged { .. } => {
                fields.texts("layer_types")?
            }
            _ => None,
        };
        let is_attention = |word: &&str| word.ends_with("attention") && *word != LINEAR;
        let layers = match (&self.layers, words) {
            (_, Some(words)) => words.iter().map(|it| layer_parts(!is_attention(it))).collect(),
            (MixedLayers::All | MixedLayers::Typed { otherwise: None }, None) => all(&|_| true),
            (MixedLayers::Typed { otherwise: Some(step) }, None) => {
                let step = step.read(fields)?;
                all(&|layer| !(layer + 1).is_multiple_of(step))
            }
            (MixedLayers::But { list, otherwise_all }, None) => {
                let attention = fields.indices(list)?;
                all(&|layer| match &attention {
                    Some(attention) => !attention.contains(&layer),
                    None => *otherwise_all,
                })
            }
            (MixedLayers::Flagged { list, period, offset }, None) => match fields.indices(list)? {
                Some(flags) => flags.into_iter().map(|flag| layer_parts(flag == 0)).collect(),
                None => all(&|layer| layer % period != *offset),
            },
            (MixedLayers::ButOneOf { period, offset }, None) => {
                let (period, offset) = (period.read(fields)?, offset.count(fields)?);
                all(&|layer| layer % period != offset)
            }
            (MixedLayers::Letters { field, list }, None) => lettered(fields, field, list)?,
        };
        if layers.len() as u64 != count {
            let given = layers.len();
            return Err(fields.unsupported(format!("{given} types of layers for {count} layers")));
        }
        Ok(layers)
    }
}

/// Layers that each consist of a single part, given by letters or words.
fn lettered(fields: Fields<'_>, field: &str, list: &str) -> Result<Vec<LayerParts>, ModelError> {
    let part = |word: &str| match word {
        "M" | "mamba" | LINEAR => Ok(LayerParts::MixerAlone),
        "*" | "attention" | "full_attention" => Ok(LayerParts::AttentionAlone),
        "-" | "mlp" => Ok(LayerParts::DenseAlone),
        "E" | "moe" => Ok(LayerParts::ExpertsAlone),
        other => Err(fields.unsupported(format!("a layer `{other}`"))),
    };
    if let Some(words) = fields.texts(list)? {
        return words.into_iter().map(part).collect();
    }
    let letters = fields.text_or(field, "")?;
    letters.chars().map(|letter| part(&letter.to_string())).collect()
}

impl MixerRule {
    fn read(&self, fields: Fields<'_>, shape: &Shape, norm: Norm) -> Result<Mixer, ModelError> {
        Ok(match self {
            Self::StateSpace {
                heads,
                head_dim,
                groups,
                state,
                kernel,
                chunk,
                convolution_bias,
                bias,
                output_bias,
                norm: has_norm,
                activation,
                time_steps,
            } => {
                let num_heads = heads.read(fields)?;
                let bias = bias.read(fields)?;
                let output_bias = optional(output_bias.as_ref(), |it| it.read(fields))?;
                Mixer::StateSpace(StateSpace {
                    num_heads,
                    head_dim: head_dim.read(fields, shape, num_heads)?,
                    num_groups: groups.read(fields)?,
                    state_size: state.read(fields)?,
                    kernel: kernel.read(fields)?,
                    chunk: chunk.read(fields)?,
                    convolution_bias: convolution_bias.read(fields)?,
                    bias,
                    output_bias: output_bias.unwrap_or(bias),
                    norm: has_norm.read(fields)?.then_some(norm),
                    activation: convolved(fields, activation.as_deref())?,
                    time_steps: time_steps.read(fields)?,
                })
            }
            Self::SelectiveScan {
                expand,
                inner,
                state,
                rank,
                kernel,
                convolution_bias,
                bias,
                norms,
            } => {
                let hidden = shape.hidden_size;
                let usual = hidden.saturating_mul(expand.read(fields)?);
                let inner_size = optional(inner.as_ref(), |field| fields.size_or(field, usual))?;
                let is_auto = fields.find(rank).is_none_or(|(_, value)| value.is_string());
                let sixteenth = hidden.div_ceil(16);
                Mixer::SelectiveScan(SelectiveScan {
                    inner_size: inner_size.unwrap_or(usual),
                    state_size: state.read(fields)?,
                    rank: if is_auto { sixteenth } else { fields.size_or(rank, sixteenth)? },
                    kernel: kernel.read(fields)?,
                    convolution_bias: convolution_bias.read(fields)?,
                    bias: bias.read(fields)?,
                    norm: norms.then_some(norm),
                })
            }
            Self::DeltaNet {
                key_heads,
                key_dim,
                value_heads,
                value_dim,
                kernel,
                activation,
                decays,
            } => {
                let value_dim = value_dim.read(fields)?;
                Mixer::DeltaNet(DeltaNet {
                    num_key_heads: key_heads.read(fields)?,
                    key_dim: key_dim.read(fields)?,
                    num_value_heads: value_heads.read(fields)?,
                    value_dim,
                    kernel: kernel.read(fields)?,
                    activation: convolved(fields, activation.as_deref())?,
                    decays: decays.read(fields, value_dim)?,
                    norm,
                })
            }
            Self::Lightning { chunk } => Mixer::Lightning(Lightning {
                num_heads: shape.num_attention_heads,
                head_dim: shape.head_dim,
                chunk: chunk.read(fields)?,
                activation: fields.activation_or("hidden_act", "silu")?,
                norm,
            }),
            Self::Convolution { kernel, bias } => Mixer::Convolution(Convolution {
                kernel: kernel.read(fields)?,
                bias: bias.read(fields)?,
            }),
        })
    }
}
