//! Schedules given by the user, instead of one of a family.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ptr;

use super::{Action, ActionKind, Schedule, ScheduleStep, StagePlacement, write_csv};

/// A schedule given by the user: only passes, in the order of each rank.
///
/// Layouts are copied and compared by the million, so they hold a reference to the schedule. The schedule is leaked:
/// it lives as long as the program, which reads a few files at most.
#[derive(Clone, Copy)]
pub struct UserSchedule(&'static Parts);

struct Parts {
    schedule: Schedule,
    /// Rows of PyTorch's CSV.
    rows: String,
    virtual_stages: u32,
    is_v_shaped: bool,
    splits_backward: bool,
    overlaps_passes: bool,
}

/// Reason why a schedule cannot be used in a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UserScheduleError {
    /// An action that is not a pass.
    #[error(
        "row {}: `{action}` of rank {rank} is no pass: what is sent, gathered and reduced follows from a plan\nhint: \
         PyTorch's CSV of computation alone", rank + 1
    )]
    NoPass {
        /// Rank of the action.
        rank: u32,
        /// The action.
        action: Action,
    },
    /// A pipeline of one rank.
    #[error("the schedule is of one rank\nhint: a pipeline has two or more, a row for each")]
    OneRank,
    /// Ranks with different numbers of stages.
    #[error(
        "{num_stages} stages do not divide over {num_ranks} ranks\nhint: as many stages on each"
    )]
    Stages {
        /// Number of stages of all ranks.
        num_stages: u32,
        /// Number of ranks.
        num_ranks: u32,
    },
    /// A placement of stages that no layout has.
    #[error(
        "row {}: `{action}` is on rank {rank}, where no layout has stage {}\nhint: stage s on rank s mod {num_ranks}; or, \
         with two stages a rank, down the ranks and up again", rank + 1, action.stage
    )]
    Placement {
        /// Rank of the action.
        rank: u32,
        /// The first action of a rank on a stage that the rank would not have.
        action: Action,
        /// Number of ranks.
        num_ranks: u32,
    },
}

impl UserSchedule {
    /// Checks that plans can use a schedule.
    ///
    /// # Errors
    ///
    /// The property of the schedule that plans do not support.
    pub fn new(schedule: &Schedule) -> Result<Self, UserScheduleError> {
        if let Some((rank, action)) = schedule.actions().find(|(_, it)| !it.kind.is_compute()) {
            return Err(UserScheduleError::NoPass { rank, action });
        }
        let (num_stages, num_ranks) = (schedule.num_stages(), schedule.num_ranks());
        if num_ranks < 2 {
            return Err(UserScheduleError::OneRank);
        }
        if !num_stages.is_multiple_of(num_ranks) {
            return Err(UserScheduleError::Stages { num_stages, num_ranks });
        }
        let virtual_stages = num_stages / num_ranks;
        let is_v_shaped = *schedule.placement() == StagePlacement::V;
        if *schedule.placement() != StagePlacement::Loop && !(is_v_shaped && virtual_stages == 2) {
            let is_elsewhere = |(rank, action): &(u32, Action)| action.stage % num_ranks != *rank;
            let elsewhere = schedule.actions().find(is_elsewhere);
            let (rank, action) = elsewhere.expect("stages that do not go round the ranks");
            return Err(UserScheduleError::Placement { rank, action, num_ranks });
        }
        let is_part = |kind| matches!(kind, ActionKind::InputGrad | ActionKind::WeightGrad);
        let mut steps = schedule.ranks().iter().flatten();
        let parts = Parts {
            rows: write_csv(schedule).trim_end().replace("\r\n", "\n"),
            virtual_stages,
            is_v_shaped,
            splits_backward: schedule.actions().any(|(_, action)| is_part(action.kind)),
            overlaps_passes: steps.any(|step| matches!(step, ScheduleStep::Overlapped(..))),
            schedule: schedule.clone(),
        };
        Ok(Self(Box::leak(Box::new(parts))))
    }

    /// The schedule.
    pub fn schedule(self) -> &'static Schedule {
        &self.0.schedule
    }

    /// Rows of PyTorch's CSV, with a line for each rank.
    pub fn rows(self) -> &'static str {
        &self.0.rows
    }

    /// Number of ranks, of stages of each rank and of micro-batches.
    pub fn numbers(self) -> [u32; 3] {
        let schedule = self.schedule();
        [schedule.num_ranks(), self.virtual_stages(), schedule.num_micro_batches()]
    }

    /// Number of stages of each rank.
    pub const fn virtual_stages(self) -> u32 {
        self.0.virtual_stages
    }

    /// True if stages go down the ranks and up again.
    pub const fn is_v_shaped(self) -> bool {
        self.0.is_v_shaped
    }

    /// True if some gradients of activations and of parameters are computed in separate passes.
    pub const fn splits_backward(self) -> bool {
        self.0.splits_backward
    }

    /// True if some forwards are overlapped with backwards of other micro-batches.
    pub const fn overlaps_passes(self) -> bool {
        self.0.overlaps_passes
    }
}

impl fmt::Debug for UserSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p, v, m] = self.numbers();
        write!(f, "Given({p} ranks of {v} stages, {m} micro-batches)")
    }
}

impl PartialEq for UserSchedule {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for UserSchedule {}

impl PartialOrd for UserSchedule {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for UserSchedule {
    fn cmp(&self, other: &Self) -> Ordering {
        if ptr::eq(self.0, other.0) { Ordering::Equal } else { self.0.rows.cmp(&other.0.rows) }
    }
}

impl Hash for UserSchedule {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.numbers().hash(state);
    }
}
