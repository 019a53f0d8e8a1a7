//! Mixtures of experts of a family.

use serde::Deserialize;

use super::parts::{self, Shape};
use super::stated::{self, Field, Number, Stated, optional};
use crate::graph::{ExpertGroups, RouterScores, Routing};
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::transformer::{Correction, FeedForward, Mixture, Mlp, Norm};

/// Rule for the experts of a family's layers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Experts {
    count: Number,
    /// Field that enables experts.
    #[serde(rename = "if", default = "stated::always")]
    used: Stated<bool>,
    /// True where router, routed experts and shared block each have their own norms.
    #[serde(default)]
    own_norms: bool,
    /// Feed-forward block of layers where the number of experts is zero.
    #[serde(default)]
    without: Without,
    /// Number of experts below which there is the dense block instead.
    #[serde(default)]
    min_count: u64,
    /// Number of experts for each token.
    top_k: Number,
    /// Inner width of an expert, where it differs from that of a dense layer.
    intermediate_size: Option<Field<u64>>,
    shared: Option<Shared>,
    /// Width that routed tokens are projected to, where the configuration has one.
    latent_size: Option<String>,
    #[serde(default)]
    router_bias: bool,
    /// True where routed experts have no biases, though dense and shared blocks may.
    #[serde(default)]
    unbiased: bool,
    #[serde(default = "softmax")]
    scores: RouterScores,
    /// Correction of the scores that is used only for the choice and is not trained; by default, sigmoid scores have
    /// one.
    correction: Option<Correction>,
    /// Inner width of dense layers, where it is not that of the rule for feed-forward blocks.
    dense_intermediate_size: Option<Field<u64>>,
    /// True where the weights of the chosen experts are normalized to a sum of 1.
    #[serde(default = "stated::always")]
    normalized: Stated<bool>,
    /// Factor on the weights of the chosen experts.
    #[serde(default = "stated::one")]
    scaling: Stated<f64>,
    groups: Option<Groups>,
    #[serde(default)]
    layers: ExpertLayers,
}

const fn softmax() -> RouterScores {
    RouterScores::Softmax
}

/// Feed-forward block of layers where the number of experts is zero.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Without {
    #[default]
    Dense,
    /// The shared block, which all tokens go to.
    Shared,
}

/// Shared experts, which every token goes to.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Shared {
    /// A number of shared experts, merged into one block.
    Experts(Number),
    /// One block of this inner width, or none where the width is zero.
    Width(Field<u64>),
    /// One block of this inner width, with a trained gate.
    GatedWidth(Field<u64>),
}

/// Groups of experts; a token first chooses some groups.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Groups {
    /// Groups scored by their best expert, where `topk_method` selects groups.
    ByMethod,
    /// Groups scored by the sum of their best two experts; a single group means no groups.
    ByBestTwo { count: Number, chosen: Number },
}

/// Layers with experts.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ExpertLayers {
    #[default]
    All,
    /// Layers from index `first_k_dense_replace` on, with this default.
    AfterDense(u64),
    /// Layers from an index on.
    From(Field<u64>),
    /// Every n-th layer, with n from this field, except those in `mlp_only_layers`.
    Every(Field<u64>),
    /// One in a period.
    OneOf { period: Field<u64>, offset: Field<u64> },
    /// Layers that `list` has, or else every n-th.
    Listed { list: String, otherwise: Field<u64> },
    /// Layers marked `sparse` in the list of this field; without the list, those from an index on.
    Typed { list: String, otherwise: Field<u64> },
    /// Layers of a range of indices, every n-th of it; an end of -1 is the last layer.
    Within { start: Field<u64>, end: String, step: Field<u64> },
}

/// Feed-forward blocks of all layers of a model.
pub(super) struct FeedForwards {
    dense: FeedForward,
    sparse: Option<FeedForward>,
    layers: SparseLayers,
}

enum SparseLayers {
    From(u64),
    Every { step: u64, dense: Vec<u64> },
    Listed(Vec<bool>),
}

impl FeedForwards {
    pub(super) fn dense(mlp: Mlp) -> Self {
        let dense = FeedForward::Dense(mlp);
        Self { dense, sparse: None, layers: SparseLayers::From(0) }
    }

