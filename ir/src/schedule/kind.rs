//! Families of pipeline schedules, by name.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{StagePlacement, Updates, UserSchedule, read_csv};

/// Declares [`ScheduleKind`] with its families: the name of each on the command line and in JSON, and its description.
macro_rules! families {
    ($($(#[$doc:meta])+ $family:ident = $name:literal, $description:literal;)+) => {
        /// A family of pipeline schedules.
        ///
        /// In JSON, a family is its name, and a schedule of the user's own is the rows of its CSV, one line per rank.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub enum ScheduleKind {
            $($(#[$doc])+ #[cfg_attr(feature = "schema", schemars(rename = $name))] $family,)+
            /// One of the user's own, read from PyTorch's CSV.
            #[cfg_attr(feature = "schema", schemars(skip))]
            Given(UserSchedule),
        }

        /// The names of all families but the user's own.
        const NAMES: &[&str] = &[$($name),+];

        impl ScheduleKind {
            /// All families but the user's own, plainest first.
            pub const ALL: [Self; NAMES.len()] = [$(Self::$family),+];

            /// The name on the command line and in JSON.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$family => $name,)+
                    Self::Given(_) => "given",
                }
            }

            /// Description of the family, in one line.
            pub const fn description(self) -> &'static str {
                match self {
                    $(Self::$family => $description,)+
                    Self::Given(_) => "one of your own, from PyTorch's CSV",
                }
            }
        }
    };
}

families! {
    /// Naive model parallelism: one micro-batch at a time.
    Sequential = "sequential", "one micro-batch at a time: no two stages ever work together";
    /// All forwards, then all backwards (Huang et al. 2019, arXiv 1811.06965).
    GPipe = "gpipe", "all forwards, then all backwards; keeps every micro-batch";
    /// One forward, one backward; a stage keeps at most one micro-batch more than stages follow it
    /// (PipeDream-Flush of Narayanan et al. 2020, arXiv 2006.09503).
    OneFOneB = "1f1b", "one forward, one backward; keeps as many micro-batches as stages";
    /// 1F1B over several stages of each rank (Narayanan et al. 2021, arXiv 2104.04473).
    Interleaved = "interleaved-1f1b", "1F1B over several stages a rank; bubble over v, more messages";
    /// All micro-batches through one stage of a rank before its next stage (Lamy-Poirier 2022, arXiv 2211.05953).
    LoopedBfs = "looped-bfs", "all micro-batches through a stage of each rank, then the next";
    /// Weight gradients fill the drain, within 1F1B's memory (Qi et al. 2023, arXiv 2401.10241).
    ZbH1 = "zb-h1", "weight gradients fill the drain; memory of 1F1B";
    /// Weight gradients fill warm-up and drain, within twice 1F1B's memory (Qi et al. 2023).
    ZbH2 = "zb-h2", "weight gradients fill warm-up and drain; twice the memory of 1F1B";
    /// ZB-H1 over several stages of each rank (PyTorch).
    InterleavedZb = "interleaved-zb", "zb-h1 over several stages a rank";
    /// Zero bubble with two stages per rank; stages go down the ranks and up again (Qi et al. 2023, section 6).
    Zbv = "zbv", "no bubble at equal costs in the memory of 1F1B; two stages a rank";
    /// As ZBV, with about half of 1F1B's activations (Qi et al. 2024, arXiv 2405.15362).
    VHalf = "v-half", "two stages a rank, half the memory of 1F1B, little bubble";
    /// As ZBV, with about a third of 1F1B's activations (Qi et al. 2024).
    VMin = "v-min", "two stages a rank, a third of the memory of 1F1B";
    /// Micro-batches from both ends, over two copies of the parameters (DeepSeek-AI 2024, arXiv
    /// 2412.19437).
    DualPipe = "dualpipe", "both directions at once, overlapped; two copies of the parameters";
    /// `DualPipe` folded in half: one copy of the parameters, two stages a rank.
    DualPipeV = "dualpipev", "dualpipe folded in half: one copy, two stages a rank";
    /// 1F1B that updates after each micro-batch and keeps the weights that its forwards used
    /// (Harlap et al. 2018, `PipeDream`, arXiv 1806.03377).
    AsyncOneFOneB = "async-1f1b", "1F1B without a flush; updates each micro-batch, stashes weights";
}

