//! Model states that ZeRO shards.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Model states that are sharded over data-parallel ranks (Rajbhandari et al. 2020, arXiv 1910.02054).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ZeroStage {
    /// Nothing is sharded: every rank holds all states.
    #[default]
    None,
    /// Optimizer state.
    OptimizerState,
    /// Optimizer state and gradients.
    Gradients,
    /// Optimizer state, gradients and parameters (FSDP).
    Parameters,
}

impl ZeroStage {
    /// All stages, 0 to 3.
    pub const ALL: [Self; 4] =
        [Self::None, Self::OptimizerState, Self::Gradients, Self::Parameters];

    /// The stage that a name of data parallelism implies: `fsdp` or `ddp`.
    pub(super) fn of_replicas(name: &str) -> Option<Self> {
        match name {
            "fsdp" => Some(Self::Parameters),
            "ddp" => Some(Self::None),
            _ => None,
        }
    }

    /// Number of the stage, 0 to 3.
    pub const fn number(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for ZeroStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number().fmt(f)
    }
}

impl TryFrom<u8> for ZeroStage {
    type Error = String;

    fn try_from(number: u8) -> Result<Self, String> {
        Self::ALL
            .get(usize::from(number))
            .copied()
            .ok_or_else(|| format!("`zero_stage` is 0, 1, 2 or 3, not {number}"))
    }
}

impl Serialize for ZeroStage {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(self.number())
    }
}

impl<'de> Deserialize<'de> for ZeroStage {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(u8::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for ZeroStage {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ZeroStage".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "integer", "minimum": 0, "maximum": 3 })
    }
}
