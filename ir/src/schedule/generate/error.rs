//! What a family needs and numbers do not give it.

use crate::schedule::ScheduleKind;

/// A schedule that the family does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// A number that is zero.
    #[error("`{name}` is 0; a schedule needs at least 1")]
    Zero {
        /// Which number.
        name: &'static str,
    },
    /// More actions than anyone can want.
    #[error(
        "{num_stages} stages x {num_micro_batches} micro-batches are more than the {most} forwards that a schedule has at most"
    )]
    TooLarge {
        /// All ranks' stages.
        num_stages: u64,
        /// Micro-batches.
        num_micro_batches: u32,
        /// What is allowed.
        most: u64,
    },
    /// The family has a fixed number of stages a rank.
    #[error(
        "schedule `{kind}` has `virtual_stages` {expected}, not {virtual_stages}\nhint: as many as you like have {}",
        any_virtual_stages()
    )]
    VirtualStages {
        /// The family.
        kind: ScheduleKind,
        /// Stages asked for.
        virtual_stages: u32,
        /// Stages that it has.
        expected: u32,
    },
    /// More stages than a model can have.
    #[error("{num_stages} stages are more than the {most} that a schedule has at most")]
    TooManyStages {
        /// All ranks' stages.
        num_stages: u64,
        /// The most.
        most: u64,
    },
    /// Working the family's order out takes too long.
    #[error("schedule `{kind}` is worked out for {most} pipeline ranks at most, not {num_ranks}")]
    TooManyRanks {
        /// The family.
        kind: ScheduleKind,
        /// Ranks asked for.
        num_ranks: u32,
        /// The most ranks.
        most: u32,
    },
    /// A schedule that is given has its numbers.
    #[error(
        "the given schedule is of {} ranks with {} stage{} each and {} micro-batches, not of {} ranks with {} and {} \
         micro-batches\nhint: micro-batches are `--global-batch-size` over `--micro-batch-size` and `--dp`",
        given[0], given[1], if given[1] == 1 { "" } else { "s" }, given[2], asked[0], asked[1], asked[2]
    )]
    Given {
        /// Ranks, stages of each and micro-batches that it has.
        given: [u32; 3],
        /// Those that were asked for.
        asked: [u32; 3],
    },
    /// The family needs an even number of ranks.
    #[error("schedule `{kind}` folds the ranks in half: `pipeline_parallel` {} fits, {num_ranks} is odd", num_ranks + 1)]
    OddRanks {
        /// The family.
        kind: ScheduleKind,
        /// Ranks asked for.
        num_ranks: u32,
    },
    /// The family feeds both ends alike.
    #[error("schedule `{kind}` feeds both ends alike: `num_micro_batches` {} fits, {num_micro_batches} is odd", num_micro_batches + 1)]
    OddMicroBatches {
        /// The family.
        kind: ScheduleKind,
        /// Micro-batches asked for.
        num_micro_batches: u32,
    },
    /// The family needs more micro-batches.
    #[error(
        "schedule `{kind}` on {num_ranks} ranks needs `num_micro_batches` of at least {least}, not {num_micro_batches}"
    )]
    FewMicroBatches {
        /// The family.
        kind: ScheduleKind,
        /// Ranks asked for.
        num_ranks: u32,
        /// Micro-batches asked for.
        num_micro_batches: u32,
        /// The fewest that it runs.
        least: u32,
    },
}

/// The families that have any number of stages a rank, in words.
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
