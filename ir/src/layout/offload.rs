//! What lies in the host's memory, in place of the device's.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::zero::ZeroStage;
use crate::graph::Recompute;
use crate::schedule::{ScheduleKind, Updates};

/// What lies in the host's memory, in place of the device's.
///
/// # Source
///
/// Ren et al. 2021, *ZeRO-Offload* (arXiv 2101.06840): optimizer state, with the update on the host.
/// Rajbhandari et al. 2021, *ZeRO-Infinity* (arXiv 2104.07857): parameters, and activations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offload {
    /// Master weights, moments and reduced gradients: the host updates.
    pub optimizer: bool,
    /// The shards of parameters, which are copied to the device before they are gathered.
    pub parameters: bool,
    /// What is kept from forward to backward, where that is the inputs of blocks alone.
    pub activations: bool,
}

impl Offload {
    /// Nothing.
    pub const NONE: Self = Self { optimizer: false, parameters: false, activations: false };

    /// Every choice of something.
    pub fn all() -> impl Iterator<Item = Self> {
        (1..8u8).map(|bits| Self {
            optimizer: bits & 1 != 0,
            parameters: bits & 2 != 0,
            activations: bits & 4 != 0,
        })
    }

    /// Whether anything is.
    pub fn is_some(self) -> bool {
        self != Self::NONE
    }

    /// Each part with its name, and whether it is on the host.
    const fn parts(self) -> [(&'static str, bool); 3] {
        [
            ("optimizer", self.optimizer),
            ("parameters", self.parameters),
            ("activations", self.activations),
        ]
    }

    /// Whether parameters that are sharded so can be.
    pub fn takes_zero(self, zero_stage: ZeroStage) -> bool {
        !self.parameters || self.optimizer && zero_stage == ZeroStage::Parameters
    }

    /// Whether what is kept of blocks so can be.
    pub fn takes_recompute(self, recompute: Recompute) -> bool {
        !self.activations || recompute == Recompute::Full
    }

    /// Whether a schedule brings activations back once, and updates once a step.
    pub fn takes_schedule(self, schedule: ScheduleKind) -> bool {
        let updates_once = schedule.updates() == Updates::AfterFlush;
        let has_copies = schedule.placement().num_copies() > 1;
        (!self.activations || !schedule.splits_backward())
            && (!self.optimizer || updates_once && !has_copies)
    }
}

impl fmt::Display for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.parts().into_iter().filter(|(_, is_there)| *is_there);
        let names: Vec<&str> = named.map(|(name, _)| name).collect();
        f.pad(&if names.is_empty() { "none".to_owned() } else { names.join(",") })
    }
}

/// A text that names nothing that can be offloaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{part}` is not one of optimizer, parameters, activations, or none alone\n\
     hint: several have commas between them, as in `optimizer,parameters`"
)]
pub struct ParseOffloadError {
    part: String,
}

impl FromStr for Offload {
    type Err = ParseOffloadError;

    fn from_str(text: &str) -> Result<Self, ParseOffloadError> {
        let mut offload = Self::NONE;
        if text == "none" {
            return Ok(offload);
        }
        for part in text.split(',') {
            match part.trim() {
                "optimizer" => offload.optimizer = true,
                "parameters" => offload.parameters = true,
                "activations" => offload.activations = true,
                other => return Err(ParseOffloadError { part: other.to_owned() }),
            }
        }
        Ok(offload)
    }
}

impl Serialize for Offload {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Offload {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Offload {
    fn schema_name() -> Cow<'static, str> {
        "Offload".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "pattern": "^(none|(optimizer|parameters|activations)(,(optimizer|parameters|activations))*)$"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        for text in ["none", "optimizer", "optimizer,parameters", "activations"] {
            assert_eq!(text.parse::<Offload>().unwrap().to_string(), text);
        }
        let offload: Offload = "activations, optimizer".parse().unwrap();
        assert_eq!(offload.to_string(), "optimizer,activations");
        for text in ["", "all", "optimizer,none", "optimizer+parameters"] {
            text.parse::<Offload>().unwrap_err();
        }
    }
}
