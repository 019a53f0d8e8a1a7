//! Methods by which data-parallel replicas keep their weights in agreement, and compression of their gradients.

use std::fmt;
use std::str::FromStr;

use crate::graph::QUANTISED_BLOCK;
use crate::layout::{Choice, LayoutError, LayoutSpec, Offload, PartialLayout, ZeroStage};
use crate::schedule::{ScheduleKind, Updates};

/// Methods by which replicas keep their weights in agreement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DataParallelMethod {
    /// Gradients are reduced over all replicas; each replica then makes the same update, or updates its shard (DDP,
    /// ZeRO, FSDP).
    #[default]
    AllReduce,
    /// One replica gathers the gradients of all, updates the weights, and broadcasts them: PyTorch's `DataParallel`.
    ParameterServer,
    /// Each replica updates its weights with its own gradients, and then averages them with those of its two
    /// neighbours on a ring.
    ///
    /// # Source
    ///
    /// Lian et al. 2017, *Can Decentralized Algorithms Outperform Centralized Algorithms?* (arXiv
    /// 1705.09056), algorithm 1.
    RingAveraging,
    /// One replica holds the weights. Each replica updates them whenever it has gradients, without waiting for others;
    /// between the time when it took the weights and its update, other replicas make at most `staleness` updates.
    ///
    /// # Source
    ///
    /// Dean et al. 2012, *Large Scale Distributed Deep Networks* (Downpour SGD); bounded as in Ho et al.
    /// 2013, *More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server*.
    Asynchronous {
        /// Largest number of updates by others between the time when a replica takes weights and the time when its
        /// gradients are applied.
        staleness: u32,
    },
}

/// The default staleness.
const USUAL_STALENESS: u32 = 4;

/// The largest staleness: gradients that are this many updates old carry no information about the current weights.
const LARGEST_STALENESS: u32 = 1 << 20;

impl DataParallelMethod {
    /// True if all replicas have the same weights at the start of each step.
    pub const fn is_synchronous(self) -> bool {
        matches!(self, Self::AllReduce | Self::ParameterServer)
    }
}

impl fmt::Display for DataParallelMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllReduce => f.pad("all-reduce"),
            Self::ParameterServer => f.pad("parameter-server"),
            Self::RingAveraging => f.pad("ring-averaging"),
            Self::Asynchronous { staleness } => f.pad(&format!("asynchronous:{staleness}")),
        }
    }
}

/// Error of a method, compression or straggler in text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplicationError {
    /// An unknown method.
    #[error(
        "`{0}` is no data-parallel method\nhint: all-reduce, parameter-server, ring-averaging, asynchronous or asynchronous:S"
    )]
    UnknownMethod(String),
    /// A staleness out of range.
    #[error(
        "the staleness `{0}` must be a whole number from 0 to {LARGEST_STALENESS}\nhint: asynchronous:4"
    )]
    Staleness(String),
    /// An unknown compression.
    #[error(
        "`{0}` is no gradient compression\nhint: top-k:SHARE, random-k:SHARE, int8, int4 or sign"
    )]
    UnknownCompression(String),
    /// A share out of range.
    #[error(
        "the share `{0}` of gradients that are sent must be above 0 and at most 1\nhint: top-k:0.01"
    )]
    Share(String),
    /// A straggler with an invalid rank or factor.
    #[error("must be a rank and a factor from 1 to 1000, such as 1:4, not `{0}`")]
    Straggler(String),
}

impl FromStr for DataParallelMethod {
    type Err = ReplicationError;

    fn from_str(text: &str) -> Result<Self, ReplicationError> {
        let (name, staleness) = match text.split_once(':') {
            Some((name, staleness)) => (name, Some(staleness)),
            None => (text, None),
        };
        match (name, staleness) {
            ("all-reduce", None) => Ok(Self::AllReduce),
            ("parameter-server", None) => Ok(Self::ParameterServer),
            ("ring-averaging", None) => Ok(Self::RingAveraging),
            ("asynchronous", None) => Ok(Self::Asynchronous { staleness: USUAL_STALENESS }),
            ("asynchronous", Some(given)) => {
                let staleness = given.parse().ok().filter(|it| *it <= LARGEST_STALENESS);
                let staleness =
                    staleness.ok_or_else(|| ReplicationError::Staleness(given.to_owned()))?;
                Ok(Self::Asynchronous { staleness })
            }
            _ => Err(ReplicationError::UnknownMethod(text.to_owned())),
        }
    }
}

text_in_json!(DataParallelMethod);