    pub(super) fn is_sparse(&self, layer: u64) -> bool {
        match &self.layers {
            SparseLayers::From(first) => layer >= *first,
            SparseLayers::Listed(sparse) => {
                sparse.get(layer as usize).or(sparse.last()).copied().unwrap_or(false)
            }
            SparseLayers::Every { step, dense } => {
                (layer + 1).is_multiple_of(*step) && !dense.contains(&layer)
            }
        }
    }

    pub(super) fn of(&self, is_sparse: bool) -> FeedForward {
        self.sparse.as_ref().filter(|_| is_sparse).unwrap_or(&self.dense).clone()
    }
}

impl Experts {
    /// Reads the feed-forward blocks; `mlp` is the dense one.
    pub(super) fn read(
        &self,
        fields: Fields<'_>,
        shape: &Shape,
        mlp: Mlp,
        norm: Norm,
    ) -> Result<FeedForwards, ModelError> {
        if !self.used.read(fields)? {
            return Ok(FeedForwards::dense(mlp));
        }
        let layers = self.layers(fields, shape)?;
        let count = self.count.read(fields)?;
        let of_width = |width: &Option<Field<u64>>| {
            let width = optional(width.as_ref(), |width| width.read(fields))?;
            let intermediate_size = width.unwrap_or(mlp.intermediate_size);
            Ok::<_, ModelError>(Mlp { intermediate_size, ..mlp })
        };
        let expert = of_width(&self.intermediate_size)?;
        let shared = self.shared(fields, expert)?;
        let expert = if self.unbiased { parts::with_mlp_biases(expert, false) } else { expert };
        let routing = self.routing(fields, count)?;
        let mlp = of_width(&self.dense_intermediate_size)?;
        let dense =
            FeedForward::Dense(shared.filter(|_| self.without == Without::Shared).unwrap_or(mlp));
        // With zero experts, only the shared block remains, or later checks refuse the mixture.
        let is_left_out = count.is_none_or(|count| count < self.min_count)
            || count == Some(0) && (self.without == Without::Dense || shared.is_some());
        if is_left_out {
            return Ok(FeedForwards { dense, sparse: None, layers });
        }
        let top_k = self.top_k.read(fields)?;
        let mixture = Mixture {
            shared,
            shared_gate: matches!(self.shared, Some(Shared::GatedWidth(_))),
            router_bias: self.router_bias,
            latent_size: optional(self.latent_size.as_ref(), |it| fields.optional_size(it))?
                .flatten(),
            routing,
            // Sigmoid scores, which are not normalized over experts, have a correction that is not trained.
            correction: self.correction.unwrap_or(match self.scores {
                RouterScores::Sigmoid => Correction::Buffer,
                RouterScores::Softmax => Correction::None,
            }),
            own_norms: self.own_norms.then_some(norm),
            ..parts::mixture(
                count.unwrap_or_default(),
                top_k.ok_or_else(|| fields.missing("num_experts_per_tok"))?,
                expert,
            )
        };
        Ok(FeedForwards { dense, sparse: Some(FeedForward::Mixture(mixture)), layers })
    }

