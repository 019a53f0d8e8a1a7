//! Defects of schedules.

use std::fmt;

use crate::schedule::display::excerpt;
use crate::schedule::{Action, ScheduleStep};

/// A schedule that cannot run, and the place of its defect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{defect}{}", if .excerpt.is_empty() { String::new() } else { format!("\n\n{excerpt}") })]
pub struct ScheduleError {
    /// The defect.
    pub defect: Defect,
    /// The part of the grid around the defective action, which is marked; empty if there is none.
    pub excerpt: String,
}

impl ScheduleError {
    /// A defect without a place.
    pub(super) fn nowhere(defect: Defect) -> Self {
        Self { defect, excerpt: String::new() }
    }

    /// A defect at step `at.1` of rank `at.0`.
    pub(super) fn at(defect: Defect, ranks: &[Vec<ScheduleStep>], at: (usize, usize)) -> Self {
        Self { defect, excerpt: excerpt(ranks, at, |_| at.1) }
    }
}

/// Defect of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Defect {
    /// No rank, no action or no micro-batch.
    #[error("the schedule is empty: {ranks} ranks, {micro_batches} micro-batches, {stages} stages")]
    Empty {
        /// Number of ranks.
        ranks: usize,
        /// Number of micro-batches.
        micro_batches: u32,
        /// Number of stages.
        stages: u32,
    },
    /// A micro-batch number beyond the last.
    #[error("`{action}` is of micro-batch {}, but there are {num_micro_batches}, from 0", action.micro_batch)]
    MicroBatch {
        /// The action.
        action: Action,
        /// Number of micro-batches of the schedule.
        num_micro_batches: u32,
    },
    /// An action on a rank that does not have its stage.
    #[error("`{action}` stands on rank {rank}, but {}", match expected { Some(rank) => format!("its stage is on rank {rank}"), None => "no rank has its stage".to_owned() })]
    Rank {
        /// The action.
        action: Action,
        /// Rank in whose list the action is.
        rank: usize,
        /// Rank of the action's stage.
        expected: Option<u32>,
    },
    /// A repeated action.
    #[error("`{action}` stands here a second time{}", if *.full { ", as a full backward and in parts" } else { "" })]
    Repeated {
        /// The action.
        action: Action,
        /// True if the action occurs both as a full backward and as a part of one.
        full: bool,
    },
    /// An action that no rank has.
    #[error(
        "`{action}` is missing: every micro-batch runs through every stage, forward and backward"
    )]
    Missing {
        /// The action.
        action: Action,
    },
    /// An action that comes before one that it needs, on the same rank.
    #[error("`{action}` comes before `{needs}`, which it needs")]
    Order {
        /// The action.
        action: Action,
        /// The action that must precede it.
        needs: Action,
    },
    /// An overlapped pair that is not a forward and another micro-batch's backward.
    #[error(
        "`{step}` overlaps what cannot: a pair is a forward, then another micro-batch's backward or input gradient"
    )]
    Pair {
        /// The pair.
        step: ScheduleStep,
    },
    /// A message of a stage that has no neighbour, or whose neighbour is on the same rank.
    #[error("`{action}` has no partner: {}", if *.same_rank { "both stages are on the same rank" } else { "there is no stage on the other side" })]
    NoPartner {
        /// The message.
        action: Action,
        /// True if the neighbour is on the same rank, false if there is none.
        same_rank: bool,
    },
    /// A receive without a send.
    #[error("`{receive}` waits for `{send}`, which is missing on rank {rank}")]
    NotSent {
        /// The receive.
        receive: Action,
        /// The missing send.
        send: Action,
        /// Rank that should send.
        rank: u32,
    },
    /// Messages that a rank receives in an order other than that of their sends.
    #[error(
        "`{receive}` would get what `{send}` sent: rank {from} sends to rank {to} in another order"
    )]
    Misordered {
        /// The receive.
        receive: Action,
        /// The first message in flight.
        send: Action,
        /// The sending rank.
        from: u32,
        /// The receiving rank.
        to: u32,
    },
    /// Parameters gathered twice, freed twice, or used while not gathered.
    #[error("`{action}` {}", if *.gathered { "gathers parameters that are there already" } else { "needs parameters that are not gathered" })]
    Sharding {
        /// The action.
        action: Action,
        /// True if the parameters are gathered.
        gathered: bool,
    },
    /// A reduction or update that is too early or repeated.
    #[error(
        "`{action}` comes after {backwards} of the {expected} backwards of its stage on this rank"
    )]
    TooEarly {
        /// The action.
        action: Action,
        /// Number of backwards done.
        backwards: u32,
        /// Number of backwards that must be done.
        expected: u32,
    },
    /// Ranks that wait for each other.
    #[error("deadlock: {}", .cycle.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Deadlock {
        /// The waiting ranks: each waits for the next, and the last for the first.
        cycle: Vec<Wait>,
    },
}

/// A rank that is blocked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The blocked rank.
    pub rank: usize,
    /// The step that it cannot run.
    pub step: ScheduleStep,
    /// The action that it waits for.
    pub needs: Action,
    /// Rank that would run that action.
    pub of: usize,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, step, needs, of } = self;
        if of == rank {
            return write!(f, "rank {rank} waits at `{step}` for its own later `{needs}`");
        }
        write!(f, "rank {rank} waits at `{step}` for `{needs}` of rank {of}")
    }
}
