//! Mixtures of experts.

use serde::Deserialize;

use super::parts::{self, Shape};
use super::stated::{self, Field, Number, Stated};
use crate::graph::{ExpertGroups, RouterScores, Routing};
use crate::model::error::ModelError;
use crate::model::fields::Fields;
use crate::model::transformer::{FeedForward, Mixture, Mlp};

/// The experts of a family.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Experts {
    count: Number,
    /// What layers have where there are no experts.
    #[serde(default)]
    without: Without,
    /// Experts for each token.
    top_k: Number,
    /// The inner width of an expert, where it is not that of a dense layer.
    intermediate_size: Option<Field<u64>>,
    shared: Option<Shared>,
    #[serde(default)]
    router_bias: bool,
    #[serde(default = "softmax")]
    scores: RouterScores,
    /// Whether the weights of the chosen experts add up to 1.
    #[serde(default = "stated::always")]
    normalized: Stated<bool>,
    /// What the weights are multiplied by.
    #[serde(default = "stated::one")]
    scaling: Stated<f64>,
    groups: Option<Groups>,
    #[serde(default)]
    layers: ExpertLayers,
}

const fn softmax() -> RouterScores {
    RouterScores::Softmax
}

/// What layers have where the number of experts is zero.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Without {
    #[default]
    Dense,
    /// The block that all tokens go to.
    Shared,
}

/// What every token goes to.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Shared {
    /// So many experts, as one block.
    Experts(Number),
    /// A block of this inner width, or none if it is zero.
    Width(Field<u64>),
    /// The same with a gate of its own.
    GatedWidth(Field<u64>),
}

/// Groups of experts of which some are chosen first.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Groups {
    /// By the best expert of each, where `topk_method` asks for groups.
    ByMethod,
    /// By the sum of the best two of each; one group is as none.
    ByBestTwo { count: Number, chosen: Number },
}

/// Which layers have experts.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ExpertLayers {
    #[default]
    All,
    /// Those from `first_k_dense_replace` on, which has this default.
    AfterDense(u64),
    /// Every so many, but for those in `mlp_only_layers`.
    Every(Field<u64>),
}

/// The feed-forward blocks of a model's layers.
pub(super) struct FeedForwards {
    dense: FeedForward,
    sparse: Option<FeedForward>,
    layers: SparseLayers,
}

enum SparseLayers {
    From(u64),
    Every { step: u64, dense: Vec<u64> },
}

impl FeedForwards {
    pub(super) fn dense(mlp: Mlp) -> Self {
        let dense = FeedForward::Dense(mlp);
        Self { dense, sparse: None, layers: SparseLayers::From(0) }
    }

    pub(super) fn is_sparse(&self, layer: u64) -> bool {
        match &self.layers {
            SparseLayers::From(first) => layer >= *first,
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
    /// The blocks of layers whose dense ones are `mlp`.
    pub(super) fn read(
        &self,
        fields: Fields<'_>,
        shape: &Shape,
        mlp: Mlp,
    ) -> Result<FeedForwards, ModelError> {
        let layers = self.layers(fields, shape)?;
        let count = self.count.read(fields)?;
        let top_k = self.top_k.read(fields)?;
        let expert = match &self.intermediate_size {
            Some(width) => Mlp { intermediate_size: width.read(fields)?, ..mlp },
            None => mlp,
        };
        let shared = self.shared(fields, expert)?;
        let routing = self.routing(fields, count)?;
        let dense = match (self.without, shared) {
            (Without::Shared, Some(shared)) => FeedForward::Dense(shared),
            _ => FeedForward::Dense(mlp),
        };
        // Of none, a block for all tokens is left, or a mixture that is refused.
        let is_left_out = count.is_none()
            || count == Some(0) && (self.without == Without::Dense || shared.is_some());
        if is_left_out {
            return Ok(FeedForwards { dense, sparse: None, layers });
        }
        let mixture = Mixture {
            shared,
            shared_gate: matches!(self.shared, Some(Shared::GatedWidth(_))),
            router_bias: self.router_bias,
            routing,
            // A correction that is not trained goes with scores that do not add up to 1.
            corrects_choice: self.scores == RouterScores::Sigmoid,
            ..parts::mixture(
                count.unwrap_or_default(),
                top_k.ok_or_else(|| fields.missing("num_experts_per_tok"))?,
                expert,
            )
        };
        Ok(FeedForwards { dense, sparse: Some(FeedForward::Mixture(mixture)), layers })
    }

    fn layers(&self, fields: Fields<'_>, shape: &Shape) -> Result<SparseLayers, ModelError> {
        Ok(match &self.layers {
            ExpertLayers::All => SparseLayers::From(0),
            ExpertLayers::AfterDense(default) => {
                const FIELD: &str = "first_k_dense_replace";
                let first = fields.count_or(FIELD, *default)?;
                within(fields, FIELD, first, 0, shape.num_hidden_layers)?;
                SparseLayers::From(first)
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
                count.map(|count| count.saturating_mul(expert.intermediate_size))
            }
            Some(Shared::Width(width)) => Some(width.count(fields)?).filter(|width| *width > 0),
            Some(Shared::GatedWidth(width)) => Some(width.read(fields)?),
        };
        Ok(width.map(|intermediate_size| Mlp { intermediate_size, ..expert }))
    }

    fn routing(&self, fields: Fields<'_>, count: Option<u64>) -> Result<Routing, ModelError> {
        let groups = match &self.groups {
            Some(groups) => groups.read(fields)?,
            None => None,
        };
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

/// Groups that are stated fit the experts; defaults, which small models leave, need not.
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

/// That a value is at most `most`, if it is stated.
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
