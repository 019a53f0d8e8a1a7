//! Activations that are recomputed in backward rather than saved.

use std::fmt;
use std::str::FromStr;

use super::modules::{LayerModule, ModuleSet};
use super::op::{Op, OpKind};
use super::recomputable::Recomputable;
use super::tensor::DimName;

/// Policy that decides which activations are recomputed in backward.
///
/// Written `none`, `selective`, `full`, `full:4` for the first four layers of each stage, and `norms+activations`
/// for chosen modules of every layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Recompute {
    /// No recompute: all activations that backward needs are saved.
    #[default]
    None,
    /// Recompute of operators that are cheap relative to the bytes saved: unfused attention scores, norms, activation
    /// functions.
    Selective,
    /// Recompute of each whole layer, from its saved input.
    Full,
    /// Recompute of this number of layers at the start of every stage, each as a whole; the other layers save
    /// everything (Megatron-LM's `--recompute-method block`).
    FirstLayers(u32),
    /// Recompute of the outputs of these modules, in every layer. The graph must have the same modules as its
    /// selective recompute: [`Graph::recomputing`](super::Graph::recomputing).
    Modules(RecomputeModules),
}

/// Recompute of one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockRecompute {
    /// No recompute.
    #[default]
    None,
    /// Recompute of the operators that the graph marks: [`Recomputable`].
    Selective,
    /// Recompute of the whole block, from its saved input.
    Full,
}

impl BlockRecompute {
    /// All values.
    pub const ALL: [Self; 3] = [Self::None, Self::Selective, Self::Full];
}

impl Recompute {
    /// Policies that a search tries by default.
    pub const ALL: [Self; 3] = [Self::None, Self::Selective, Self::Full];

    /// Recompute of a stage's first layer: no layer saves less.
    pub const fn of_first_layers(self) -> BlockRecompute {
        match self {
            Self::None => BlockRecompute::None,
            Self::Selective | Self::Modules(_) => BlockRecompute::Selective,
            Self::Full | Self::FirstLayers(_) => BlockRecompute::Full,
        }
    }

    /// Recompute of the layers after the first ones with [`Self::FirstLayers`]: no layer takes less time.
    pub const fn of_other_layers(self) -> BlockRecompute {
        match self {
            Self::FirstLayers(_) => BlockRecompute::None,
            _ => self.of_first_layers(),
        }
    }

    /// Number of layers at the start of each stage that are recomputed; none for policies that treat all layers alike.
    pub const fn first_layers(self) -> Option<u32> {
        match self {
            Self::FirstLayers(count) => Some(count),
            _ => None,
        }
    }

    /// The chosen modules, for [`Self::Modules`].
    pub const fn modules(self) -> Option<RecomputeModules> {
        match self {
            Self::Modules(modules) => Some(modules),
            _ => None,
        }
    }

    /// Description of the policy, where its name does not convey it.
    pub fn describe(self) -> Option<String> {
        match self {
            Self::None | Self::Selective | Self::Full => None,
            Self::FirstLayers(1) => Some("the first layer of each stage, whole".to_owned()),
            Self::FirstLayers(count) => {
                Some(format!("the first {count} layers of each stage, whole"))
            }
            Self::Modules(modules) => {
                let words = modules.iter().map(RecomputeModule::describe);
                Some(format!("{} of every layer", words.collect::<Vec<_>>().join(", ")))
            }
        }
    }
}

impl fmt::Display for Recompute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.pad("none"),
            Self::Selective => f.pad("selective"),
            Self::Full => f.pad("full"),
            Self::FirstLayers(count) => f.pad(&format!("full:{count}")),
            Self::Modules(modules) => f.pad(&modules.to_string()),
        }
    }
}

named_enum! {
    /// A part of a layer that can be recomputed individually.
    pub enum RecomputeModule {
        /// Attention itself: scores, softmax and weighted sum, or the fused kernel.
        Attention = "attention",
        /// Norms.
        Norms = "norms",
        /// Norms that are separate operators: those before experts and before latents. All other norms are fused with
        /// the linear layer after them, which saves its own input.
        SeparateNorms = "separate_norms",
        /// Activation functions of dense feed-forward blocks.
        Activations = "activations",
        /// Activation functions of experts.
        ExpertActivations = "expert_activations",
        /// Dense feed-forward blocks, whole.
        FeedForward = "feed_forward",
        /// Whole mixtures of experts: router, exchanges, experts and shared experts.
        Experts = "experts",
        /// Shared experts, whole.
        SharedExperts = "shared_experts",
        /// From latents to queries, keys and values.
        LatentProjections = "latent_projections",
    }
}

