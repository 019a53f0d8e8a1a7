//! Errors about numbers that a family of schedules does not support.

use crate::schedule::ScheduleKind;

/// A schedule that the family does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// A number that is zero.
    #[error("`{name}` is 0; a schedule needs at least 1")]
    Zero {
        /// Name of the number.
        name: &'static str,
    },
    /// More actions than are generated.
    #[error(
        "{num_stages} stages x {num_micro_batches} micro-batches are more than the {most} forwards that a schedule has at most"
    )]
    TooLarge {
        /// Number of stages of all ranks.
        num_stages: u64,
        /// Number of micro-batches.
        num_micro_batches: u32,
        /// The largest number of forwards.
        most: u64,
    },
    /// A number of stages per rank that differs from the family's.
    #[error(
        "schedule `{kind}` has `virtual_stages` {expected}, not {virtual_stages}\nhint: as many as you like have {}",
        any_virtual_stages()
    )]
    VirtualStages {
        /// The family.
        kind: ScheduleKind,
        /// Requested stages per rank.
        virtual_stages: u32,
        /// Stages per rank that the family has.
        expected: u32,
    },
    /// More stages than are generated.
    #[error("{num_stages} stages are more than the {most} that a schedule has at most")]
    TooManyStages {
        /// Number of stages of all ranks.
        num_stages: u64,
        /// The largest number of stages.
        most: u64,
    },
    /// More ranks than the family's order can be computed for.
    #[error("schedule `{kind}` is worked out for {most} pipeline ranks at most, not {num_ranks}")]
    TooManyRanks {
        /// The family.
        kind: ScheduleKind,
        /// Requested number of ranks.
        num_ranks: u32,
        /// The largest number of ranks.
        most: u32,
    },
    /// Numbers that differ from those of the user's schedule.
    #[error(
        "the given schedule is of {} ranks with {} stage{} each and {} micro-batches, not of {} ranks with {} and {} \
         micro-batches\nhint: micro-batches are `--global-batch-size` over `--micro-batch-size` and `--dp`",
        given[0], given[1], if given[1] == 1 { "" } else { "s" }, given[2], asked[0], asked[1], asked[2]
    )]
    Given {
        /// Ranks, stages per rank and micro-batches of the user's schedule.
        given: [u32; 3],
        /// The requested ranks, stages per rank and micro-batches.
        asked: [u32; 3],
    },
    /// An odd number of ranks.
    #[error("schedule `{kind}` folds the ranks in half: `pipeline_parallel` {} fits, {num_ranks} is odd", num_ranks + 1)]
    OddRanks {
        /// The family.
        kind: ScheduleKind,
        /// Requested number of ranks.
        num_ranks: u32,
    },
    /// An odd number of micro-batches.
    #[error("schedule `{kind}` feeds both ends alike: `num_micro_batches` {} fits, {num_micro_batches} is odd", num_micro_batches + 1)]
    OddMicroBatches {
        /// The family.
        kind: ScheduleKind,
        /// Requested number of micro-batches.
        num_micro_batches: u32,
    },
    /// Fewer micro-batches than the family needs.
    #[error(
        "schedule `{kind}` on {num_ranks} ranks needs `num_micro_batches` of at least {least}, not {num_micro_batches}"
    )]
    FewMicroBatches {
        /// The family.
        kind: ScheduleKind,
        /// Requested number of ranks.
        num_ranks: u32,
        /// Requested number of micro-batches.
        num_micro_batches: u32,
        /// The smallest number of micro-batches.
        least: u32,
    },
}

/// The families that support any number of stages per rank, in words.
fn any_virtual_stages() -> String {
    let names: Vec<String> = ScheduleKind::ALL
        .into_iter()
        .filter(|kind| kind.is_interleaved())
        .map(|kind| format!("`{kind}`"))
        .collect();
    match names.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [others @ .., last] => format!("{} and {last}", others.join(", ")),
    }
}
