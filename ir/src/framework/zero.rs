//! Model states that a framework shards over replicas.

use serde::{Deserialize, Serialize};

use crate::layout::ZeroStage;

/// A stage of ZeRO that a framework has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ZeroAbility {
    /// The ZeRO stage.
    pub stage: ZeroStage,
    /// Groups of replicas over which model states are sharded.
    pub shards: ShardGroups,
}

choices! {
    /// Groups of replicas over which model states are sharded.
    pub enum ShardGroups {
        /// All replicas.
        All,
        /// All replicas, or groups of some of them (hybrid sharding).
        Any,
        /// As `any`, with all ranks that share a sequence in one group.
        WholeContexts,
    }
}

impl ShardGroups {
    /// Returns whether states can be sharded over `shards` ranks; `context_parallel` ranks hold one sequence.
    pub const fn supports(self, shards: u32, replicas: u32, context_parallel: u32) -> bool {
        shards == replicas
            || match self {
                Self::All => false,
                Self::Any => true,
                Self::WholeContexts => shards.is_multiple_of(context_parallel),
            }
    }
}
