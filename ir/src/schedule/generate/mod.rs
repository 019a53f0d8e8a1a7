//! Generation of the families' schedules from numbers alone. Generators produce only computation.

mod dual;
mod error;
mod flush;
mod interleaved;
mod steps;
mod v_shape;
mod zero_bubble;

pub use error::GenerateError;

use super::{Schedule, ScheduleKind, ScheduleStep};

/// The largest number of forwards that [`generate()`] makes. With its backward and messages, each forward takes a
/// kilobyte as actions, as events of a timeline and as the timeline's text: a gigabyte for all. Real training runs
/// have hundreds of stages and hundreds of micro-batches at most.
const MOST_FORWARDS: u64 = 1 << 19;

/// The largest number of stages of all ranks together: above the number of blocks of any model.
pub const MOST_STAGES: u64 = 4096;

/// The largest number of ranks for families whose order is simulated: the number of time steps is the sum of ranks and
/// micro-batches, and each time step visits every rank.
const MOST_RANKS_OF_V: u32 = 512;

impl ScheduleKind {
    /// Checks that the family has a schedule on `p` ranks with `m` micro-batches and `v` stages per rank.
    ///
    /// # Errors
    ///
    /// The requirement of the family that these numbers do not meet.
    pub fn check_numbers(self, p: u32, m: u32, v: u32) -> Result<(), GenerateError> {
        for (name, number) in
            [("pipeline_parallel", p), ("num_micro_batches", m), ("virtual_stages", v)]
        {
            if number == 0 {
                return Err(GenerateError::Zero { name });
            }
        }
        let num_stages = u64::from(p) * u64::from(v);
        if num_stages > MOST_STAGES {
            return Err(GenerateError::TooManyStages { num_stages, most: MOST_STAGES });
        }
        if num_stages.saturating_mul(m.into()) > MOST_FORWARDS {
            let most = MOST_FORWARDS;
            return Err(GenerateError::TooLarge { num_stages, num_micro_batches: m, most });
        }
        if let Self::Given(given) = self
            && given.numbers() != [p, v, m]
        {
            return Err(GenerateError::Given { given: given.numbers(), asked: [p, v, m] });
        }
        let expected = self.default_virtual_stages();
        if !self.is_interleaved() && v != expected {
            return Err(GenerateError::VirtualStages { kind: self, virtual_stages: v, expected });
        }
        if matches!(self, Self::VHalf | Self::VMin) && p > MOST_RANKS_OF_V {
            return Err(GenerateError::TooManyRanks {
                kind: self,
                num_ranks: p,
                most: MOST_RANKS_OF_V,
            });
        }
        match self {
            Self::DualPipe => dual::check_pipe(p, m),
            Self::DualPipeV => dual::check_pipe_v(p, m),
            _ => Ok(()),
        }
    }
}

/// The schedule of a family on `p` ranks with `m` micro-batches and `v` stages per rank.
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

/// The steps of each rank of a family's schedule, without the checks of a [`Schedule`]: for a search, which makes many
/// that [`generate`] would all pass.
///
/// # Errors
///
/// As [`ScheduleKind::check_numbers`].
pub fn generate_steps(
    kind: ScheduleKind,
    p: u32,
    m: u32,
    v: u32,
) -> Result<Vec<Vec<ScheduleStep>>, GenerateError> {
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
        ScheduleKind::Given(given) => given.schedule().ranks().to_vec(),
    })
}
