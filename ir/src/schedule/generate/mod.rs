//! The schedules of the families, from numbers alone. Generators state computation only.

mod dual;
mod flush;
mod interleaved;
mod v_shape;
mod zero_bubble;

use super::{Action, ActionKind, Schedule, ScheduleKind, Step};

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
    #[error("{num_stages} stages x {num_micro_batches} micro-batches are more than {most} actions")]
    TooLarge {
        /// All ranks' chunks.
        num_stages: u64,
        /// Micro-batches.
        num_micro_batches: u32,
        /// What is allowed.
        most: u64,
    },
    /// The family has a fixed number of chunks a rank.
    #[error("schedule `{kind}` has `virtual_stages` {expected}, not {virtual_stages}")]
    VirtualStages {
        /// The family.
        kind: ScheduleKind,
        /// Chunks asked for.
        virtual_stages: u32,
        /// Chunks that it has.
        expected: u32,
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

/// The most forwards that [`generate()`] makes; three times as many actions fill some gigabytes.
const MOST_FORWARDS: u64 = 30_000_000;

impl ScheduleKind {
    /// Whether the family has a schedule on `p` ranks with `m` micro-batches and `v` chunks a rank.
    ///
    /// # Errors
    ///
    /// What the family needs and these numbers do not give it.
    pub fn check_numbers(self, p: u32, m: u32, v: u32) -> Result<(), GenerateError> {
        for (name, number) in
            [("pipeline_parallel", p), ("num_micro_batches", m), ("virtual_stages", v)]
        {
            if number == 0 {
                return Err(GenerateError::Zero { name });
            }
        }
        let num_stages = u64::from(p) * u64::from(v);
        if num_stages.saturating_mul(m.into()) > MOST_FORWARDS {
            let most = MOST_FORWARDS;
            return Err(GenerateError::TooLarge { num_stages, num_micro_batches: m, most });
        }
        let expected = self.default_virtual_stages();
        if !self.is_interleaved() && v != expected {
            return Err(GenerateError::VirtualStages { kind: self, virtual_stages: v, expected });
        }
        match self {
            Self::DualPipe => dual::check_pipe(p, m),
            Self::DualPipeV => dual::check_pipe_v(p, m),
            _ => Ok(()),
        }
    }
}

/// The schedule of a family on `p` ranks with `m` micro-batches and `v` chunks a rank.
///
/// # Errors
///
/// As [`ScheduleKind::check_numbers`].
pub fn generate(kind: ScheduleKind, p: u32, m: u32, v: u32) -> Result<Schedule, GenerateError> {
    let ranks = generate_steps(kind, p, m, v)?;
    let schedule = Schedule::new(ranks, kind.placement(), m)
        .unwrap_or_else(|error| panic!("`{kind}` with p {p}, m {m}, v {v} is wrong: {error}"));
    Ok(schedule.updating(kind.updates()))
}

/// The steps of each rank of a family's schedule, without the proof that a [`Schedule`] is: for a search,
/// which makes many that [`generate`] would all pass.
///
/// # Errors
///
/// As [`ScheduleKind::check_numbers`].
pub fn generate_steps(
    kind: ScheduleKind,
    p: u32,
    m: u32,
    v: u32,
) -> Result<Vec<Vec<Step>>, GenerateError> {
    kind.check_numbers(p, m, v)?;
    Ok(match kind {
        ScheduleKind::Sequential => flush::sequential(p, m),
        ScheduleKind::GPipe => flush::gpipe(p, m),
        ScheduleKind::OneFOneB | ScheduleKind::AsyncOneFOneB => flush::one_f_one_b(p, m),
        ScheduleKind::Interleaved => interleaved::one_f_one_b(p, m, v),
        ScheduleKind::LoopedBfs => interleaved::looped_bfs(p, m, v),
        ScheduleKind::InterleavedZb => interleaved::zero_bubble(p, m, v),
        ScheduleKind::ZbH1 => zero_bubble::h1(p, m),
        ScheduleKind::ZbH2 => zero_bubble::h2(p, m),
        ScheduleKind::Zbv => zero_bubble::v(p, m),
        ScheduleKind::VHalf => v_shape::v_half(p, m),
        ScheduleKind::VMin => v_shape::v_min(p, m),
        ScheduleKind::DualPipe => dual::pipe(p, m),
        ScheduleKind::DualPipeV => dual::pipe_v(p, m),
    })
}

fn forward(stage: u32, micro_batch: u32) -> Step {
    Step::One(Action { stage, kind: ActionKind::Forward, micro_batch })
}

fn backward(stage: u32, micro_batch: u32) -> Step {
    Step::One(Action { stage, kind: ActionKind::Backward, micro_batch })
}

fn input_grad(stage: u32, micro_batch: u32) -> Step {
    Step::One(Action { stage, kind: ActionKind::InputGrad, micro_batch })
}

fn weight_grad(stage: u32, micro_batch: u32) -> Step {
    Step::One(Action { stage, kind: ActionKind::WeightGrad, micro_batch })
}