impl ScheduleKind {
    /// True if a search tries the family by default. Excluded are families with overlapped passes, because no bound
    /// knows the exchanges that these hide; the family with stale gradients; and the one in which no two ranks ever
    /// work at the same time.
    pub const fn is_searched(self) -> bool {
        !matches!(
            self,
            Self::Sequential
                | Self::DualPipe
                | Self::DualPipeV
                | Self::AsyncOneFOneB
                | Self::Given(_)
        )
    }

    /// True if each rank may have any number of stages.
    pub const fn is_interleaved(self) -> bool {
        matches!(self, Self::Interleaved | Self::LoopedBfs | Self::InterleavedZb)
    }

    /// True if each rank has two stages, one on the way down the ranks and one on the way up.
    pub const fn is_v_shaped(self) -> bool {
        match self {
            Self::Zbv | Self::VHalf | Self::VMin | Self::DualPipeV => true,
            Self::Given(given) => given.is_v_shaped(),
            _ => false,
        }
    }

    /// Default number of stages per rank: 2 for families with several stages, else 1.
    pub const fn default_virtual_stages(self) -> u32 {
        match self {
            Self::Given(given) => given.virtual_stages(),
            _ if self.is_interleaved() || self.is_v_shaped() => 2,
            _ => 1,
        }
    }

    /// Placement of stages on ranks.
    pub const fn placement(self) -> StagePlacement {
        match self {
            Self::DualPipe => StagePlacement::Bidirectional,
            _ if self.is_v_shaped() => StagePlacement::V,
            _ => StagePlacement::Loop,
        }
    }

    /// Number of stages that each rank holds with `virtual_stages`: twice `virtual_stages` where each stage is on two
    /// ranks.
    pub fn stages_per_rank(self, virtual_stages: u32) -> u32 {
        self.placement().num_copies() * virtual_stages
    }

    /// Time of parameter updates.
    pub const fn updates(self) -> Updates {
        match self {
            Self::AsyncOneFOneB => Updates::AfterEachMicroBatch,
            _ => Updates::AfterFlush,
        }
    }

    /// True if forwards are overlapped with backwards of other micro-batches.
    pub const fn overlaps_passes(self) -> bool {
        match self {
            Self::DualPipe | Self::DualPipeV => true,
            Self::Given(given) => given.overlaps_passes(),
            _ => false,
        }
    }

    /// Period of the steady state on `p` ranks, in micro-batches: each further period lengthens each rank's list by
    /// one cycle of actions. `None` where all forwards come first or where the period is unknown.
    pub const fn cycle(self, p: u32) -> Option<u32> {
        match self {
            Self::Sequential | Self::OneFOneB | Self::ZbH1 | Self::ZbH2 => Some(1),
            Self::Interleaved | Self::InterleavedZb => Some(p),
            Self::Zbv | Self::DualPipeV => Some(1),
            Self::DualPipe => Some(2),
            Self::VHalf | Self::VMin => None,
            Self::GPipe | Self::LoopedBfs | Self::AsyncOneFOneB | Self::Given(_) => None,
        }
    }

    /// True if gradients of activations and of parameters are computed in separate passes, at least sometimes.
    pub const fn splits_backward(self) -> bool {
        match self {
            Self::ZbH1 | Self::ZbH2 | Self::InterleavedZb => true,
            Self::Zbv | Self::VHalf | Self::VMin | Self::DualPipe | Self::DualPipeV => true,
            Self::Sequential | Self::GPipe | Self::OneFOneB | Self::Interleaved => false,
            Self::LoopedBfs | Self::AsyncOneFOneB => false,
            Self::Given(given) => given.splits_backward(),
        }
    }

    /// Lower bound on a rank's peak number of micro-batches in flight, of `m` over `p` ranks, for any number of
    /// stages. A micro-batch counts if the rank holds its activations for all of the rank's stages.
    ///
    /// In interleaved schedules, when the first micro-batch comes back, a rank has put `p` micro-batches through each
    /// of its stages except the last. Through the last stage it has put its warm-up micro-batches by Narayanan et al.
    /// 2021 (arXiv 2104.04473).
    pub fn least_in_flight(self, rank: u32, p: u32, m: u32) -> u32 {
        let least = match self {
            Self::GPipe | Self::LoopedBfs => m,
            Self::OneFOneB | Self::AsyncOneFOneB => p - rank,
            Self::Interleaved => p.min(2 * (p - 1 - rank) + 1),
            Self::ZbH1 => p - rank,
            Self::ZbH2 => p - rank,
            _ => 1,
        };
        least.min(m)
    }