    fn layers(&self, fields: Fields<'_>, shape: &Shape) -> Result<SparseLayers, ModelError> {
        let listed = |has: &dyn Fn(u64) -> bool| {
            SparseLayers::Listed((0..shape.num_hidden_layers).map(has).collect())
        };
        Ok(match &self.layers {
            ExpertLayers::All => SparseLayers::From(0),
            ExpertLayers::AfterDense(default) => {
                const FIELD: &str = "first_k_dense_replace";
                let first = fields.count_or(FIELD, *default)?;
                within(fields, FIELD, first, 0, shape.num_hidden_layers)?;
                SparseLayers::From(first)
            }
            ExpertLayers::From(first) => SparseLayers::From(first.count(fields)?),
            ExpertLayers::Listed { list, otherwise } => match fields.indices(list)? {
                Some(layers) => listed(&|layer| layers.contains(&layer)),
                None => SparseLayers::Every { step: otherwise.read(fields)?, dense: Vec::new() },
            },
            ExpertLayers::Typed { list, otherwise } => match fields.texts(list)? {
                Some(types) => {
                    SparseLayers::Listed(types.iter().map(|it| *it == "sparse").collect())
                }
                None => SparseLayers::From(otherwise.count(fields)?),
            },
            ExpertLayers::Within { start, end, step } => {
                let (first, step) = (start.count(fields)?, step.read(fields)?);
                // The end may be -1, the last layer.
                let stated = fields.find(end).and_then(|(_, value)| value.as_i64());
                let last = stated.and_then(|last| u64::try_from(last).ok());
                let last = last.unwrap_or(shape.num_hidden_layers);
                listed(&|layer| (layer + 1).is_multiple_of(step) && (first..=last).contains(&layer))
            }
            ExpertLayers::OneOf { period, offset } => {
                let (period, offset) = (period.read(fields)?, offset.count(fields)?);
                listed(&|layer| layer % period == offset)
            }
            ExpertLayers::Every(step) => SparseLayers::Every {
                step: step.read(fields)?,
                dense: fields.indices("mlp_only_layers")?.unwrap_or_default(),
            },
        })
    }

    fn shared(&self, fields: Fields<'_>, expert: Mlp) -> Result<Option<Mlp>, ModelError> {
        let width = match &self.shared {
            None => None,
            Some(Shared::Experts(count)) => {
                let count = count.read(fields)?;
                let width = count.map(|count| count.saturating_mul(expert.intermediate_size));
                width.filter(|width| *width > 0)
            }
            Some(Shared::Width(width)) => Some(width.count(fields)?).filter(|width| *width > 0),
            Some(Shared::GatedWidth(width)) => Some(width.read(fields)?),
        };
        Ok(width.map(|intermediate_size| Mlp { intermediate_size, ..expert }))
    }

    fn routing(&self, fields: Fields<'_>, count: Option<u64>) -> Result<Routing, ModelError> {
        let groups = optional(self.groups.as_ref(), |groups| groups.read(fields))?.flatten();
        if let Some((groups, count)) = groups.zip(count) {
            check_groups(fields, groups, count)?;
        }
        Ok(Routing {
            scores: self.scores,
            normalized: self.normalized.read(fields)?,
            scaling: self.scaling.read(fields)?.into(),
            groups,
        })
    }
}

impl Groups {
    fn read(&self, fields: Fields<'_>) -> Result<Option<ExpertGroups>, ModelError> {
        match self {
            Self::ByMethod => match fields.text_or("topk_method", "greedy")? {
                "greedy" => Ok(None),
                "group_limited_greedy" => Ok(Some(ExpertGroups {
                    count: fields.size("n_group")?,
                    chosen: fields.size("topk_group")?,
                    scored_by: 1,
                })),
                other => Err(fields.unsupported(format!("`topk_method` `{other}`"))),
            },
            Self::ByBestTwo { count, chosen } => {
                let count = count.read(fields)?.unwrap_or(1);
                let chosen = chosen.read(fields)?.unwrap_or(1);
                let groups = ExpertGroups { count, chosen, scored_by: 2 };
                Ok(Some(groups).filter(|_| (count, chosen) != (1, 1)))
            }
        }
    }
}

/// Checks groups against the number of experts where groups are stated; default groups need not fit small models.
fn check_groups(fields: Fields<'_>, groups: ExpertGroups, count: u64) -> Result<(), ModelError> {
    if fields.find("n_group").is_some() && !count.is_multiple_of(groups.count) {
        return Err(ModelError::NotDivisible {
            architecture: fields.architecture(),
            field: "n_routed_experts",
            value: count,
            divisor_field: "n_group",
            divisor: groups.count,
        });
    }
    within(fields, "topk_group", groups.chosen, 1, groups.count)
}

/// Checks that a value is at most `most`, if its field is stated.
fn within(
    fields: Fields<'_>,
    field: &str,
    value: u64,
    least: u64,
    most: u64,
) -> Result<(), ModelError> {
    if fields.find(field).is_none() || value <= most {
        return Ok(());
    }
    let (architecture, field) = (fields.architecture(), field.to_owned());
    Err(ModelError::OutOfRange { architecture, field, least, most, found: value.to_string() })
}
