//! The request for a schedule.

use ir::units::Nanos;
use simulator::Durations;

/// The request for a schedule.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The passes of each stage, and messages. With two stages a rank, also V-shaped placements are
    /// tried; stages beyond the first round of ranks are in the order of the model either way.
    pub durations: &'a Durations,
    /// Pipeline ranks.
    pub num_ranks: u32,
    /// Micro-batches.
    pub num_micro_batches: u32,
    /// Memory that a stage keeps of a micro-batch.
    pub kept: Kept,
    /// The most that a rank may keep, in the unit of `kept`.
    pub limit: u64,
}

/// Memory that a stage keeps of a micro-batch, in any unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// From its forward on.
    pub activations: u64,
    /// From its input gradient to its weight gradient; no more than `activations`.
    pub for_weight_grad: u64,
}

/// Why there is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchedulingError {
    /// A number that is zero.
    #[error("`{name}` is 0; a schedule needs at least 1")]
    Zero {
        /// Which.
        name: &'static str,
    },
    /// Stages that the ranks cannot share equally.
    #[error("{num_stages} stages on {num_ranks} ranks; each rank needs as many as the others")]
    Stages {
        /// Stages with durations.
        num_stages: usize,
        /// Ranks.
        num_ranks: u32,
    },
    /// More is kept for the weight gradient than there is.
    #[error("{for_weight_grad} kept for the weight gradient, of {activations} that there are")]
    Kept {
        /// Kept for the weight gradient.
        for_weight_grad: u64,
        /// Kept from the forward on.
        activations: u64,
    },
    /// Not even one micro-batch at a time fits.
    #[error("a limit of {limit}, but one micro-batch alone keeps {needed} on a rank")]
    Memory {
        /// The limit.
        limit: u64,
        /// Memory that one micro-batch keeps.
        needed: u64,
    },
    /// More actions than a search can go through.
    #[error("{actions} actions are more than the {most} that are scheduled")]
    TooLarge {
        /// Three for each stage and micro-batch.
        actions: u64,
        /// The most.
        most: u64,
    },
}

/// The most actions: those of the families' largest schedules, three for each forward, which take some seconds.
const MOST_ACTIONS: u64 = 3 << 19;

impl Request<'_> {
    /// A forward, an input gradient and a weight gradient for each stage and micro-batch.
    pub(super) fn num_actions(&self) -> u64 {
        3 * self.durations.stages.len() as u64 * u64::from(self.num_micro_batches)
    }

    /// Checks the request, and says how many stages a rank has.
    pub(super) fn stages_per_rank(&self) -> Result<u32, SchedulingError> {
        let Request { num_ranks, num_micro_batches, kept, limit, .. } = *self;
        for (name, number) in
            [("pipeline_parallel", num_ranks), ("num_micro_batches", num_micro_batches)]
        {
            if number == 0 {
                return Err(SchedulingError::Zero { name });
            }
        }
        let num_stages = self.durations.stages.len();
        if num_stages == 0 || !num_stages.is_multiple_of(num_ranks as usize) {
            return Err(SchedulingError::Stages { num_stages, num_ranks });
        }
        let Kept { activations, for_weight_grad } = kept;
        if for_weight_grad > activations {
            return Err(SchedulingError::Kept { for_weight_grad, activations });
        }
        let v = num_stages as u64 / u64::from(num_ranks);
        let needed = activations.saturating_mul(v);
        if needed > limit {
            return Err(SchedulingError::Memory { limit, needed });
        }
        let actions = self.num_actions();
        if actions > MOST_ACTIONS {
            return Err(SchedulingError::TooLarge { actions, most: MOST_ACTIONS });
        }
        Ok(v as u32)
    }
}

/// Makespan, longest span, peak: smaller is better.
pub(super) type Score = (Nanos, Nanos, u64);