    /// Lower bound on the number of micro-batches whose activations a rank holds for the `nth` of its `v` stages when
    /// its first backward begins; zero where unknown.
    pub fn in_flight_at_first_backward(self, [rank, p, v, m]: [u32; 4], nth: u32) -> u32 {
        match self {
            Self::Interleaved => {
                // Forwards cycle through the stages, `p` micro-batches at a time.
                let forwards = (2 * (p - 1 - rank) + (v - 1) * p + 1).min(m * v);
                let (rounds, rest) = (forwards / (p * v), forwards % (p * v));
                rounds * p + rest.saturating_sub(nth * p).min(p)
            }
            Self::GPipe | Self::LoopedBfs => m,
            Self::OneFOneB | Self::AsyncOneFOneB | Self::ZbH1 | Self::ZbH2 => (p - rank).min(m),
            _ => 0,
        }
    }

    /// True if a rank's memory peaks when its first backward begins, as counted by
    /// [`Self::in_flight_at_first_backward`]: for schedules with all forwards first, or with one stage per rank.
    pub const fn keeps_most_at_first_backward(self) -> bool {
        matches!(self, Self::GPipe | Self::LoopedBfs | Self::OneFOneB | Self::AsyncOneFOneB)
    }

    /// Number of micro-batches, at most `m`, with the same peaks as `m`: whole cycles beyond `3 p` are left out.
    pub fn fill_up(self, p: u32, m: u32) -> u32 {
        let beyond = m.saturating_sub(3 * p);
        self.cycle(p).map_or(m, |period| m - beyond / period * period)
    }

    /// Peak number of micro-batches whose activations the rank holds; each micro-batch counts once for each of the
    /// rank's stages.
    ///
    /// Exact for GPipe, 1F1B, its interleaved form, looped BFS, ZB-H1 and ZB-H2 where micro-batches divide by ranks; an
    /// upper bound for the other families.
    ///
    /// # Source
    ///
    /// 1F1B: Narayanan et al. 2021, section 2.2.1. Interleaved: Korthikanti et al. 2022 (arXiv 2205.05198), section
    /// 4.2.3: `p v + p - 1` on the first rank. Zero bubble: Qi et al. 2023, table 2: `p` and `2 p - 1`. V shapes: Qi et
    /// al. 2024, table 1, in micro-batches of two stages each. `DualPipe`: DeepSeek-AI 2024, table 2: `p + 1`.
    pub fn peak_in_flight(self, rank: u64, p: u64, v: u64, m: u64) -> u64 {
        let all = m * v;
        match self {
            Self::Sequential => 1,
            Self::GPipe | Self::LoopedBfs => all,
            Self::OneFOneB | Self::AsyncOneFOneB => (p - rank).min(m),
            Self::Interleaved => (2 * (p - 1 - rank) + (v - 1) * p + 1).min(all),
            Self::ZbH1 => p.min(m),
            Self::ZbH2 => (2 * p - 1).min(m),
            Self::InterleavedZb => all,
            Self::Zbv => (2 * p).min(all),
            Self::VHalf => (2 * (p / 2 + 1)).min(all),
            Self::VMin => (2 * ((p + 4) / 3)).min(all),
            Self::DualPipe => (p + 1).min(all),
            Self::DualPipeV => (2 * p + 1).min(all),
            Self::Given(_) => all,
        }
    }
}

impl fmt::Display for ScheduleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for ScheduleKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Given(given) => serializer.serialize_str(given.rows()),
            family => serializer.serialize_str(family.name()),
        }
    }
}

impl<'de> Deserialize<'de> for ScheduleKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.contains('\n') {
            let schedule = read_csv(&text).map_err(D::Error::custom)?;
            return UserSchedule::new(&schedule).map(Self::Given).map_err(D::Error::custom);
        }
        text.parse().map_err(|_| D::Error::unknown_variant(&text, NAMES))
    }
}

/// An unknown name of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown schedule `{name}`; known: {}", NAMES.join(", "))]
pub struct UnknownSchedule {
    /// The unknown name.
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
