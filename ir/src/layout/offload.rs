//! Offload of model states and activations to the host's memory.

use std::fmt;
use std::mem;
use std::num::NonZeroU32;
use std::str::FromStr;

use super::zero::ZeroStage;
use crate::graph::OffloadModules;
use crate::schedule::{ScheduleKind, Updates};

/// Model states and activations that are in the host's memory instead of the device's.
///
/// # Source
///
/// Ren et al. 2021, *ZeRO-Offload* (arXiv 2101.06840): optimizer state, with the update on the host.
/// Rajbhandari et al. 2021, *ZeRO-Infinity* (arXiv 2104.07857): parameters, and activations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offload {
    /// Master weights, moments and reduced gradients; the host runs the update.
    pub optimizer: bool,
    /// Shards of the parameters, which are copied to the device before they are gathered.
    pub parameters: bool,
    /// Activations that blocks save from forward to backward.
    pub activations: OffloadedActivations,
}

/// Blocks whose saved activations are on the host; with full recompute these activations are only the inputs of
/// blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OffloadedActivations {
    /// No blocks.
    #[default]
    None,
    /// All blocks.
    AllBlocks,
    /// This number of blocks per stage (Megatron-Core's `--cpu-offloading-num-layers`).
    Blocks(NonZeroU32),
    /// All blocks, but only the tensors that these modules save (Megatron-Core's
    /// `--fine-grained-activation-offloading`).
    Modules(OffloadModules),
}

impl OffloadedActivations {
    const fn of_all(blocks: bool) -> Self {
        if blocks { Self::AllBlocks } else { Self::None }
    }

    /// True if activations of any block are offloaded.
    pub fn is_some(self) -> bool {
        self != Self::None
    }

    /// The modules whose saved tensors are offloaded, for [`Self::Modules`].
    pub const fn modules(self) -> Option<OffloadModules> {
        match self {
            Self::Modules(modules) => Some(modules),
            _ => None,
        }
    }

    /// Number of blocks with offloaded activations, of `num_blocks` blocks in `num_stages` stages.
    pub fn of_blocks(self, num_blocks: u32, num_stages: u32) -> u32 {
        match self {
            Self::None => 0,
            Self::AllBlocks | Self::Modules(_) => num_blocks,
            Self::Blocks(each) => num_blocks.min(each.get().saturating_mul(num_stages)),
        }
    }
}

impl Offload {
    /// No offload.
    pub const NONE: Self =
        Self { optimizer: false, parameters: false, activations: OffloadedActivations::None };

    /// Every combination of offloads, with activations of all blocks.
    pub fn all() -> impl Iterator<Item = Self> {
        (1..8u8).map(|bits| Self {
            optimizer: bits & 1 != 0,
            parameters: bits & 2 != 0,
            activations: OffloadedActivations::of_all(bits & 4 != 0),
        })
    }

    /// The offload with all activations of all blocks, where only some are offloaded.
    #[must_use]
    pub fn of_all_blocks(self) -> Self {
        let is_some = self.activations.is_some();
        Self { activations: OffloadedActivations::of_all(is_some), ..self }
    }

    /// True if anything is offloaded.
    pub fn is_some(self) -> bool {
        self != Self::NONE
    }

    /// True unless parameters are offloaded without ZeRO-3 or without the optimizer.
    pub fn works_with_zero(self, zero_stage: ZeroStage) -> bool {
        !self.parameters || self.optimizer && zero_stage == ZeroStage::Parameters
    }

    /// True if the schedule supports the offload: activations need full backwards, the optimizer needs one update per
    /// stage.
    pub fn works_with_schedule(self, schedule: ScheduleKind) -> bool {
        let updates_once = schedule.updates() == Updates::AfterFlush;
        let has_copies = schedule.placement().num_copies() > 1;
        (!self.activations.is_some() || !schedule.splits_backward())
            && (!self.optimizer || updates_once && !has_copies)
    }
}

impl fmt::Display for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let activations = match self.activations {
            OffloadedActivations::None => None,
            OffloadedActivations::AllBlocks => Some("activations".to_owned()),
            OffloadedActivations::Blocks(each) => Some(format!("activations:{each}")),
            OffloadedActivations::Modules(modules) => Some(format!("activations:{modules}")),
        };
        let named = |is_there: bool, name: &str| is_there.then(|| name.to_owned());
        let (optimizer, parameters) =
            (named(self.optimizer, "optimizer"), named(self.parameters, "parameters"));
        let names: Vec<String> =
            [optimizer, parameters, activations].into_iter().flatten().collect();
        f.pad(&if names.is_empty() { "none".to_owned() } else { names.join(",") })
    }
}

/// A text that does not name states or activations to offload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseOffloadError {
    /// A part that cannot be offloaded.
    #[error(
        "`{part}` is not one of optimizer, parameters, activations, or none alone\n\
         hint: several have commas between them, as in `optimizer,parameters`; `activations:20` are those of 20 blocks \
         of each stage, `activations:attention+attention_output` those of modules: {}",
        OffloadModules::known()
    )]
    Unknown {
        /// The part.
        part: String,
    },
    /// A part that is named twice.
    #[error("`{part}` is named a second time")]
    Twice {
        /// The part, as it is named then.
        part: String,
    },
}

/// The activations that a part of a text names.
fn activations(part: &str) -> Option<OffloadedActivations> {
    if part == "activations" {
        return Some(OffloadedActivations::AllBlocks);
    }
    let some = part.strip_prefix("activations:")?;
    let blocks = some.parse().ok().map(OffloadedActivations::Blocks);
    let modules = OffloadModules::named(some.split('+')).ok();
    blocks.or_else(|| modules.map(OffloadedActivations::Modules))
}

impl FromStr for Offload {
    type Err = ParseOffloadError;

    fn from_str(text: &str) -> Result<Self, ParseOffloadError> {
        let mut offload = Self::NONE;
        if text == "none" {
            return Ok(offload);
        }
        for part in text.split(',').map(str::trim) {
            let is_first = match part {
                "optimizer" => !mem::replace(&mut offload.optimizer, true),
                "parameters" => !mem::replace(&mut offload.parameters, true),
                _ => {
                    let activations = activations(part)
                        .ok_or_else(|| ParseOffloadError::Unknown { part: part.to_owned() })?;
                    mem::replace(&mut offload.activations, activations)
                        == OffloadedActivations::None
                }
            };
            if !is_first {
                return Err(ParseOffloadError::Twice { part: part.to_owned() });
            }
        }
        Ok(offload)
    }
}

text_in_json!(Offload);

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Offload {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Offload".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "pattern": "^(none|(optimizer|parameters|activations(:[1-9][0-9]*|:[a-z_1+]+)?)\
                (,(optimizer|parameters|activations(:[1-9][0-9]*|:[a-z_1+]+)?))*)$"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        for text in [
            "none",
            "optimizer",
            "optimizer,parameters",
            "activations",
            "optimizer,activations:20",
            "activations:attention+attention_output",
        ] {
            assert_eq!(text.parse::<Offload>().unwrap().to_string(), text);
        }
        let offload: Offload = "activations, optimizer".parse().unwrap();
        assert_eq!(offload.to_string(), "optimizer,activations");
        let theirs: Offload = "activations:moe_act+core_attn".parse().unwrap();
        assert_eq!(theirs.to_string(), "activations:attention+expert_activations");
        for text in [
            "",
            "all",
            "activations:",
            "activations:norms",
            "optimizer,none",
            "optimizer+parameters",
            "activations:0",
            "optimizer:2",
        ] {
            text.parse::<Offload>().unwrap_err();
        }
    }
}