/// Form in which replicas send their gradients. The part of a gradient that this form leaves out is added to the
/// replica's next gradient (error feedback).
///
/// # Source
///
/// Seide et al. 2014, *1-Bit Stochastic Gradient Descent*, for error feedback; Lin et al. 2017, *Deep Gradient
/// Compression* (arXiv 1712.01887), and Stich et al. 2018, *Sparsified SGD with Memory* (arXiv 1809.07599),
/// for the largest and for random elements; Karimireddy et al. 2019, *Error Feedback Fixes SignSGD* (arXiv
/// 1901.09847), for signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GradientCompression {
    /// This share of each block's elements: the largest, with their indices.
    TopK(Share),
    /// This share of each block's elements: chosen at random, the same on all replicas.
    RandomK(Share),
    /// Integers of 8 bits, with a scale for each 64 elements.
    Int8,
    /// Integers of 4 bits, with a scale for each 64 elements.
    Int4,
    /// Signs, and for each block the mean magnitude.
    Sign,
}

/// A share above 0 and up to 1, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(u32);

/// Number of millionths in the whole.
const WHOLE: u32 = 1_000_000;

impl Share {
    /// Number of elements that this share has of `count`: at least one.
    pub fn of(self, count: u64) -> u64 {
        let parts = u128::from(count) * u128::from(self.0);
        (parts.div_ceil(WHOLE.into()) as u64).min(count)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (f64::from(self.0) / f64::from(WHOLE)).fmt(f)
    }
}

impl FromStr for Share {
    type Err = ReplicationError;

    fn from_str(text: &str) -> Result<Self, ReplicationError> {
        let share = text.parse().ok().filter(|share: &f64| *share > 0.0 && *share <= 1.0);
        let parts = share.map(|share| (share * f64::from(WHOLE)).round().max(1.0) as u32);
        parts.map(Self).ok_or_else(|| ReplicationError::Share(text.to_owned()))
    }
}

/// Bytes of the index of an element.
const PLACE_BYTES: u64 = 4;

/// Bytes of a scale.
const SCALE_BYTES: u64 = 4;

impl GradientCompression {
    /// Bytes of a compressed gradient of `count` elements of `element` bytes each.
    ///
    /// ```text
    /// top-k      k (e + 4)
    /// random-k   k e
    /// int8       n + 4 ceil(n / 64)
    /// int4       ceil(n / 2) + 4 ceil(n / 64)
    /// sign       ceil(n / 8) + 4
    /// ```
    pub fn bytes(self, count: u64, element: u64) -> u64 {
        if count == 0 {
            return 0;
        }
        let scales = SCALE_BYTES * count.div_ceil(QUANTISED_BLOCK);
        match self {
            Self::TopK(share) => share.of(count) * (element + PLACE_BYTES),
            Self::RandomK(share) => share.of(count) * element,
            Self::Int8 => count + scales,
            Self::Int4 => count.div_ceil(2) + scales,
            Self::Sign => count.div_ceil(8) + SCALE_BYTES,
        }
    }

    /// True if compressed gradients can be summed in transit; otherwise, each replica gathers those of all others.
    pub const fn is_reducible(self) -> bool {
        matches!(self, Self::RandomK(_))
    }
}

impl fmt::Display for GradientCompression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TopK(share) => f.pad(&format!("top-k:{share}")),
            Self::RandomK(share) => f.pad(&format!("random-k:{share}")),
            Self::Int8 => f.pad("int8"),
            Self::Int4 => f.pad("int4"),
            Self::Sign => f.pad("sign"),
        }
    }
}

impl FromStr for GradientCompression {
    type Err = ReplicationError;

    fn from_str(text: &str) -> Result<Self, ReplicationError> {
        match text.split_once(':') {
            Some(("top-k", share)) => Ok(Self::TopK(share.parse()?)),
            Some(("random-k", share)) => Ok(Self::RandomK(share.parse()?)),
            None if text == "int8" => Ok(Self::Int8),
            None if text == "int4" => Ok(Self::Int4),
            None if text == "sign" => Ok(Self::Sign),
            _ => Err(ReplicationError::UnknownCompression(text.to_owned())),
        }
    }
}

text_in_json!(GradientCompression);

/// Method and gradient compression of data parallelism.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replication {
    /// Method by which replicas keep their weights in agreement.
    pub method: DataParallelMethod,
    /// Compression of the gradients that replicas send, if any.
    pub compression: Option<GradientCompression>,
}

/// True if a stage is updated several times per step, or on two ranks.
fn updates_often_or_twice(schedule: ScheduleKind) -> bool {
    let copies = schedule.placement().num_copies();
    schedule.updates() == Updates::AfterEachMicroBatch || copies > 1
}

