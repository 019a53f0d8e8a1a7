//! The schedules of the families, from numbers alone. Generators state computation only.

mod dual;
mod error;
mod flush;
mod interleaved;
mod steps;
mod v_shape;
mod zero_bubble;

pub use error::GenerateError;

use super::{Schedule, ScheduleKind, Step};

/// The most forwards that [`generate()`] makes; three times as many actions fill some gigabytes.
const MOST_FORWARDS: u64 = 30_000_000;

impl ScheduleKind {
    /// Whether the family has a schedule on `p` ranks with `m` micro-batches and `v` stages a rank.
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

/// The schedule of a family on `p` ranks with `m` micro-batches and `v` stages a rank.
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
