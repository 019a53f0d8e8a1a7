//! What of model states a framework shards over replicas, and beside what.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::graph::Sharding;
use crate::layout::ZeroStage;

/// A stage of ZeRO, and beside what it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ZeroAbility {
    /// Which.
    pub stage: ZeroStage,
    /// Whether with pipelines.
    pub pipelines: WithPipelines,
    /// Over which of the replicas states are sharded.
    pub shards: ShardGroups,
    /// What it does not run beside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub never_beside: Vec<NeverBeside>,
}

/// What a stage of ZeRO may not run beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NeverBeside {
    /// Tensor parallelism.
    Tensor,
    /// Context parallelism.
    Context,
    /// Experts on several ranks.
    SpreadExperts,
    /// Gradients that are added up and reduced in 16 bits.
    #[serde(rename = "16-bit-gradients")]
    Gradients16,
    /// Gradients that are added up and reduced in fp32, where weights are in 16 bits.
    #[serde(rename = "fp32-gradients")]
    Gradients32,
}

impl NeverBeside {
    /// Whether a layout that is sharded so has it.
    const fn is_of(self, sharding: &Sharding) -> bool {
        match self {
            Self::Tensor => sharding.tensor_parallel > 1,
            Self::Context => sharding.context_parallel > 1,
            Self::SpreadExperts => sharding.expert_parallel > 1,
            Self::Gradients16 | Self::Gradients32 => false,
        }
    }

    /// What it is, in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Tensor => "tensor parallelism",
            Self::Context => "context parallelism",
            Self::SpreadExperts => "experts on several ranks",
            Self::Gradients16 => "gradients in 16 bits (`--fp32-gradients` is what it has)",
            Self::Gradients32 => "gradients in fp32 (it has them in 16 bits)",
        }
    }
}

impl ZeroAbility {
    /// What of a layout it does not run beside, and of the format of gradients ([`Training::gradients`]); nothing
    /// where it runs.
    ///
    /// [`Training::gradients`]: crate::plan::Training::gradients
    pub fn beside<'a>(
        &'a self,
        sharding: &'a Sharding,
        gradients: Option<NeverBeside>,
    ) -> impl Iterator<Item = NeverBeside> + 'a {
        let all = self.never_beside.iter().copied();
        all.filter(move |it| it.is_of(sharding) || Some(*it) == gradients)
    }
}

/// Whether beside pipelines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WithPipelines {
    /// With pipelines or without.
    Any,
    /// Without pipelines alone.
    None,
}

/// Over which replicas model states are sharded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ShardGroups {
    /// Over all of them.
    All,
    /// Over all, or groups of some (hybrid sharding).
    Any,
    /// The same, with all ranks that share a sequence in one group.
    WholeContexts,
}

impl ShardGroups {
    /// Whether states are sharded over so many of the replicas, of which so many share a sequence.
    pub const fn takes(self, shards: u32, replicas: u32, context_parallel: u32) -> bool {
        shards == replicas
            || match self {
                Self::All => false,
                Self::Any => true,
                Self::WholeContexts => shards.is_multiple_of(context_parallel),
            }
    }
}
