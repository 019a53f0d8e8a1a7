//! Families of pipeline schedules, by name.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A family of pipeline schedules.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum ScheduleKind {
    /// All forwards, then all backwards (Huang et al. 2019, arXiv 1811.06965).
    #[serde(rename = "gpipe")]
    GPipe,
    /// One forward, one backward; a stage keeps no more micro-batches than stages follow it
    /// (Narayanan et al. 2019, PipeDream-Flush).
    #[serde(rename = "1f1b")]
    OneFOneB,
    /// 1F1B over several chunks of each rank (Narayanan et al. 2021, arXiv 2104.04473).
    #[serde(rename = "interleaved-1f1b")]
    Interleaved,
    /// All micro-batches through a chunk before the next chunk (Lamy-Poirier 2022, arXiv
    /// 2211.05953).
    #[serde(rename = "looped-bfs")]
    LoopedBfs,
    /// Weight gradients fill the drain, within 1F1B's memory (Qi et al. 2023, arXiv 2401.10241).
    #[serde(rename = "zb-h1")]
    ZbH1,
    /// Weight gradients fill warm-up and drain, within twice 1F1B's memory (Qi et al. 2023).
    #[serde(rename = "zb-h2")]
    ZbH2,
}

impl ScheduleKind {
    /// All families, plainest first.
    pub const ALL: [Self; 6] =
        [Self::OneFOneB, Self::Interleaved, Self::ZbH1, Self::ZbH2, Self::LoopedBfs, Self::GPipe];

    /// The name on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::GPipe => "gpipe",
            Self::OneFOneB => "1f1b",
            Self::Interleaved => "interleaved-1f1b",
            Self::LoopedBfs => "looped-bfs",
            Self::ZbH1 => "zb-h1",
            Self::ZbH2 => "zb-h2",
        }
    }

    /// What it does, in a line.
    pub const fn description(self) -> &'static str {
        match self {
            Self::GPipe => "all forwards, then all backwards; keeps every micro-batch",
            Self::OneFOneB => "one forward, one backward; keeps as many micro-batches as stages",
            Self::Interleaved => "1F1B over several chunks a rank; bubble over v, more messages",
            Self::LoopedBfs => "all micro-batches through a chunk, then the next chunk",
            Self::ZbH1 => "weight gradients fill the drain; memory of 1F1B",
            Self::ZbH2 => "weight gradients fill warm-up and drain; twice the memory of 1F1B",
        }
    }

    /// Whether each rank has several chunks.
    pub const fn is_interleaved(self) -> bool {
        matches!(self, Self::Interleaved | Self::LoopedBfs)
    }

    /// Whether gradients of activations and of parameters are computed apart.
    pub const fn splits_backward(self) -> bool {
        matches!(self, Self::ZbH1 | Self::ZbH2)
    }

    /// Micro-batches whose activations the rank holds at its peak, in chunks: each of the rank's
    /// chunks of each micro-batch counts one.
    ///
    /// # Source
    ///
    /// 1F1B: Narayanan et al. 2021, section 2.2.1. Interleaved: Korthikanti et al. 2022 (arXiv
    /// 2205.05198), section 4.2.3: `p v + p - 1` on the first rank. Zero bubble: Qi et al. 2023,
    /// table 2: `p` and `2 p - 1`.
    pub fn peak_chunks_in_flight(self, rank: u64, p: u64, v: u64, m: u64) -> u64 {
        let all = m * v;
        match self {
            Self::GPipe | Self::LoopedBfs => all,
            Self::OneFOneB => (p - rank).min(m),
            Self::Interleaved => (2 * (p - 1 - rank) + (v - 1) * p + 1).min(all),
            Self::ZbH1 => p.min(m),
            Self::ZbH2 => (2 * (p - rank)).saturating_sub(1).max(1).min(m),
        }
    }
}

impl fmt::Display for ScheduleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A schedule that is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown schedule `{name}`; known: {}", ScheduleKind::ALL.map(ScheduleKind::name).join(", "))]
pub struct UnknownSchedule {
    /// The name that is not known.
    pub name: String,
}

impl FromStr for ScheduleKind {
    type Err = UnknownSchedule;

    fn from_str(name: &str) -> Result<Self, UnknownSchedule> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| UnknownSchedule { name: name.to_owned() })
    }
}