/// The layer that an operator belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layer<'a> {
    /// Name of the operator, or of the layer that it is an adapter of.
    pub(super) name: &'a str,
    /// True if an adapter's output is yet to be added to the operator's output.
    pub(super) is_before_sum: bool,
}

/// Facts about an operator's block that decide the modules that the operator belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Within<'a> {
    /// The layer that the operator belongs to.
    pub(super) layer: Layer<'a>,
    /// True if the operator reads the output of experts.
    pub(super) reads_experts: bool,
    /// True if the block has experts that a router chooses among.
    pub(super) has_router: bool,
    /// True if the block's attention is latent.
    pub(super) has_latents: bool,
}

/// Name of the projection from latents to keys and values, which only latent attention has.
pub(super) const LATENTS: &str = "attention.key_value_up";

/// Suffixes of the operators of a feed-forward block, after the block's name.
const FEED_FORWARD: [&str; 5] = [".gate", ".up", ".activation", ".inner_dropout", ".down"];

/// Names of the operators between latents and attention.
const LATENT_PROJECTIONS: [&str; 10] = [
    "attention.query_up",
    "attention.query_nope",
    "attention.query_rope",
    "attention.query_rotary",
    "attention.query_joined",
    LATENTS,
    "attention.key_rotary",
    "attention.key_nope",
    "attention.value",
    "attention.key_joined",
];

/// Names of operators before or after the experts of a feed-forward block.
const OUTSIDE_OF_EXPERTS: [&str; 6] =
    ["norm", "parallel_norm", "post_norm", "dropout", "scale", "residual"];

impl RecomputeModule {
    /// Name in Megatron-Core's `--recompute-modules`, where that has the module.
    pub const fn megatron_name(self) -> Option<&'static str> {
        match self {
            Self::Attention => Some("core_attn"),
            Self::SeparateNorms => Some("layernorm"),
            Self::ExpertActivations => Some("moe_act"),
            Self::FeedForward => Some("mlp"),
            Self::Experts => Some("moe"),
            Self::LatentProjections => Some("mla_up_proj"),
            Self::Norms | Self::Activations | Self::SharedExperts => None,
        }
    }

    /// Name of the module in a sentence.
    const fn describe(self) -> &'static str {
        match self {
            Self::Attention => "attention itself",
            Self::Norms => "norms",
            Self::SeparateNorms => "norms before experts and latents",
            Self::Activations => "activation functions",
            Self::ExpertActivations => "activation functions of experts",
            Self::FeedForward => "dense feed-forward",
            Self::Experts => "experts with their exchanges",
            Self::SharedExperts => "shared experts",
            Self::LatentProjections => "projections from latents",
        }
    }

    /// Treatment of an operator's output if this module is recomputed. Norms, activation functions and projections
    /// from latents drop their outputs. For the other modules, the last operator's output is saved if its consumer
    /// saves it, as at the end of a checkpointed region.
    ///
    /// # Source
    ///
    /// Megatron-Core, `TransformerConfig.recompute_modules`: which modules discard their output, and which run
    /// through `tensor_parallel.checkpoint`; `transformer_layer.py` and `gpt_layer_specs.py`: which norms are modules.
    fn of(self, op: &Op, within: Within<'_>) -> Recomputable {
        let Layer { name, is_before_sum } = within.layer;
        let is_activation = op.is_activation();
        let of_region = |is_in: bool, is_end: bool| match (is_in, is_end) {
            (true, true) => Recomputable::SelectiveEnd,
            (true, false) => Recomputable::Selective,
            (false, _) => Recomputable::No,
        };
        let of_feed_forward = |block: &str| {
            let part = name.strip_prefix(block).filter(|part| FEED_FORWARD.contains(part));
            of_region(part.is_some(), part == Some(".down") && !is_before_sum)
        };
        match self {
            Self::Attention => match op.kind {
                OpKind::Attention { .. } | OpKind::AttentionValues => Recomputable::SelectiveEnd,
                OpKind::AttentionScores => Recomputable::Selective,
                OpKind::Softmax { over } => of_region(over == DimName::Context, false),
                OpKind::Dropout { .. } => {
                    of_region(op.output.dim(DimName::Context).is_some(), false)
                }
                _ => Recomputable::No,
            },
            Self::Norms => of_region(matches!(op.kind, OpKind::Norm { .. }), false),
            Self::SeparateNorms => {
                let is_before_experts = name == "mlp.norm" && within.has_router;
                let is_before_latents = name == "attention.norm" && within.has_latents;
                of_region(is_before_experts || is_before_latents, false)
            }
            Self::Activations => of_region(is_activation && !within.reads_experts, false),
            Self::ExpertActivations => of_region(is_activation && within.reads_experts, false),
            Self::FeedForward => of_feed_forward("mlp"),
            Self::Experts => {
                let part = name.strip_prefix("mlp.").filter(|_| within.has_router);
                let is_in = part.is_some_and(|part| !OUTSIDE_OF_EXPERTS.contains(&part));
                of_region(is_in, op.kind == OpKind::Combine)
            }
            Self::SharedExperts => of_feed_forward("mlp.shared"),
            Self::LatentProjections => {
                of_region(LATENT_PROJECTIONS.contains(&name) && within.has_latents, false)
            }
        }
    }
}