impl Replication {
    /// Fields of the layout that this replication decides; fields that are left open may have any value.
    fn required(&self) -> PartialLayout {
        let one = Choice::One(1);
        let whole =
            PartialLayout { zero_stage: ZeroStage::None.into(), ..PartialLayout::default() };
        let alone = PartialLayout { context_parallel: one, expert_parallel: one, ..whole };
        match self.method {
            DataParallelMethod::AllReduce if self.compression.is_none() => PartialLayout::default(),
            // Experts have separate replicas, fewer than other layers where experts are distributed.
            DataParallelMethod::AllReduce => PartialLayout { expert_parallel: one, ..whole },
            DataParallelMethod::ParameterServer | DataParallelMethod::RingAveraging => alone,
            // Ranks of one replica would see updates in different orders.
            DataParallelMethod::Asynchronous { .. } => {
                PartialLayout { tensor_parallel: one, pipeline_parallel: one, ..alone }
            }
        }
    }

    /// The unusual setting of the replication, in words.
    fn describe(&self) -> String {
        match self.compression {
            Some(compression) => format!("gradient compression {compression}"),
            None => format!("data-parallel method {}", self.method),
        }
    }

    /// `fixed` together with all fields that the replication decides.
    ///
    /// # Errors
    ///
    /// [`LayoutError::Replication`] where `fixed` has other values for these fields.
    pub fn restricted(&self, fixed: &PartialLayout) -> Result<PartialLayout, LayoutError> {
        let required = self.required();
        let refused = |field, needs: &str, has: String| {
            let (what, needs) = (self.describe(), needs.to_owned());
            Err(LayoutError::Replication { what, field, needs, has })
        };
        let is_usual = required.zero_stage.is_any();
        if let Some(schedule) = fixed.schedule.one()
            && !is_usual
            && updates_often_or_twice(schedule)
        {
            let needs = "that updates each stage once a step, on one rank";
            return refused("schedule", needs, schedule.to_string());
        }
        if let Some(offload) = fixed.offload.one()
            && !is_usual
            && offload.is_some()
        {
            return refused("offload", &Offload::NONE.to_string(), offload.to_string());
        }
        match fixed.contradiction(&required) {
            Some((field, [has, needs])) => refused(field.name, &needs, has),
            None => Ok(fixed.and(&required).unwrap_or(*fixed)),
        }
    }

    /// Checks that replicas of a layout support this replication.
    ///
    /// # Errors
    ///
    /// [`LayoutError::Replication`] with the conflict.
    pub fn check_layout(&self, layout: &LayoutSpec) -> Result<(), LayoutError> {
        self.restricted(&layout.into()).map(|_| ())
    }
}

/// A rank that is slowed down on purpose, to observe the effect on others. Parses as `RANK:FACTOR`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Straggler {
    /// Rank that is slowed down.
    pub rank: u32,
    /// Factor of the time of its passes.
    pub factor: f64,
}

impl FromStr for Straggler {
    type Err = ReplicationError;

    fn from_str(text: &str) -> Result<Self, ReplicationError> {
        let parsed = text.split_once(':').and_then(|(rank, factor)| {
            // Factors above 1000 are treated as mistakes.
            let factor = factor.parse().ok().filter(|factor| (1.0..=1000.0).contains(factor))?;
            Some(Self { rank: rank.parse().ok()?, factor })
        });
        parsed.ok_or_else(|| ReplicationError::Straggler(text.to_owned()))
    }
}

/// The version of the weights that each replica took; it is used to keep staleness within its bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outstanding {
    /// Number of updates so far.
    version: u64,
    /// Replicas with outstanding gradients, each after the version of the weights that it took; the oldest come first.
    taken: Vec<(u64, u32)>,
}

impl Outstanding {
    /// Number of updates so far.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// True if no replica has outstanding gradients.
    pub fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    /// True if a replica may take weights: its gradients will be within `staleness` even if those of all other
    /// replicas are applied first.
    pub fn may_take(&self, staleness: u32) -> bool {
        self.taken.len() as u64 <= u64::from(staleness)
    }

    /// Records that a replica takes the current weights.
    pub fn take(&mut self, replica: u32) {
        self.taken.push((self.version, replica));
    }

    /// True if a replica's gradients may be applied now: the gradients of all others then stay within `staleness` if
    /// they are applied in the order in which those replicas took weights.
    pub fn may_apply(&self, replica: u32, staleness: u32) -> bool {
        let others = self.taken.iter().filter(|(_, other)| *other != replica);
        (self.version + 1..).zip(others).all(|(at, (taken, _))| at - taken <= u64::from(staleness))
    }

    /// Records that a replica's gradients are applied; returns the number of updates since it took weights.
    ///
    /// # Panics
    ///
    /// If the replica has taken no weights.
    pub fn apply(&mut self, replica: u32) -> u64 {
        let position = self.taken.iter().position(|(_, other)| *other == replica);
        let (taken, _) = self.taken.remove(position.expect("a replica takes weights first"));
        self.version += 1;
        self.version - 1 - taken
    }
}