/// A set of modules that are recomputed.
pub type RecomputeModules = ModuleSet<RecomputeModule>;

impl LayerModule for RecomputeModule {
    const ALL: &'static [Self] = &Self::ALL;

    fn name(self) -> &'static str {
        self.name()
    }

    /// Name in Megatron-Core's `--recompute-modules`.
    fn megatron_name(self) -> Option<&'static str> {
        self.megatron_name()
    }
}

impl RecomputeModules {
    /// Treatment of an operator's output if these modules are recomputed.
    pub(super) fn of(self, op: &Op, within: Within<'_>) -> Recomputable {
        let all = self.iter().map(|module| module.of(op, within));
        all.fold(Recomputable::No, |all, one| match (all, one) {
            (Recomputable::Selective, _) | (_, Recomputable::Selective) => Recomputable::Selective,
            (Recomputable::No, one) => one,
            (all, _) => all,
        })
    }
}

/// A policy that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseRecomputeError {
    /// A word that names neither a policy nor a module.
    #[error(
        "`{word}` is no recompute policy\nhint: none, selective, full, full:N for the first N layers of each \
         stage, or modules with commas between them: {}",
        RecomputeModules::known()
    )]
    Unknown {
        /// The word.
        word: String,
    },
    /// A policy combined with other policies or with modules.
    #[error(
        "`{policy}` stands alone: one of none, selective and full is taken, not several\nhint: `{policy}`; or say nothing, \
         and the best of the three is taken"
    )]
    Several {
        /// The policy.
        policy: String,
    },
    /// `full:0`, which recomputes no layers.
    #[error("`full:0` computes nothing again\nhint: `none`")]
    NoLayers,
}

impl FromStr for Recompute {
    type Err = ParseRecomputeError;

    fn from_str(text: &str) -> Result<Self, ParseRecomputeError> {
        let unknown = |word: &str| ParseRecomputeError::Unknown { word: word.to_owned() };
        match text {
            "none" => return Ok(Self::None),
            "selective" => return Ok(Self::Selective),
            "full" => return Ok(Self::Full),
            _ => {}
        }
        if let Some(count) = text.strip_prefix("full:") {
            return match count.parse() {
                Ok(0) => Err(ParseRecomputeError::NoLayers),
                Ok(count) => Ok(Self::FirstLayers(count)),
                Err(_) => Err(unknown(text)),
            };
        }
        let is_policy =
            |word: &&str| ["none", "selective", "full"].contains(word) || word.starts_with("full:");
        if let Some(policy) = text.split(['+', ',']).map(str::trim).find(is_policy) {
            return Err(ParseRecomputeError::Several { policy: policy.to_owned() });
        }
        RecomputeModules::named(text.split(['+', ',']))
            .map(Self::Modules)
            .map_err(|word| unknown(&word))
    }
}

text_in_json!(Recompute);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_read_as_they_are_written() {
        for text in ["none", "selective", "full", "full:4", "attention+norms", "experts"] {
            let policy: Recompute = text.parse().unwrap();
            assert_eq!(policy.to_string(), text);
            let json = serde_json::to_string(&policy).unwrap();
            assert_eq!(serde_json::from_str::<Recompute>(&json).unwrap(), policy);
        }
        let theirs: Recompute = "layernorm,moe_act,core_attn".parse().unwrap();
        assert_eq!(theirs.to_string(), "attention+separate_norms+expert_activations");
        for text in ["", "full:", "full:0", "full:-1", "full:x", "norms+", "everything"] {
            text.parse::<Recompute>().unwrap_err();
        }
    }
}
